"""A budget, releases charged to it, and the ledgers that a run has left."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dprbft.paths import ledger_file, read_sites
from panas.privacy.accounting.events import Event, Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.charge import Charge, Receipt
from panas.privacy.ledger.ledger import Ledger

BUDGET, EIGHT = Budget(3.0, 1e-5), Budget(8.0, 1e-5)
MOMENTS = Charge(
    event=Gaussian(1.0),
    phase="release",
    mechanism="moments",
    recipient="server",
    sensitivity=1.4,
)


def opened(folder: Path, budget: Budget = EIGHT, name: str = "ledger", **terms: Any) -> Ledger:
    """A ledger with an account on these terms."""
    ledger = Ledger(folder / f"{name}.jsonl")
    ledger.open_account(budget, **terms)
    return ledger


def charge(ledger: Ledger, event: Event, subset: str = "train") -> Receipt:
    return ledger.charge(replace(MOMENTS, event=event, subset=subset))


def ledgers(run: Path) -> list[Ledger]:
    """The ledgers of a run's sites that have one, by site."""
    results = [Ledger(ledger_file(paths.folder), paths.run) for paths in read_sites(run)]
    return [ledger for ledger in results if ledger.path.exists()]


def accounts(run: Path) -> list[Account]:
    """The accounts of a run's sites, by site: over all runs of each."""
    return [ledger.account() for ledger in ledgers(run)]


def ledger_lines(run: Path) -> list[bytes]:
    """The lines of all ledgers of a run."""
    results = (ledger.path.read_bytes() for ledger in ledgers(run))
    return [line for content in results for line in content.splitlines()]


def assert_kept(before: Mapping[Path, bytes]) -> None:
    """That no ledger has lost a line since its content was noted."""
    for path, content in before.items():
        assert path.read_bytes().startswith(content)


def contents(run: Path) -> dict[Path, bytes]:
    """All ledgers of a run as they lie on disk."""
    return {ledger.path: ledger.path.read_bytes() for ledger in ledgers(run)}
