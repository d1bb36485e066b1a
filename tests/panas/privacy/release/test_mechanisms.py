"""Mechanisms: what they compute, how far one sample moves it, how much noise every number gets."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from panas.privacy.accounting.events import Relation
from panas.privacy.noise import ReproducibleNoise, SystemNoise
from panas.privacy.release.mechanisms import (
    KINDS,
    Kind,
    check_rows,
    class_sums,
    clip_rows,
    debiased_moments,
    flip_for,
    moments,
    noise_scale,
    noisy_rows,
    relation_of,
    sensitivity,
    unpack_symmetric,
)
from panas.runtime.errors import BadInput

RELATIONS: tuple[Relation, ...] = ("add-or-remove-one", "replace-one")
Rows = tuple[Tensor, Tensor]


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


class OneLabelNoise(SystemNoise):
    """The planted bug: flips are decided by the number that chooses the new label."""

    def uniform(self, size: int) -> Tensor:
        g = np.random.default_rng(0)
        return torch.from_numpy(g.random(size))


def rows(n: int, d: int, classes: int, seed: int, scale: float = 2.0) -> Rows:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, d, generator=g), torch.randint(classes, (n,), generator=g)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 12), d=st.integers(1, 6), classes=st.integers(1, 4), seed=st.integers(0, 99)
)
def test_without_noise_all_is_as_in_a_loop(n: int, d: int, classes: int, seed: int) -> None:
    z, y = rows(n, d, classes, seed)
    A, B = torch.zeros(d, d, dtype=torch.float64), torch.zeros(classes, d, dtype=torch.float64)
    counts, u = torch.zeros(classes, dtype=torch.float64), torch.zeros(n, d, dtype=torch.float64)
    for i in range(n):
        u[i] = z[i].double() * min(1.0, 1.0 / float(z[i].double().norm()))
        A += torch.outer(u[i], u[i])
        B[y[i]] += u[i]
        counts[y[i]] += 1
    second = moments(z, y, classes, 1.0, NoNoise())
    first = class_sums(z, y, classes, 1.0, NoNoise())
    each = noisy_rows(z, y, classes, 1.0, 0.0, NoNoise())
    assert second["A"].shape == (d * (d + 1) // 2,)
    torch.testing.assert_close(unpack_symmetric(second["A"], d).double(), A, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second["B"].double(), B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first["S"].double(), B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first["counts"].double(), counts)
    torch.testing.assert_close(each["z"].double(), u, rtol=1e-5, atol=1e-6)
    assert torch.equal(each["y"], y)
    numbers = (*second.values(), *first.values(), each["z"])
    assert all(t.dtype == torch.float32 for t in numbers)


def test_clipping_scales_long_rows_only() -> None:
    z, _ = rows(50, 5, 2, seed=1, scale=0.5)
    u = clip_rows(z)
    long = z.norm(dim=1) > 1
    assert bool(long.any())
    assert not bool(long.all())
    assert torch.equal(u[~long], z[~long])
    torch.testing.assert_close(u[long].norm(dim=1), torch.ones(int(long.sum())))
    assert torch.equal(clip_rows(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_unpacking_inverts_the_upper_triangle() -> None:
    for d in (1, 2, 5):
        g = torch.Generator().manual_seed(d)
        A = torch.randn(d, d, generator=g)
        A = A + A.T
        assert torch.equal(unpack_symmetric(A[tuple(torch.triu_indices(d, d))], d), A)


def vector(kind: str, z: Tensor, y: Tensor, classes: int) -> Tensor:
    """What is released as one vector in which all noise has the same standard deviation.

    A symmetric A is isometric to its upper triangle with off-diagonal numbers times sqrt(2).
    """
    if kind == "label-histogram":
        return torch.bincount(y, minlength=classes).double()
    if kind == "noisy_rows":
        return noisy_rows(z, y, classes, 0.0, 0.0, NoNoise())["z"].double().flatten()
    if kind == "class_sums":
        out = class_sums(z, y, classes, 0.0, NoNoise())
        return torch.cat([out["S"].flatten(), out["counts"]]).double()
    out = moments(z, y, classes, 0.0, NoNoise())
    full = unpack_symmetric(out["A"], z.shape[1]).double()
    return torch.cat([full.flatten(), out["B"].double().flatten()])


def farthest(kind: str, relation: Relation, mechanism: Callable[..., Tensor] = vector) -> float:
    """How far a release moves at most over many neighbours, among them hard ones by design."""
    d, classes, moved = 2, 3, 0.0
    angles = torch.linspace(0, math.pi, 13)
    hard = torch.stack([angles.cos(), angles.sin()], 1) * 3
    for seed in range(200):
        z, y = rows(1 + seed % 4, d, classes, seed, scale=10.0 ** (seed % 5 - 2))
        whole = mechanism(kind, z, y, classes)
        if relation == "add-or-remove-one":
            rest = mechanism(kind, z[1:], y[1:], classes)
            moved = max(moved, float((whole - rest).norm()))
            continue
        other, _ = rows(1, d, classes, 1000 + seed)
        candidates = [other[0], *hard] if seed % 20 == 0 else [other[0]]
        for new in candidates:
            for label in range(classes):
                first = hard[0] if seed % 20 == 0 else z[0]
                a, b = z.clone(), z.clone()
                a[0], b[0] = first, new
                c = y.clone()
                c[0] = label
                gap = mechanism(kind, a, y, classes) - mechanism(kind, b, c, classes)
                moved = max(moved, float(gap.norm()))
    return moved


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", ["moments", "class_sums", "noisy_rows", "label-histogram"])
def test_one_sample_moves_a_release_by_its_sensitivity_and_no_more(
    kind: str, relation: Relation
) -> None:
    bound = sensitivity(kind, relation)  # type: ignore[arg-type]
    if bound is None:
        assert (kind, relation) == ("noisy_rows", "add-or-remove-one")
        return
    found = farthest(kind, relation)
    assert found <= bound + 1e-5
    assert found >= 0.98 * bound


def test_the_search_for_neighbours_finds_rows_that_nobody_clipped() -> None:
    def unclipped(kind: str, z: Tensor, y: Tensor, classes: int) -> Tensor:
        return z.double().flatten()

    assert farthest("noisy_rows", "replace-one", unclipped) > 2.5


def test_sensitivities_where_nothing_or_everything_is_bounded() -> None:
    assert sensitivity("raw_rows", "replace-one") is None
    assert sensitivity("public_rows", "add-or-remove-one") == 0.0
    assert [relation_of(k) for k in KINDS].count("replace-one") == 1
    for kind in KINDS:
        bound = sensitivity(kind, relation_of(kind)) or 0.0
        assert noise_scale(kind, 2.5) == pytest.approx(2.5 * bound)
        assert noise_scale(kind, None) == 0.0
    assert noise_scale("moments", 1.5) == pytest.approx(1.5 * math.sqrt(2))


def noise_ratios(kind: str, source: SystemNoise, scale: float = 3.0) -> dict[str, float]:
    """Standard deviation of the noise of each kind of number, over what it should be."""
    d, classes, draws = 8, 5, 400
    z, y = torch.zeros(0, d), torch.zeros(0, dtype=torch.int64)
    if kind == "noisy_rows":
        out = noisy_rows(torch.zeros(draws, d), torch.zeros(draws).long(), 5, scale, 0.5, source)
        return {"z": float(out["z"].double().std()) / scale}
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


@pytest.mark.parametrize("kind", ["moments", "class_sums", "noisy_rows"])
def test_every_number_gets_the_noise_that_is_asked_for(kind: str) -> None:
    for ratio in noise_ratios(kind, SystemNoise()).values():
        assert ratio == pytest.approx(1.0, abs=0.09)  # 5 standard errors of 2,000 draws
    for ratio in noise_ratios(kind, HalfNoise()).values():
        assert ratio != pytest.approx(1.0, abs=0.09)


def label_frequencies(source: SystemNoise, flip: float, classes: int, n: int) -> Tensor:
    """How often a label 1 comes out as each class."""
    y = torch.ones(n, dtype=torch.int64)
    out = noisy_rows(torch.zeros(n, 1), y, classes, 1.0, flip, source)["y"]
    return torch.bincount(out, minlength=classes).double() / n


@pytest.mark.parametrize(("flip", "classes"), [(0.3, 2), (0.6, 4), (0.95, 10)])
def test_labels_flip_as_often_as_is_accounted(flip: float, classes: int) -> None:
    n = 40_000
    expected = torch.full((classes,), flip / classes, dtype=torch.float64)
    expected[1] += 1 - flip
    error = 5 * (expected * (1 - expected) / n).sqrt()
    found = label_frequencies(SystemNoise(), flip, classes, n)
    assert bool(((found - expected).abs() < error).all())
    biased = label_frequencies(OneLabelNoise(), flip, classes, n)
    assert not bool(((biased - expected).abs() < error).all())


@given(epsilon=st.floats(0.01, 20), classes=st.integers(2, 100))
def test_a_flip_costs_what_it_was_made_for(epsilon: float, classes: int) -> None:
    f = flip_for(epsilon, classes)
    assert 0 < f < 1
    odds = (1 - f + f / classes) / (f / classes)
    assert math.log(odds) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


def debiased(scale: float, flip: float, draws: int, *, believed: float) -> tuple[Tensor, Tensor]:
    """Mean error of the debiased A and B over many noisy releases of the same rows, in its
    standard errors, where the server believes the noise to be `believed` times what it is."""
    d, classes, n = 3, 4, 30
    z, y = rows(n, d, classes, 0)
    u = clip_rows(z.double())
    truth = u.T @ u, F.one_hot(y, classes).double().T @ u
    noise = ReproducibleNoise(np.random.default_rng(1))
    found: list[list[Tensor]] = [[], []]
    for _ in range(draws):
        out = noisy_rows(z, y, classes, scale, flip, noise)
        parts = debiased_moments(out["z"], out["y"], classes, believed * scale, believed * flip)
        for seen, part in zip(found, parts, strict=True):
            seen.append(part)
    stacked = [torch.stack(parts) for parts in found]
    a, b = (
        (s.mean(0) - t) / (s.std(0) / math.sqrt(draws)).clamp(min=1e-9)
        for s, t in zip(stacked, truth, strict=True)
    )
    return a, b


def test_what_the_server_makes_of_noisy_rows_is_unbiased() -> None:
    for part in debiased(1.5, 0.6, 2000, believed=1.0):
        assert float(part.abs().max()) < 5
    for part in debiased(1.5, 0.6, 2000, believed=0.5):
        assert float(part.abs().max()) > 6


def test_rows_without_noise_are_their_moments() -> None:
    z, y = rows(30, 3, 4, 0)
    out = noisy_rows(z, y, 4, 0.0, 0.0, NoNoise())
    A, B = debiased_moments(out["z"], out["y"], 4, 0.0, 0.0)
    exact = moments(z, y, 4, 0.0, NoNoise())
    torch.testing.assert_close(A.float(), unpack_symmetric(exact["A"], 3))
    torch.testing.assert_close(B.float(), exact["B"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_that_are_no_numbers_are_refused(bad: float) -> None:
    z, y = rows(5, 4, 3, seed=0)
    check_rows(z, y, 3, 0)
    check_rows(z[:0], y[:0], 3, 0)
    z[2, 1] = bad
    with pytest.raises(BadInput, match="finite representations from client 7"):
        check_rows(z, y, 3, 7)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_are_no_classes_are_refused(label: int) -> None:
    z, y = rows(5, 4, 3, seed=0)
    y[4] = label
    with pytest.raises(BadInput, match="labels of client 0"):
        check_rows(z, y, 3, 0)


def test_the_kinds_are_the_five() -> None:
    wanted: set[Kind] = {"moments", "class_sums", "noisy_rows", "public_rows", "raw_rows"}
    assert set(KINDS) == wanted
