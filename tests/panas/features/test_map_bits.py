"""A row of a feature map has its bits whatever is beside it, also by a map of cancelling numbers.

At commit 4a98628 a float32 product took another kernel for a last chunk of one to three rows.
"""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from map_facts import NUMBERS, ROUNDING, drawn, image_facts, sums, table_facts, vector_facts
from torch import Tensor

from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features import tables
from panas.features.exact import WholeMatrix, cosines, logs, product, row_norms, significant
from panas.features.gabor import BRIGHT, FILTER_STEP, LARGEST, PIXEL_STEP, gabor_filters
from panas.features.map import FeatureMap, fit_map
from panas.features.projection import Cloud, Projection, cloud, principal
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments

FACTS = {
    "grey": image_facts(1, 8, 8),
    "colour": image_facts(3, 22, 20),
    "waves": table_facts(NUMBERS[:5]),
    "columns and leaves": table_facts(NUMBERS[:5]),
    "vectors": vector_facts(300),
}


def hostile(feature_map: FeatureMap) -> FeatureMap:
    """The map with numbers that cancel: of most rows nothing but rounding is left."""
    p = feature_map.projection  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(0)
    half = 1e6 * torch.randn(len(p.matrix) // 2, p.width, generator=generator)
    matrix = torch.zeros_like(p.matrix)
    matrix[0 : 2 * len(half) : 2], matrix[1 : 2 * len(half) : 2] = half, -half
    changed = Projection(torch.zeros_like(p.mean), matrix)
    return dataclasses.replace(feature_map, projection=changed)  # type: ignore[type-var]


@pytest.fixture(scope="module", params=[(k, h) for k in FACTS for h in (False, True)], ids=str)
def case(request: pytest.FixtureRequest) -> tuple[Facts, FeatureMap]:
    kind, is_hostile = request.param
    facts = FACTS[kind]
    public = Samples(drawn(facts, 120, seed=1).x, torch.arange(120) % 2, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "paying", lambda *_: (kind != "waves",) * 2)
        feature_map = fit_map(facts, public, 16)
    return facts, hostile(feature_map) if is_hostile else feature_map


def neighbours(x: Tensor) -> Iterator[Tensor]:
    """Batches that begin with the same rows and hold other ones beside."""
    for more, value in ((1, 0.0), (3, torch.nan), (1, torch.inf), (3, 1e30)):
        yield torch.cat([x, x.new_full((more, *x.shape[1:]), value)])


@pytest.mark.slow
def test_a_row_has_its_bits_in_every_order_and_beside_any_row(
    case: tuple[Facts, FeatureMap],
) -> None:
    facts, feature_map = case
    x = drawn(facts, 260).x
    whole = feature_map(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    assert torch.equal(feature_map(x[order]), whole[order])
    for n in (1, 256):
        for beside in neighbours(x[:n]):
            assert torch.equal(feature_map(beside)[:n], whole[:n])


@pytest.mark.parametrize(
    "step", [pytest.param(11, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.thorough)]
)
def test_a_row_has_its_bits_at_all_sizes_to_600(case: tuple[Facts, FeatureMap], step: int) -> None:
    facts, feature_map = case
    x = drawn(facts, 600).x
    whole = feature_map(x)
    for n in sorted({1, 2, 3, 255, 257, *range(1, 601, step)}):
        assert torch.equal(feature_map(x[:n]), whole[:n]), n


def step_of(feature_map: FeatureMap, x: Tensor, y: Tensor) -> float:
    """How far the last row moves (A, B), in the norm that the noise is for."""

    both = [sums(Rows(feature_map(x[:n]).double(), y[:n]), 2) for n in (len(x), len(x) - 1)]
    return float((both[0] - both[1]).norm())


@pytest.mark.slow
def test_one_more_row_moves_the_moments_by_what_is_claimed(case: tuple[Facts, FeatureMap]) -> None:
    """3.16 at 257 and 4.24 at 516 at commit 4a98628, by the map of cancelling numbers."""
    facts, feature_map = case
    x, y = drawn(facts, 519).x, torch.arange(519) % 2
    for n in (*range(255, 261), *range(513, 520)):
        assert step_of(feature_map, x[:n], y[:n]) <= moments.SENSITIVITY + ROUNDING


def test_sums_of_a_product_are_exact_whatever_the_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 300, generator=generator) * 10.0 ** torch.arange(-20, 20)[:, None]
    matrix = torch.randn(300, 9, generator=generator) * 10.0 ** torch.arange(-4, 5)
    for bits in (10, 16, 22):
        whole = WholeMatrix.of(matrix, bits)
        result = whole.after(x)
        order = torch.randperm(300, generator=generator)
        turned = WholeMatrix(whole.steps[order], whole.step, bits).after(x[:, order])
        assert torch.equal(result, turned)  # another order of the sum
        error = (result - x.double() @ matrix.double()).abs()
        most = 2.0 ** (1 - bits) * x.double().norm(dim=1)[:, None] * matrix.double().norm(dim=0) * 4
        assert (error <= most).all()
    assert torch.allclose(product(x, matrix), x.double() @ matrix.double(), rtol=1e-3, atol=1e-3)
    assert torch.allclose(row_norms(x), x.double().norm(dim=1))


def test_cosines_logarithms_and_significant_bits() -> None:
    turns = torch.linspace(-30, 30, 10007, dtype=torch.float64)
    expected = torch.cos(2 * torch.pi * turns)
    assert (cosines(turns) - expected).abs().max() < 4e-7
    p = torch.rand(50, 7, generator=torch.Generator().manual_seed(0)).double() + 1e-6
    assert torch.allclose(logs(p), p.log())
    for n in (1, 3, 7, 49):
        assert torch.equal(logs(p[:n]), logs(p)[:n])
        assert torch.equal(cosines(turns[:n]), cosines(turns)[:n])
    # Numbers keep their significant bits.
    x = torch.tensor([0.0, 1.0, 3.0, 0.7, -5.5, 1e-300, 1e300], dtype=torch.float64)
    assert torch.equal(significant(x, 53), x)
    assert significant(torch.tensor(5.1), 2) == 4 + 2 * (5.1 >= 5)
    assert significant(torch.tensor(5.1), 1, up=True) == 8


def test_answers_of_filters_are_whole_numbers_that_float32_holds() -> None:
    for side in (5, 7):
        filters = gabor_filters(side).double()
        assert torch.equal((filters / FILTER_STEP).round() * FILTER_STEP, filters)
        most = float(filters.abs().sum((1, 2, 3)).max()) * BRIGHT
        assert most / (FILTER_STEP * PIXEL_STEP) < 2**24
        assert not filters[0::2].sum((1, 2, 3)).any()  # a flat image has no answer
        assert (2 * most**2) ** 0.25 <= LARGEST


def covariance_of(seed: int, f: int = 80) -> Cloud:
    generator = torch.Generator().manual_seed(seed)
    spread = 0.9 ** torch.arange(f)
    return cloud(torch.randn(500, f, generator=generator) * spread)


def test_means_and_covariances_do_not_depend_on_the_order_and_a_map_not_on_last_bits() -> None:
    x = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    first, second = cloud(x), cloud(x.flip(0))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.covariance, second.covariance)
    assert torch.allclose(first.covariance, x.double().T.cov(correction=0), atol=1e-4)
    for seed in range(8):
        result = covariance_of(seed)
        plain = principal(result, 32, 0.6)
        noise = torch.randn(
            *result.covariance.shape, generator=torch.Generator().manual_seed(seed)
        ).double()
        other = result.covariance * (1 + 1e-12 * (noise + noise.T))
        moved = principal(dataclasses.replace(result, covariance=other), 32, 0.6)
        assert torch.equal(plain.matrix, moved.matrix)
        assert torch.equal(plain.mean, moved.mean)
