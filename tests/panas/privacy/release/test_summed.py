"""A site's part of a sum: charged first, on the grid, under its share of the noise."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ledgers import opened

from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Gaussian, Unprotected
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.compression import (
    BLOCK,
    COMPRESSIONS,
    EXPONENTS,
    Compression,
    decode,
    encode,
    rounded,
    rounding,
)
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import ReleaseRequest, SumNoise, add_to_sum, from_steps, in_steps
from panas.privacy.release.kind import summed_kind
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput, BudgetExhausted

D, CLASSES = 6, 3
SIZE = D * (D + 1) // 2 + CLASSES * D + CLASSES
KIND = summed_kind("moments")
NOISE = SumNoise.of(KIND, 1.5, 10, 2, SIZE)


def rows() -> Rows:
    g = torch.Generator().manual_seed(1)
    z = torch.randn(40, D, generator=g)
    return Rows(z / z.norm(dim=1, keepdim=True), torch.randint(CLASSES, (40,), generator=g))


def request(noise: SumNoise = NOISE) -> ReleaseRequest:
    return ReleaseRequest(kind="moments", event=noise.event, site=0, round=1, classes=CLASSES)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(tmp_path)


def test_numbers_are_what_the_release_says_with_noise_of_one_size():
    numbers = moments.numbers(rows(), CLASSES)
    assert numbers.shape == (SIZE,)
    result = moments.from_numbers(numbers, CLASSES, 0.5)
    u = rows().z.double()
    one = torch.nn.functional.one_hot(rows().y, CLASSES).double()
    torch.testing.assert_close(result.A, u.T @ u, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.B, one.T @ u, rtol=1e-4, atol=1e-4)
    assert result.variance == 0.25
    assert result.counts_variance == (0.5 / moments.COUNTS) ** 2
    assert torch.equal(result.counts, torch.bincount(rows().y, minlength=CLASSES).float())
    assert moments.numbers_of(D, CLASSES) == SIZE
    # A unit moves them by |u|^2 in A, |u| in B, and c in its label's count.
    less = moments.numbers(Rows(rows().z[1:], rows().y[1:]), CLASSES)
    moved = float((numbers - less).norm())
    assert moved == pytest.approx(moments.SUM_SENSITIVITY, rel=1e-5)  # of rows on a grid
    assert moved <= moments.SUM_SENSITIVITY


def farthest(counted: float = moments.COUNTS) -> float:
    """How far numbers move at most when one unit of many, a row or a group of them, is taken out;
    of counts that weigh so much."""
    moved = 0.0
    for seed in range(150):
        g = torch.Generator().manual_seed(seed)
        n, d = 6, 1 + seed % 3
        z = 10.0 ** (seed % 3 - 1) * torch.randn(n, d, generator=g)
        y = torch.randint(3, (n,), generator=g)
        groups = torch.randint(3, (n,), generator=g) if seed % 2 else None
        out = torch.arange(n) == 0 if groups is None else groups == groups[0]
        left = groups if groups is None else groups[~out]
        gap = moments.numbers(Rows(z, y, groups), 3) - moments.numbers(
            Rows(z[~out], y[~out], left), 3
        )
        gap[-3:] *= counted / moments.COUNTS
        moved = max(moved, float(gap.norm()))
    return moved


@pytest.mark.slow
def test_no_unit_moves_the_numbers_by_more_than_their_sensitivity():
    assert 0.99 * moments.SUM_SENSITIVITY <= farthest() <= moments.SUM_SENSITIVITY + 1e-9
    assert farthest(counted=0.5) > moments.SUM_SENSITIVITY + 0.05  # the planted bug


def test_shares_of_all_but_the_missing_make_up_the_noise():
    assert NOISE.noise_multiplier >= 1.5
    assert NOISE.noise_multiplier == pytest.approx(1.5, rel=1e-5)
    assert NOISE.local == pytest.approx(1.5 / 8**0.5, rel=1e-5)
    assert NOISE.scale(8) == pytest.approx(moments.SUM_SENSITIVITY * 1.5, rel=1e-5)
    assert NOISE.scale(10) / NOISE.scale(8) == pytest.approx((10 / 8) ** 0.5)
    assert NOISE.step * 2**24 <= NOISE.scale(8)
    assert (NOISE.trust.sites, NOISE.trust.missing, NOISE.trust.local) == (10, 2, NOISE.local)


def test_the_charge_comes_first_and_rests_on_the_sum(ledger: Ledger):
    seen = list[int]()

    def read() -> Rows:
        seen.append(len(ledger.account().entries))
        return rows()

    summand = add_to_sum(request(), read, noise=NOISE, ledger=ledger)
    assert seen == [1]
    (entry,) = ledger.account().entries
    assert (entry.id, entry.finished) == (summand.receipt.id, True)
    assert (entry.event, entry.charge.trust) == (NOISE.event, NOISE.trust)
    with pytest.raises(BudgetExhausted):
        add_to_sum(
            request(big := SumNoise.of(KIND, 0.1, 10, 2, SIZE)), read, noise=big, ledger=ledger
        )
    assert len(seen) == 1


def noise_of(ledger: Ledger, sampler: Callable[[int, int], np.ndarray]) -> float:
    """Mean square of a share over what the local multiplier says."""
    summand = add_to_sum(request(), rows, noise=NOISE, ledger=ledger, sampler=sampler)
    exact = moments.numbers(rows(), CLASSES)
    left = from_steps(summand.steps, NOISE.step) - exact
    return float(left.square().mean()) / (NOISE.local * moments.SUM_SENSITIVITY) ** 2


def test_a_share_has_the_noise_that_its_local_cost_says_and_half_of_it_is_caught(
    ledger: Ledger, tmp_path: Path
):
    error = 5 * (2 / SIZE) ** 0.5
    assert abs(noise_of(ledger, discrete_gaussian) - 1) < error
    results = []
    for k in range(8):
        one = opened(tmp_path / str(k))
        results.append(noise_of(one, lambda sigma, size: discrete_gaussian(sigma // 2, size)))
    assert sum(results) / 8 < 1 - 5 * (2 / SIZE / 8) ** 0.5


def test_without_noise_a_sum_is_exact_and_unprotected(tmp_path: Path):
    noise = SumNoise.of(KIND, 0.0, 4, 1, SIZE)
    assert (noise.event, noise.trust, noise.scale(3)) == (Unprotected(), None, 0.0)
    ledger = opened(tmp_path, allow_unprotected=True)
    summand = add_to_sum(request(noise), rows, noise=noise, ledger=ledger)
    values = from_steps(summand.steps, noise.step)
    torch.testing.assert_close(values, moments.numbers(rows(), CLASSES), rtol=0, atol=1e-7)
    assert np.array_equal(summand.steps, in_steps(moments.numbers(rows(), CLASSES), noise.step))


def test_what_does_not_add_up_or_is_charged_as_something_else_is_refused(tmp_path: Path):
    for name in ("class_sums", "raw_rows", "public_rows"):
        with pytest.raises(BadInput, match="expected a release that adds up"):
            summed_kind(name)
    ledger = opened(tmp_path, relation=REPLACE)
    with pytest.raises(BadInput, match=ADD_OR_REMOVE):
        add_to_sum(request(), rows, noise=NOISE, ledger=ledger)
    with pytest.raises(BadInput, match="give that event"):
        add_to_sum(replace(request(), event=Gaussian(9.0)), rows, noise=NOISE, ledger=ledger)
    assert ledger.account().entries == ()


FORMS: list[Compression] = [c for c in COMPRESSIONS if c != "none"]
NUMBERS = st.floats(-(2.0**40), 2.0**40, width=32)


@given(st.lists(NUMBERS, max_size=3 * BLOCK), st.sampled_from(FORMS))
def test_numbers_move_no_further_than_the_bound_and_only_once(numbers: list[float], form: str):
    exact = torch.tensor(numbers)
    result = rounded({"x": exact}, form)["x"]  # type: ignore[arg-type]
    bound = rounding(result, form)  # type: ignore[arg-type]
    assert bool(((result.double() - exact.double()).abs() <= bound).all())
    again = encode({"x": result}, form)  # type: ignore[arg-type]
    first = encode({"x": exact}, form)  # type: ignore[arg-type]
    assert all(again[name].numpy().tobytes() == first[name].numpy().tobytes() for name in first)


@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_what_a_loop_makes_of_it(form: Compression):
    exact = torch.randn(3, 2 * BLOCK, generator=torch.Generator().manual_seed(1)) * 1e3
    result = rounded({"x": exact}, form)["x"].flatten().tolist()
    for at in range(0, exact.numel(), BLOCK):
        block = exact.flatten()[at : at + BLOCK].tolist()
        bits = {"int8": 7, "float16": 15}[form]
        step = 2.0 ** (int(np.frexp(max(map(abs, block)))[1]) - bits)
        for number, got in zip(block, result[at : at + BLOCK], strict=True):
            in_steps = number / step
            wanted = round(in_steps) if form == "int8" else float(np.float16(in_steps))
            assert got == wanted * step


@pytest.mark.parametrize(("form", "least"), [("float16", 1.85), ("int8", 3.5)])
def test_bytes_are_saved(form: Compression, least: float):
    arrays = {"A": torch.randn(4000), "B": torch.randn(10, 80), "y": torch.arange(5)}
    before, after = (
        sum(a.numel() * a.element_size() for a in result.values())
        for result in (arrays, encode(arrays, form))
    )
    assert before / after > least
    assert torch.equal(rounded(arrays, form)["y"], arrays["y"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update({"x" + EXPONENTS: torch.zeros(9, dtype=torch.int16)}),
        lambda a: a.update({"x" + EXPONENTS: a["x" + EXPONENTS].int()}),
        lambda a: a.update({"x": a["x"].float()}),
    ],
)
def test_arrays_that_do_not_fit_are_refused(form: Compression, change):
    arrays = encode({"x": torch.ones(40)}, form)
    change(arrays)
    with pytest.raises(ValueError, match="expected"):
        decode(arrays, form)
