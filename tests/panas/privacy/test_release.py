"""Releases: what is computed, how far one sample can move it, how much noise, who paid first."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from panas.errors import BadInput, BudgetExhausted
from panas.privacy.accounting import Gaussian, SampledGaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger import Ledger
from panas.privacy.randomness import SystemNoise
from panas.privacy.release import (
    SENSITIVITY,
    Kind,
    Released,
    class_sums,
    clip_rows,
    label_histogram,
    moments,
    release,
    unpack_symmetric,
)


class NoNoise:
    """Zeros in place of noise."""

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64)

    def uniform(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)


class HalfNoise(SystemNoise):
    """The planted bug: half the standard deviation."""

    def normal(self, *shape: int) -> Tensor:
        return super().normal(*shape) / 2


def rows(n: int, d: int, classes: int, seed: int, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, d, generator=g), torch.randint(classes, (n,), generator=g)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open_account(0, Budget(8.0, 1e-5), allow_unprotected=True)
    return ledger


def let_go(
    ledger: Ledger,
    kind: Kind,
    read: Callable[[], tuple[Tensor, Tensor]],
    event: Gaussian | Unprotected = Gaussian(2.0),  # noqa: B008
) -> Released:
    return release(
        kind, read, classes=3, event=event, ledger=ledger, client=0, round=1, noise=NoNoise()
    )


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 12), d=st.integers(1, 6), classes=st.integers(1, 4), seed=st.integers(0, 99)
)
def test_without_noise_the_sums_are_those_of_a_loop(
    n: int, d: int, classes: int, seed: int
) -> None:
    z, y = rows(n, d, classes, seed)
    A, B = torch.zeros(d, d, dtype=torch.float64), torch.zeros(classes, d, dtype=torch.float64)
    counts = torch.zeros(classes, dtype=torch.float64)
    for i in range(n):
        u = z[i].double() * min(1.0, 1.0 / float(z[i].double().norm()))
        A += torch.outer(u, u)
        B[y[i]] += u
        counts[y[i]] += 1
    second = moments(z, y, classes, 1.0, NoNoise())
    first = class_sums(z, y, classes, 1.0, NoNoise())
    assert second["A"].shape == (d * (d + 1) // 2,)
    torch.testing.assert_close(unpack_symmetric(second["A"], d).double(), A, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second["B"].double(), B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first["S"].double(), B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first["counts"].double(), counts)
    assert all(t.dtype == torch.float32 for t in (*second.values(), *first.values()))


def vector(kind: str, z: Tensor, y: Tensor, classes: int) -> Tensor:
    """What is released as one vector in which all noise has the same standard deviation.

    A symmetric A is isometric to its upper triangle with off-diagonal numbers times sqrt(2).
    """
    if kind == "class_sums":
        out = class_sums(z, y, classes, 0.0, NoNoise())
        return torch.cat([out["S"].flatten(), out["counts"]]).double()
    out = moments(z, y, classes, 0.0, NoNoise())
    full = unpack_symmetric(out["A"], z.shape[1]).double()
    return torch.cat([full.flatten(), out["B"].double().flatten()])


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_one_sample_moves_a_release_by_its_sensitivity_and_no_more(kind: Kind) -> None:
    d, classes = 4, 3
    bound = SENSITIVITY[kind]
    assert bound == pytest.approx(math.sqrt(2))
    moved = []
    for seed in range(300):
        z, y = rows(1 + seed % 7, d, classes, seed, scale=10.0 ** (seed % 5 - 2))
        whole = vector(kind, z, y, classes)
        for i in range(len(y)):
            rest = torch.arange(len(y)) != i
            moved.append(float((whole - vector(kind, z[rest], y[rest], classes)).norm()))
    assert max(moved) <= bound + 1e-5
    assert max(moved) >= bound - 1e-5


def test_clipping_scales_long_rows_only() -> None:
    z, _ = rows(50, 5, 2, seed=1, scale=0.5)
    u = clip_rows(z)
    long = z.norm(dim=1) > 1
    assert bool(long.any())
    assert not bool(long.all())
    assert torch.equal(u[~long], z[~long])
    torch.testing.assert_close(u[long].norm(dim=1), torch.ones(int(long.sum())))
    assert torch.equal(clip_rows(torch.zeros(2, 3)), torch.zeros(2, 3))


def noise_ratios(kind: str, source: SystemNoise, scale: float = 3.0) -> dict[str, float]:
    """Standard deviation of the noise of each kind of number, over what it should be."""
    d, classes, draws = 8, 5, 400
    z, y = torch.zeros(0, d), torch.zeros(0, dtype=torch.int64)
    if kind == "class_sums":
        outs = [class_sums(z, y, classes, scale, source) for _ in range(draws)]
        parts = {k: torch.stack([o[k] for o in outs]) for k in ("S", "counts")}
        return {k: float(v.double().std()) / scale for k, v in parts.items()}
    outs = [moments(z, y, classes, scale, source) for _ in range(draws)]
    A = torch.stack([o["A"] for o in outs]).double()
    row, column = torch.triu_indices(d, d)
    return {
        "diagonal": float(A[:, row == column].std()) / scale,
        "off-diagonal": float(A[:, row != column].std()) / (scale / math.sqrt(2)),
        "B": float(torch.stack([o["B"] for o in outs]).double().std()) / scale,
    }


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_every_number_gets_the_noise_that_is_accounted(kind: str) -> None:
    for ratio in noise_ratios(kind, SystemNoise()).values():
        assert ratio == pytest.approx(1.0, abs=0.09)  # 5 standard errors of 2,000 draws
    for ratio in noise_ratios(kind, HalfNoise()).values():
        assert ratio != pytest.approx(1.0, abs=0.09)


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_the_noise_is_the_sensitivity_times_the_charged_multiplier(
    ledger: Ledger, kind: Kind
) -> None:
    class Ones(NoNoise):
        def normal(self, *shape: int) -> Tensor:
            return torch.ones(shape, dtype=torch.float64)

    out = release(
        kind,
        lambda: (torch.zeros(1, 2), torch.tensor([1])),
        classes=3,
        event=Gaussian(2.5),
        ledger=ledger,
        client=0,
        round=0,
        noise=Ones(),
    )
    s = math.sqrt(2) * 2.5
    first = out.arrays["B" if kind == "moments" else "S"]
    torch.testing.assert_close(first, torch.full((3, 2), s))
    if kind == "moments":
        torch.testing.assert_close(out.arrays["A"], torch.tensor([s, 2.5, s]))
    else:
        torch.testing.assert_close(out.arrays["counts"], torch.tensor([s, s + 1, s]))
    assert ledger.account(0).events() == [Gaussian(2.5)]
    assert ledger.account(0).entries[0].record["sensitivity"] == SENSITIVITY[kind]


@pytest.mark.parametrize("kind", ["moments", "class_sums", "raw_rows"])
def test_the_ledger_is_charged_before_the_rows_are_read(ledger: Ledger, kind: Kind) -> None:
    seen = []

    def read() -> tuple[Tensor, Tensor]:
        seen.append(len(Ledger(ledger.path).account(0).entries))
        return rows(5, 4, 3, seed=0)

    let_go(ledger, kind, read, Unprotected() if kind == "raw_rows" else Gaussian(2.0))
    assert seen == [1]


def test_rows_are_never_read_where_the_charge_is_refused(ledger: Ledger) -> None:
    def read() -> tuple[Tensor, Tensor]:
        raise AssertionError("the rows were read")

    with pytest.raises(BudgetExhausted):
        let_go(ledger, "moments", read, Gaussian(0.1))
    ledger.open_account(1, Budget(1.0, 1e-5))
    with pytest.raises(BadInput, match="protected"):
        release(
            "raw_rows",
            read,
            classes=3,
            event=Unprotected(),
            ledger=ledger,
            client=1,
            round=0,
            noise=NoNoise(),
        )
    with pytest.raises(BadInput, match="protected"):
        label_histogram(
            lambda: read()[1],
            classes=3,
            event=Unprotected(),
            ledger=ledger,
            client=1,
            noise=NoNoise(),
        )


def test_a_charge_is_kept_though_the_rows_fail(ledger: Ledger) -> None:
    for bad in (math.nan, math.inf):
        z, y = rows(5, 4, 3, seed=0)
        z[2, 1] = bad
        with pytest.raises(BadInput, match="finite representations"):
            let_go(ledger, "moments", lambda z=z, y=y: (z, y), Gaussian(5.0))
    assert len(ledger.account(0).entries) == 2


def test_nothing_is_released_without_the_receipt_of_its_kind(ledger: Ledger) -> None:
    out = let_go(ledger, "moments", lambda: rows(5, 4, 3, seed=0))
    for receipt in (None, "receipt", object()):
        with pytest.raises((BadInput, TypeError)):
            Released("moments", out.arrays, receipt)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="charge the ledger first"):
        Released("raw_rows", out.arrays, out.receipt)


def test_raw_rows_are_exact_and_demand_an_unprotected_charge(ledger: Ledger) -> None:
    z, y = rows(5, 4, 3, seed=0)
    with pytest.raises(BadInput, match="charged as what it is"):
        let_go(ledger, "raw_rows", lambda: (z, y), Gaussian(2.0))
    assert not ledger.account(0).entries
    out = let_go(ledger, "raw_rows", lambda: (z, y), Unprotected())
    assert torch.equal(out.arrays["z"], z)
    assert torch.equal(out.arrays["y"], y)
    assert ledger.account(0).spent("release") == math.inf
    assert ledger.account(0).entries[0].record["sensitivity"] is None


def test_unpacking_inverts_the_upper_triangle() -> None:
    for d in (1, 2, 5):
        g = torch.Generator().manual_seed(d)
        A = torch.randn(d, d, generator=g)
        A = A + A.T
        assert torch.equal(unpack_symmetric(A[tuple(torch.triu_indices(d, d))], d), A)


def test_the_histogram_is_the_counts_with_noise_of_sensitivity_one(ledger: Ledger) -> None:
    y = torch.tensor([0, 2, 2, 2])
    events: list[Gaussian | Unprotected] = [Gaussian(4.0), Unprotected()]
    for event in events:
        counts = label_histogram(
            lambda: y, classes=4, event=event, ledger=ledger, client=0, noise=NoNoise()
        )
        assert counts.tolist() == [1, 0, 3, 0]
    first, second = ledger.account(0).entries
    assert (first.phase, first.event, first.record["sensitivity"]) == ("search", Gaussian(4.0), 1.0)
    assert second.event == Unprotected()


def histogram_ratio(ledger: Ledger, source: SystemNoise) -> float:
    counts = label_histogram(
        lambda: torch.zeros(0, dtype=torch.int64),
        classes=4000,
        event=Gaussian(20.0),
        ledger=ledger,
        client=0,
        noise=source,
    )
    return float(counts.std()) / 20.0


def test_the_histogram_has_the_noise_that_is_accounted(ledger: Ledger) -> None:
    assert histogram_ratio(ledger, SystemNoise()) == pytest.approx(1.0, abs=0.06)
    assert histogram_ratio(ledger, HalfNoise()) != pytest.approx(1.0, abs=0.06)


def test_a_subsampled_event_does_not_pay_for_a_release_of_everything(ledger: Ledger) -> None:
    with pytest.raises((BadInput, TypeError)):
        let_go(ledger, "moments", lambda: rows(5, 4, 3, 0), SampledGaussian(0.01, 2.0, 1))  # type: ignore[arg-type]
    assert not ledger.account(0).entries


def test_a_receipt_pays_for_one_release_only(ledger: Ledger) -> None:
    receipt = ledger.charge(
        0, Gaussian(2.0), phase="release", mechanism="moments", recipient="server", sensitivity=1.0
    )
    Released("moments", {}, receipt)
    with pytest.raises(BadInput, match="fresh receipt"):
        Released("moments", {}, receipt)
