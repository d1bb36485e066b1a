"""What every kind of release keeps, from the site's samples to the server's next head."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import told
from torch import Tensor

from attacks.epsilon.release import ReleaseClaim, audit_release
from attacks.inference.labels import infer_labels
from attacks.reconstruction.inverters import ridge_on_noise
from attacks.threats.observation import Observation, WhiteBox
from dprbft.config.files import build_config
from dprbft.messages import Broadcast, Release
from dprbft.methods.rounds.heads import aggregate, to_broadcast
from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.ledger.charge import Receipt
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release import kinds
from panas.privacy.release.compression import Compression, rounding
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import Released, ReleaseRequest, release
from panas.privacy.release.kind import ReleaseEvent, ReleaseKind, event_of, kind_named, kind_names
from panas.runtime.errors import BadInput
from panas.training.sgd import OptimizerConfig

WIDTH, CLASSES = 12, 3
BUDGET = Budget(8.0, 1e-5)
EVENTS: dict[str, ReleaseEvent] = {k: event_of(kind_named(k), 2.0) for k in kind_names()}


def samples(seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z = torch.rand(30, WIDTH, generator=g)
    return z / z.norm(dim=1, keepdim=True), torch.randint(CLASSES, (30,), generator=g)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def released(ledger: Ledger, kind: str, site: int = 0, round: int = 1) -> Released:
    free = EVENTS[kind] == Unprotected()
    ledger.open_account(BUDGET, allow_unprotected=free)
    return release(
        ReleaseRequest(kind=kind, event=EVENTS[kind], site=site, round=round, classes=CLASSES),
        lambda: samples(site),
        ledger=ledger,
        noise=ReproducibleNoise(np.random.default_rng(site)),
    )


@pytest.mark.parametrize("kind", kind_names())
def test_a_release_becomes_the_next_head(ledger: Ledger, kind: str) -> None:
    start = to_broadcast(
        build_head(WIDTH, CLASSES, init="etf", generator=torch.Generator().manual_seed(0)), 0
    )
    contents = [Release.of(released(ledger, kind, site)).to_bytes() for site in (0, 1)]
    messages = [Release.from_bytes(c, width=WIDTH, classes=CLASSES) for c in contents]
    assert [(m.site, m.kind) for m in messages] == [(0, kind), (1, kind)]
    answer = aggregate(
        messages, start, round=1, optimizer=OptimizerConfig(epochs=1), rng=np.random.default_rng(0)
    )
    again = Broadcast.from_bytes(answer.to_bytes(), width=WIDTH, classes=CLASSES)
    assert again.round == 1
    assert bool(torch.isfinite(again.weight).all())
    assert not torch.equal(again.weight, start.weight)


@pytest.mark.parametrize("compression", ["float16", "int8"])
@pytest.mark.parametrize("kind", kind_names())
def test_a_compressed_release_says_what_its_sender_keeps(
    ledger: Ledger, kind: str, compression: Compression
) -> None:
    whole = Release.of(released(ledger, kind))
    message = whole.compressed(compression)
    content = message.to_bytes()
    result = Release.from_bytes(content, width=WIDTH, classes=CLASSES)
    assert result.compression == compression
    assert result.to_bytes() == content
    assert all(torch.equal(result.arrays[name], a) for name, a in message.arrays.items())
    for name, array in whole.arrays.items():
        if not array.is_floating_point():
            assert torch.equal(result.arrays[name], array)
        else:
            moved = (result.arrays[name].double() - array.double()).abs()
            assert bool((moved <= rounding(result.arrays[name], compression)).all())


@pytest.mark.parametrize("other", ["float8", "none", "float16", 3, None, ["int8"]])
def test_a_compression_that_is_not_the_message_s_is_refused(ledger: Ledger, other: object) -> None:
    message = Release.of(released(ledger, "moments")).compressed("int8")
    with pytest.raises(BadInput, match="in a release"):
        Release.from_bytes(
            told(message.to_bytes(), compression=other), width=WIDTH, classes=CLASSES
        )


@pytest.mark.parametrize("kind", kind_names())
def test_the_account_holds_what_left_and_nothing_else(ledger: Ledger, kind: str) -> None:
    ids = [released(ledger, kind, round=r).receipt.id for r in (1, 2)]
    account = ledger.account()
    assert [(e.id, e.event, e.charge.phase, e.charge.round) for e in account.entries] == [
        (ids[0], EVENTS[kind], "release", 1),
        (ids[1], EVENTS[kind], "release", 2),
    ]
    assert all(e.finished for e in account.entries)
    assert account.entries[0].charge.sensitivity == kind_named(kind).SENSITIVITY
    assert account.spent() == pytest.approx(epsilon_of([EVENTS[kind]] * 2, BUDGET))
    free = {"public_rows": 0.0, "raw_rows": math.inf}
    assert account.spent() == free.get(kind, account.spent())
    assert kind in free or 0 < account.spent() < math.inf


@pytest.mark.parametrize("kind", kind_names())
def test_nothing_leaves_without_a_fresh_receipt_of_its_own(ledger: Ledger, kind: str) -> None:
    good = released(ledger, kind)
    with pytest.raises(BadInput, match="fresh receipt"):
        Released(kind, good.arrays, good.receipt, 0)
    for forged in (None, good.receipt.id, object()):
        with pytest.raises((BadInput, TypeError)):
            Released(kind, good.arrays, forged, 0)  # type: ignore[arg-type]
    with pytest.raises((BadInput, TypeError)):
        Receipt(object(), "id", good.receipt.charge, lambda _: None)
    other = released(ledger, kind, round=2).receipt
    for wrong in kind_names():
        if wrong != kind:
            with pytest.raises(BadInput, match="charge the ledger first"):
                Released(wrong, good.arrays, other, 0)


@pytest.mark.parametrize("kind", kind_names())
def test_what_fails_leaves_nothing_and_stays_reserved(ledger: Ledger, kind: str) -> None:
    released(ledger, kind)

    def broken() -> tuple[Tensor, Tensor]:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        release(
            ReleaseRequest(kind=kind, event=EVENTS[kind], site=0, round=2, classes=CLASSES),
            broken,
            ledger=ledger,
            noise=ReproducibleNoise(np.random.default_rng(5)),
        )
    account = ledger.account()
    assert [e.finished for e in account.entries] == [True, False]
    spent = epsilon_of([EVENTS[kind]] * 2, BUDGET, relation=account.relation)
    assert account.spent() == pytest.approx(spent)


DIAGONAL = """
import torch
from panas.privacy.accounting.events import Gaussian
from panas.privacy.release.estimate import ArraySpec, Moments
from panas.privacy.release.rows import clip_rows, sums_by_class

CHARGED_AS = Gaussian
SENSITIVITY = 2**0.5
READS = "training"
UNIT = True
BARE = "sums leave without noise"


def run(rows, classes, scale, noise):
    u = clip_rows(rows.z.double())
    a = u.square().sum(0) + scale * noise.normal(u.shape[1])
    B = sums_by_class(u, rows.y, classes) + scale * noise.normal(classes, u.shape[1])
    return {"a": a.float(), "B": B.float()}


def arrays(classes, d):
    one = torch.ones(classes, d).double()
    return {"a": ArraySpec((d,), one[0]), "B": ArraySpec((classes, d), one)}


def estimate(arrays, classes, scale):
    return Moments(arrays["a"].double().diag(), arrays["B"].double(), scale**2)
"""


@pytest.fixture
def dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A kind that is one new file in the folder, and nothing else."""
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "diagonal.py").write_text(DIAGONAL)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path / "kinds")])
    monkeypatch.setitem(EVENTS, "diagonal", Gaussian(2.0))
    yield "diagonal"
    sys.modules.pop(f"{kinds.__name__}.diagonal", None)


@pytest.mark.slow
def test_a_new_file_is_a_kind_all_the_way(ledger: Ledger, dropped: str) -> None:
    assert isinstance(kind_named(dropped), ReleaseKind)
    of_rounds = {"federation": {"method": "dprbft"}, "privacy": {"release": dropped}}
    assert build_config(of_rounds).sent == dropped
    with pytest.raises(BadInput, match=r"network\.unit"):
        build_config(of_rounds, {"network": {"unit": False}})
    test_a_release_becomes_the_next_head(ledger, dropped)
    message = Release.of(released(ledger, dropped, site=2))
    x = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    public = Samples(x, torch.arange(30) % CLASSES, CLASSES)
    bottom = NetworkSpec(shape=(1, 4, 4), classes=CLASSES, width=WIDTH).bottom(
        Genome.parse("c4k3"), torch.Generator().manual_seed(0)
    )
    seen = Observation(
        "client-002", dropped, message.arrays, message.noise_multiplier, WhiteBox(bottom), public
    )
    assert seen.by_class
    assert seen.noised_sums
    rng = np.random.default_rng(0)
    assert ridge_on_noise(seen, rng=rng).shape == (CLASSES, 1, 4, 4)
    assert infer_labels(seen, rng=rng).labels is None
    claim = ReleaseClaim(
        kind=dropped,
        arrays=message.arrays,
        truth=Rows(*samples(2)),
        classes=CLASSES,
        noise_multiplier=2.0,
    )
    assert not audit_release(claim, draws=100).refuted


def test_a_name_in_no_file_is_refused_with_the_choices() -> None:
    with pytest.raises(BadInput, match=r"privacy.release to be one of class_sums, moments,.*none"):
        build_config({"privacy": {"release": "diagonal"}, "federation": {"method": "dprbft"}})
