"""What every kind of release keeps, from the client's samples to the server's next head."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dprbft.heads import aggregate, to_broadcast
from dprbft.messages import Broadcast, Release
from panas.architecture.network import build_head
from panas.privacy.accounting.events import Gaussian, PostProcessing, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.receipt import Receipt
from panas.privacy.noise import SystemNoise
from panas.privacy.release.gate import Released, ReleaseEvent, release
from panas.privacy.release.mechanisms import KINDS, Kind, sensitivity
from panas.runtime.errors import BadInput
from panas.training.sgd import OptimizerConfig

WIDTH, CLASSES = 12, 3
BUDGET = Budget(8.0, 1e-5)
EVENTS: Mapping[Kind, ReleaseEvent] = {
    "moments": Gaussian(2.0),
    "class_sums": Gaussian(2.0),
    "public_rows": PostProcessing(),
    "raw_rows": Unprotected(),
}


def samples(seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z = torch.rand(30, WIDTH, generator=g)
    return z / z.norm(dim=1, keepdim=True), torch.randint(CLASSES, (30,), generator=g)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def released(ledger: Ledger, kind: Kind, client: int = 0, round: int = 1) -> Released:
    free = kind == "raw_rows"
    ledger.open_account(client, BUDGET, allow_unprotected=free)
    return release(
        kind,
        lambda: samples(client),
        classes=CLASSES,
        event=EVENTS[kind],
        ledger=ledger,
        client=client,
        round=round,
        noise=SystemNoise(),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_becomes_the_next_head(ledger: Ledger, kind: Kind) -> None:
    start = to_broadcast(
        build_head(WIDTH, CLASSES, init="etf", generator=torch.Generator().manual_seed(0)), 0
    )
    contents = [Release.of(released(ledger, kind, client)).to_bytes() for client in (0, 1)]
    messages = [Release.from_bytes(c, width=WIDTH, classes=CLASSES) for c in contents]
    assert [(m.client, m.kind) for m in messages] == [(0, kind), (1, kind)]
    answer = aggregate(
        messages, start, round=1, optimizer=OptimizerConfig(epochs=1), rng=np.random.default_rng(0)
    )
    again = Broadcast.from_bytes(answer.to_bytes(), width=WIDTH, classes=CLASSES)
    assert again.round == 1
    assert bool(torch.isfinite(again.weight).all())
    assert not torch.equal(again.weight, start.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_the_account_holds_what_left_and_nothing_else(ledger: Ledger, kind: Kind) -> None:
    ids = [released(ledger, kind, round=r).receipt.id for r in (1, 2)]
    account = ledger.account(0)
    assert [(e.id, e.event, e.charge.phase, e.charge.round) for e in account.entries] == [
        (ids[0], EVENTS[kind], "release", 1),
        (ids[1], EVENTS[kind], "release", 2),
    ]
    assert all(e.finished for e in account.entries)
    assert account.entries[0].charge.sensitivity == sensitivity(kind, account.relation)
    assert account.spent() == pytest.approx(epsilon_of([EVENTS[kind]] * 2, BUDGET))
    free = {"public_rows": 0.0, "raw_rows": math.inf}
    assert account.spent() == free.get(kind, account.spent())
    assert kind in free or 0 < account.spent() < math.inf


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaves_without_a_fresh_receipt_of_its_own(ledger: Ledger, kind: Kind) -> None:
    good = released(ledger, kind)
    with pytest.raises(BadInput, match="fresh receipt"):
        Released(kind, good.arrays, good.receipt)
    for forged in (None, good.receipt.id, object()):
        with pytest.raises((BadInput, TypeError)):
            Released(kind, good.arrays, forged)  # type: ignore[arg-type]
    with pytest.raises((BadInput, TypeError)):
        Receipt(object(), "id", 0, good.receipt.charge, lambda _: None)
    other = released(ledger, kind, round=2).receipt
    for wrong in KINDS:
        if wrong != kind:
            with pytest.raises(BadInput, match="charge the ledger first"):
                Released(wrong, good.arrays, other)


@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_leaves_nothing_and_stays_reserved(ledger: Ledger, kind: Kind) -> None:
    released(ledger, kind)

    def broken() -> tuple[Tensor, Tensor]:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        release(
            kind,
            broken,
            classes=CLASSES,
            event=EVENTS[kind],
            ledger=ledger,
            client=0,
            round=2,
            noise=SystemNoise(),
        )
    account = ledger.account(0)
    assert [e.finished for e in account.entries] == [True, False]
    spent = epsilon_of([EVENTS[kind]] * 2, BUDGET, relation=account.relation)
    assert account.spent() == pytest.approx(spent)
