"""Kinds of releases: what they compute, how far one sample moves it, how much noise it gets."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_rows import rows
from hypothesis import given, settings
from hypothesis import strategies as st
from noises import HalfNoise, NoNoise, Ones
from torch import Tensor

from panas.features.projection import GRID, SHORTER
from panas.privacy.accounting.events import Gaussian, PostProcessing, Unprotected
from panas.privacy.noise import ReproducibleNoise, SystemNoise
from panas.privacy.release import kinds
from panas.privacy.release import rows as release_rows
from panas.privacy.release.estimate import SECOND_MOMENTS, ClassSums, Moments, Rows
from panas.privacy.release.histogram import unit_counts
from panas.privacy.release.kind import (
    ReleaseKind,
    event_of,
    is_noised,
    kind_named,
    kind_names,
    noise_scale,
)
from panas.privacy.release.kinds import class_sums, moments
from panas.privacy.release.kinds.moments import unpack_symmetric
from panas.privacy.release.rows import checked_rows, clip_rows, grid_rows, products, unit_weights
from panas.runtime.errors import BadInput

NOISED = [name for name in kind_names() if is_noised(kind_named(name))]


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
    second = moments.run(Rows(z, y), classes, 1.0, NoNoise())
    first = class_sums.run(Rows(z, y), classes, 1.0, NoNoise())
    assert second["A"].shape == (d * (d + 1) // 2,)
    torch.testing.assert_close(unpack_symmetric(second["A"], d).double(), A, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second["B"].double(), B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first["S"].double(), B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first["counts"].double(), counts)
    numbers = (*second.values(), *first.values())
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


def vector(kind: str, z: Tensor, y: Tensor, classes: int) -> Tensor:
    """What is released as one vector in which all noise has the same standard deviation.

    A symmetric A is isometric to its upper triangle with off-diagonal numbers times sqrt(2).
    """
    if kind == "class_sums":
        out = class_sums.run(Rows(z, y), classes, 0.0, NoNoise())
        return torch.cat([out["S"].flatten(), out["counts"]]).double()
    out = moments.run(Rows(z, y), classes, 0.0, NoNoise())
    full = SECOND_MOMENTS * unpack_symmetric(out["A"], z.shape[1]).double()
    return torch.cat([full.flatten(), out["B"].double().flatten()])


def farthest(kind: str, mechanism: Callable[..., Tensor] = vector) -> float:
    """How far a release moves at most when one of many samples is added."""
    d, classes, moved = 2, 3, 0.0
    for seed in range(200):
        z, y = rows(1 + seed % 4, d, classes, seed, scale=10.0 ** (seed % 5 - 2))
        gap = mechanism(kind, z, y, classes) - mechanism(kind, z[1:], y[1:], classes)
        moved = max(moved, float(gap.norm()))
    return moved


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISED)
def test_one_sample_moves_a_release_by_its_sensitivity_and_no_more(kind: str) -> None:
    bound = kind_named(kind).SENSITIVITY
    assert 0.98 * bound <= farthest(kind) <= bound + 1e-5


def test_the_search_for_neighbours_finds_rows_that_nobody_clipped() -> None:
    def unclipped(kind: str, z: Tensor, y: Tensor, classes: int) -> Tensor:
        return z.double().sum(0)

    assert farthest("moments", unclipped) > 2.5


def test_sensitivities_and_where_noise_is() -> None:
    assert kind_named("raw_rows").SENSITIVITY is None
    assert kind_named("public_rows").SENSITIVITY == 0.0
    for kind in map(kind_named, kind_names()):
        assert noise_scale(kind, 2.5) == pytest.approx(2.5 * (kind.SENSITIVITY or 0.0))
        assert noise_scale(kind, None) == 0.0
    assert noise_scale(kind_named("moments"), 1.5) == pytest.approx(1.5 * math.sqrt(1.25))
    for kind in map(kind_named, NOISED):
        d, classes = 3, 2
        z, y = torch.zeros(0, d), torch.zeros(0, dtype=torch.int64)
        out = kind.run(Rows(z, y), classes, 1.0, Ones())
        wanted = kind.arrays(classes, d)
        assert out.keys() == wanted.keys()
        for part, spec in wanted.items():
            torch.testing.assert_close(out[part].double(), spec.noise)


def test_estimates_are_what_was_summed() -> None:
    z, y = rows(9, 3, 4, seed=2, scale=0.1)
    second = moments.estimate(moments.run(Rows(z, y), 4, 0.0, NoNoise()), 4, 0.5)
    first = class_sums.estimate(class_sums.run(Rows(z, y), 4, 0.0, NoNoise()), 4, 0.5)
    public = kind_named("public_rows").estimate({"z": z, "y": y}, 4, 0.0)
    raw = kind_named("raw_rows").estimate({"z": z, "y": y}, 4, 0.0)
    assert isinstance(second, Moments)
    assert isinstance(first, ClassSums)
    assert isinstance(public, Moments)
    assert isinstance(raw, Rows)
    assert (second.variance, first.variance, public.variance) == (0.25, 0.25, 0.0)
    torch.testing.assert_close(public.A, second.A, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(public.B, second.B, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(public.B.float(), first.S, rtol=1e-5, atol=1e-4)
    assert torch.equal(public.counts, first.counts)


def noise_ratios(kind: str, source: SystemNoise, scale: float = 3.0) -> dict[str, float]:
    """Standard deviation of the noise of each kind of number, over what it should be."""
    d, classes, draws = 8, 5, 400
    z, y = torch.zeros(0, d), torch.zeros(0, dtype=torch.int64)
    if kind == "class_sums":
        outs = [class_sums.run(Rows(z, y), classes, scale, source) for _ in range(draws)]
        parts = {k: torch.stack([o[k] for o in outs]) for k in ("S", "counts")}
        return {k: float(v.double().std()) / scale for k, v in parts.items()}
    outs = [moments.run(Rows(z, y), classes, scale, source) for _ in range(draws)]
    A = torch.stack([o["A"] for o in outs]).double()
    row, column = torch.triu_indices(d, d)
    return {
        "diagonal": float(A[:, row == column].std()) / (2 * scale),
        "off-diagonal": float(A[:, row != column].std()) / (2 * scale / math.sqrt(2)),
        "B": float(torch.stack([o["B"] for o in outs]).double().std()) / scale,
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISED)
def test_every_number_gets_the_noise_that_is_asked_for(kind: str) -> None:
    for ratio in noise_ratios(kind, SystemNoise()).values():
        assert ratio == pytest.approx(1.0, abs=0.09)  # 5 standard errors of 2,000 draws
    for ratio in noise_ratios(kind, HalfNoise()).values():
        assert ratio != pytest.approx(1.0, abs=0.09)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_are_no_classes_are_refused(label: int) -> None:
    z, y = rows(5, 4, 3, seed=0)
    y[4] = label
    with pytest.raises(BadInput, match="labels of site 0") as e:
        checked_rows(Rows(z, y), 3, 0)
    assert str(label) not in str(e.value).split("got")[1]  # no cell of the data in a message


def released(kind: str, rows: Rows) -> Tensor:
    """All numbers without noise, each over its noise: what the sensitivity bounds."""
    d, what = rows.z.shape[1], kind_named(kind)
    out, spread = what.run(rows, 3, 0.0, NoNoise()), what.arrays(3, d)
    parts = ((out[name], spread[name].noise) for name in sorted(out))
    return torch.cat([(t.double() / s).flatten() for t, s in parts if s is not None])


def grouped(seed: int, sizes: list[int], alike: bool = False) -> Rows:
    z, y = rows(sum(sizes), 4, 3, seed, scale=3.0)
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    if alike:
        z, y = z[groups], y[groups]
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return Rows(z[order], y[order], 10 - groups[order])


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISED)
@pytest.mark.parametrize("alike", [True, False])
def test_a_whole_group_moves_a_release_by_its_sensitivity_at_most(kind: str, alike: bool) -> None:
    sensitivity, moved = kind_named(kind).SENSITIVITY, []
    for seed in range(20):
        all_ = grouped(seed, [1, 7, 2, 30, 4], alike)
        for group in all_.groups.unique():
            rest = all_.groups != group
            some = Rows(all_.z[rest], all_.y[rest], all_.groups[rest])
            moved.append(float((released(kind, all_) - released(kind, some)).norm()))
            # The planted bug: the same groups, each sample a unit of its own.
            bare = [released(kind, Rows(r.z, r.y)) for r in (all_, some)]
            if alike and int((~rest).sum()) > 1:
                assert float((bare[0] - bare[1]).norm()) > 1.5 * sensitivity
    assert max(moved) <= sensitivity * (1 + 1e-5)
    assert max(moved) > 0.99 * sensitivity


@pytest.mark.parametrize("kind", NOISED)
def test_groups_of_one_release_what_samples_do_to_the_bit(kind: str) -> None:
    z, y = rows(30, 4, 3, seed=4, scale=2.0)
    outs = [
        kind_named(kind).run(r, 3, 1.0, ReproducibleNoise(np.random.default_rng(3)))
        for r in (Rows(z, y), Rows(z, y, torch.randperm(30)))
    ]
    assert all(torch.equal(outs[0][name], outs[1][name]) for name in outs[0])


@pytest.mark.parametrize("kind", NOISED)
def test_a_group_of_equal_rows_counts_as_one_row(kind: str) -> None:
    z, y = rows(4, 4, 3, seed=1, scale=3.0)
    unit = Rows(torch.nn.functional.normalize(z, dim=1), y)
    groups = torch.repeat_interleave(torch.arange(4), torch.tensor([3, 5, 1, 9]))
    copies = Rows(unit.z[groups], unit.y[groups], groups)
    torch.testing.assert_close(released(kind, copies), released(kind, unit), rtol=1e-5, atol=1e-6)


def test_every_module_of_the_folder_is_a_kind_and_nothing_else_is() -> None:
    files = {p.stem for p in Path(kinds.__path__[0]).glob("*.py")} - {"__init__"}
    assert set(kind_names()) == files == {"moments", "class_sums", "public_rows", "raw_rows"}
    for name in kind_names():
        kind = kind_named(name)
        assert isinstance(kind, ReleaseKind)
        assert kind.READS in ("training", "public")
        assert kind.BARE


@pytest.mark.parametrize("name", ["", "none", "kind", "moments.run", "..kind", "os"])
def test_a_name_that_is_no_kind_is_refused_and_never_imported(name: str) -> None:
    with pytest.raises(BadInput, match="class_sums, moments, public_rows, raw_rows"):
        kind_named(name)


@pytest.mark.parametrize("name", kind_names())
def test_noise_is_where_it_is_charged(name: str) -> None:
    kind = kind_named(name)
    noised = [spec.noise is not None for spec in kind.arrays(3, 4).values()]
    assert all(noised) if is_noised(kind) else not any(noised)
    assert (kind.SENSITIVITY or 0.0) > 0 if is_noised(kind) else not kind.SENSITIVITY
    for spec in kind.arrays(3, 4).values():
        assert spec.noise is None or spec.noise.shape == torch.Size(spec.shape)  # type: ignore[arg-type]


def test_the_event_is_the_one_that_a_kind_is_charged_as() -> None:
    events = {name: event_of(kind_named(name), 1.5) for name in kind_names()}
    assert events == {
        "moments": Gaussian(1.5),
        "class_sums": Gaussian(1.5),
        "public_rows": PostProcessing(),
        "raw_rows": Unprotected(),
    }
    with pytest.raises(BadInput, match="plan with releases"):
        event_of(kind_named("moments"), None)


FOUR, WIDE = 4, 24


def drawn(n: int) -> Rows:
    g = torch.Generator().manual_seed(0)
    return Rows(torch.randn(n, WIDE, generator=g), torch.randint(FOUR, (n,), generator=g), None)


def test_rows_on_the_grid_are_shorter_than_one_and_near_to_what_they_were():
    z = torch.cat([drawn(500).z, 1e-9 * drawn(5).z, torch.zeros(1, WIDE), 1e30 * drawn(5).z])
    u = grid_rows(z)
    assert (u.square().sum(1) <= SHORTER**2 * (1 + 1e-15)).all()  # squares on the grid are exact
    assert torch.equal((u / GRID).round() * GRID, u)
    clipped = z.double() / z.double().norm(dim=1, keepdim=True).clamp(min=1.0)
    assert (u - clipped).abs().max() <= 2.1 * GRID
    assert torch.equal(grid_rows(u), u)


@pytest.mark.parametrize("n", [2, 255, 257, 300])
def test_one_row_moves_sums_by_its_own_part_exactly(n: int):
    data = drawn(n)
    with_all = moments.numbers(data, FOUR)
    for i in (0, n // 2, n - 1):
        rest = torch.arange(n) != i
        without = moments.numbers(Rows(data.z[rest], data.y[rest], None), FOUR)
        alone = moments.numbers(Rows(data.z[i : i + 1], data.y[i : i + 1], None), FOUR)
        assert torch.allclose(with_all - without, alone, rtol=0, atol=1e-13)
        assert (with_all - without).norm() < moments.SUM_SENSITIVITY


def test_products_are_exact_in_every_order_and_parts_add_up(monkeypatch: pytest.MonkeyPatch):
    u = grid_rows(drawn(3000).z)
    values = products(u, u)
    for order in (torch.arange(3000).flip(0), torch.randperm(3000)):
        assert torch.equal(products(u[order], u[order]), values)
    steps = (u / GRID).long()
    whole = (steps[:, :, None] * steps[:, None, :]).sum(0)  # whole numbers of 64 bits
    assert torch.equal((values / GRID**2).long(), whole)
    monkeypatch.setattr(release_rows, "AT_ONCE", 7)
    assert torch.equal(products(u, u), values)


@pytest.mark.parametrize("size", [2, 3, 7, 50])
def test_a_group_moves_sums_by_no_more_than_is_claimed(size: int):
    z, y = drawn(200 + size).z, drawn(200 + size).y
    groups = torch.cat([torch.arange(200), torch.full((size,), 999)])
    for alike in (False, True):
        if alike:
            z[200:], y[200:] = z[200], y[200]
        rest = groups != 999
        both = [Rows(z, y, groups), Rows(z[rest], y[rest], groups[rest])]
        first, second = (moments.numbers(rows, FOUR) for rows in both)
        assert (first - second).norm() <= moments.SUM_SENSITIVITY
        counts = [unit_counts(rows.y, rows.groups, FOUR) for rows in both]
        assert (counts[0] - counts[1]).norm() <= 1.0


def test_weights_are_whole_steps_so_that_counts_are_exact():
    y = torch.zeros(9, dtype=torch.int64)
    rows = Rows(torch.ones(9, 1).double(), y, torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3]))
    weights = unit_weights(rows, 1.0, lambda z, _: float(len(z)))
    assert torch.equal((weights * 2**30).round(), weights * 2**30)
    assert torch.allclose(
        weights, torch.tensor([1 / 3] * 3 + [0.5] * 2 + [1.0] + [1 / 3] * 3).double()
    )
    assert math.isclose(float(weights.sum()), 4.0, rel_tol=1e-8)
