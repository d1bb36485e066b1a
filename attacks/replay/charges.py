"""Whether the ledger and the gate charge what leaves: added up, refused where it is too much, and
as what it is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from attacks.conformance.finding import Finding
from attacks.replay.prices import DELTA, certain, covers, least_epsilon
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    REPLACE,
    Event,
    Gaussian,
    PostProcessing,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import ReleaseEvent, event_of, kind_named, kind_names
from panas.runtime.errors import PanasError

BUDGET = Budget(5.0, DELTA)
TWO = Gaussian(2.0)


def findings_of_charges() -> list[Finding]:
    """Tests of ledgers on disk, and of the gate with every kind of release."""
    with TemporaryDirectory() as folder:
        return [*_of_ledger(Path(folder) / "one.jsonl"), *_of_gate(Path(folder)), *_of_kinds()]


def _of_ledger(path: Path) -> Iterator[Finding]:
    ledger = _opened(path)
    for _ in range(3):
        ledger.charge(_charge(TWO))
    spent = Ledger(path).account()  # as another process reads it
    least = least_epsilon([TWO] * 3, DELTA, ADD_OR_REMOVE)
    forgets = list(spent.events()) != [TWO] * 3
    yield certain("what was charged", forgets, "the ledger forgets it")
    yield covers("what the ledger adds up", spent.spent(), least)
    for name, event in (("over the budget", Gaussian(0.3)), ("unprotected", Unprotected())):
        allows = not _refuses(lambda event=event: ledger.charge(_charge(event)))  # type: ignore[misc]
        yield certain(name, allows, "the ledger allows it")


def _opened(path: Path, unprotected: bool = False) -> Ledger:
    ledger = Ledger(path)
    ledger.open_account(BUDGET, allow_unprotected=unprotected)
    return ledger


def _charge(event: Event) -> Charge:
    return Charge(
        event=event, phase="release", mechanism="moments", recipient="server", sensitivity=1.0
    )


def _refuses(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except PanasError:
        return True
    return False


def _release(ledger: Ledger, kind: str, event: ReleaseEvent) -> object:
    rows = Rows(torch.eye(3), torch.arange(3))
    request = ReleaseRequest(kind=kind, event=event, site=0, round=1, classes=3)
    return release(request, lambda: rows, ledger=ledger, noise=SystemNoise())


def _of_gate(folder: Path) -> Iterator[Finding]:
    wrong: tuple[tuple[str, ReleaseEvent], ...] = (
        ("raw_rows", PostProcessing()),
        ("raw_rows", TWO),
        ("moments", PostProcessing()),
        ("moments", Gaussian(0.2)),
    )
    for k, (kind, event) in enumerate(wrong):
        ledger = _opened(folder / f"gate-{k}.jsonl", unprotected=True)
        leaves = not _refuses(lambda book=ledger, k=kind, e=event: _release(book, k, e))  # type: ignore[misc]
        yield certain(f"{kind} as {event}", leaves, "the gate lets it leave")
    ledger = _opened(folder / "raw.jsonl", unprotected=True)
    _release(ledger, "raw_rows", Unprotected())
    yield covers("rows that leave as they are", ledger.account().spent(), float("inf"))
    ledger = Ledger(folder / "replace.jsonl")
    ledger.open_account(BUDGET, relation=REPLACE)
    leaves = not _refuses(lambda: _release(ledger, "moments", TWO))
    yield certain("moments under replace-one", leaves, "the gate lets it leave")


def _of_kinds() -> Iterator[Finding]:
    for name in kind_names():
        kind = kind_named(name)
        event = event_of(kind, 1.5)
        free = isinstance(event, PostProcessing) and kind.READS != "public"
        bare = isinstance(event, Gaussian) and event != Gaussian(1.5)
        yield certain(f"a release of {name}", free or bare, "it is charged as another event")
