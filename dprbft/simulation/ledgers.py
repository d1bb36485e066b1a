"""The ledgers of a run's sites, and notes of their last lines: the simulator's view.

What a stage or a round has noted shows a ledger that was deleted or put back since.
"""

from collections.abc import Mapping
from pathlib import Path

from dprbft.paths import ledger_file, sites_folder
from panas.privacy.ledger.ledger import Ledger

Heads = Mapping[int, tuple[int, str]]
"""Number and hash of the last line of each client's ledger."""


def ledgers(run: Path) -> dict[int, Ledger]:
    """The ledgers of a run's clients, as far as there are any; one that was deleted leaves its
    head, and counts."""
    found = (p for p in sites_folder(run).glob("client-*/ledger.*"))
    clients = sorted({int(p.parent.name.removeprefix("client-")) for p in found})
    return {i: Ledger(ledger_file(run, i)) for i in clients}


def heads(run: Path) -> Heads:
    """What is to be noted of a run's ledgers."""
    return {i: ledger.head() for i, ledger in ledgers(run).items()}


def check_heads(run: Path, noted: Heads) -> None:
    """Refuse ledgers that do not continue those that were noted (BadInput)."""
    for i in {*noted, *ledgers(run)}:
        Ledger(ledger_file(run, i)).check_holds(*noted.get(i, (0, "")))


def heads_to_json(heads: Heads) -> dict[str, list[int | str]]:
    """Heads as JSON holds them."""
    return {str(i): [count, digest] for i, (count, digest) in heads.items()}


def heads_from_json(record: Mapping[str, tuple[int, str]]) -> Heads:
    """Read back what `heads_to_json` made."""
    return {int(i): (int(count), str(digest)) for i, (count, digest) in record.items()}
