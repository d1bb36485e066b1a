"""The map of tables: the kernel behind its waves, the trees as their library walks them."""

import numpy as np
import pytest
import torch
from map_facts import NUMBERS as NINE
from sklearn.ensemble import ExtraTreesClassifier

from panas.data.files.columns import Column
from panas.features import trees
from panas.features.tables import WIDE, _declared, _smooth, _weights, fit_table
from panas.features.trees import LEAVES, TREES, grow
from panas.features.waves import Fourier
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

NUMBERS = NINE[:3]


def numbers(n: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(stream(seed, "test").uniform(-1, 1, (n, 3)).astype(np.float32))


def waves(columns: tuple[Column, ...], rows: torch.Tensor) -> Fourier:
    return fit_table(columns, rows, None, 8).blocks.fourier


def test_waves_have_a_gaussian_kernel_of_the_median_distance():
    rows = numbers(400)
    standard = rows / rows.std(0)
    distances = torch.cdist(standard, standard)
    bandwidth = WIDE * torch.pdist(standard).median()
    kernel = torch.exp(-((distances / bandwidth) ** 2) / 2)
    features = waves(NUMBERS, rows)(rows)
    assert (features @ features.T - kernel).abs().mean() < 0.06


def test_a_scale_of_numbers_and_padding_play_no_part():
    rows = numbers(400)
    first = waves(NUMBERS, rows)(rows)
    assert torch.allclose(waves(NUMBERS, rows / 4)(rows / 4), first, atol=1e-4)
    rows = rows[:40]
    padded = torch.nn.functional.pad(rows, (0, 1)).reshape(40, 1, 2, 2)
    maps = [fit_table(NUMBERS, x, None, 8) for x in (rows, padded)]
    assert torch.equal(maps[0](rows), maps[1](padded))


def test_columns_have_a_length_of_about_one():
    rows = numbers(400)
    _, scale = _smooth(_weights(NUMBERS, rows), rows)
    lengths = rows.std(0) * scale
    assert torch.allclose(lengths, lengths.mean(), rtol=2e-3)  # a deviation of each weighs alike
    columns = (rows - rows.mean(0)) * scale
    assert columns.square().sum(1).mean() == pytest.approx(1, rel=0.2)


@pytest.mark.slow
def test_columns_and_leaves_stand_beside_where_they_help_and_labels_are_of_two_classes():
    rows = numbers(400)
    noise = torch.from_numpy(stream(1, "test").normal(0, 0.1, 400))
    line = (rows @ torch.tensor([1.0, -0.5, 0.3]) + noise > 0).long()
    box = ((rows[:, 0] > 0.3) & (rows[:, 1] < 0.2)).long()
    linear, boxed = (fit_table(NUMBERS, rows, y, 8).blocks for y in (line, box))
    assert (linear.scale is not None, linear.forest is None) == (True, True)
    assert boxed.forest is not None
    assert linear(rows).shape[1] == linear.fourier.directions.shape[1] + 3
    few = fit_table(NUMBERS, rows[:49], line[:49], 8).blocks
    assert (few.scale, few.forest) == (None, None)
    x, y = rows[:200], box[:200]  # a forest needs labels of two classes
    assert fit_table(NUMBERS, x, y, 8).blocks.forest is not None
    assert fit_table(NUMBERS, x, None, 8).blocks.forest is None
    assert fit_table(NUMBERS, x, 0 * y, 8).blocks.forest is None
    assert fit_table(NUMBERS, x[:99], y[:99], 8).blocks.forest is None


def test_categories_without_public_rows_weigh_like_numbers():
    text = Column(name="t", kind="text", categories=("a", "b"))
    directions = waves((*NUMBERS, text), torch.empty(0, 6)).directions
    number, sign = directions[:3].abs().mean(), directions[3:].abs().mean()
    assert number / sign == pytest.approx(6, rel=0.3)


@pytest.mark.parametrize("n", [30, 300])
def test_leaves_are_those_of_the_library(n: int):
    x = numbers(n)
    y = (x[:, 0] * x[:, 1] > 0).long()
    rng = stream(3, "test")
    forest = grow(x, y, stream(3, "test"))
    library = ExtraTreesClassifier(
        TREES,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=trees.FEWEST_ROWS,
        class_weight="balanced",
        random_state=int(rng.integers(2**31)),
    ).fit(x.numpy(), y.numpy())
    new = numbers(500, seed=9)
    hot = forest(new).reshape(500, TREES, -1)
    assert np.array_equal(hot.argmax(2).numpy(), library.apply(new.numpy()))
    assert torch.allclose(forest(new).norm(dim=1), torch.ones(500))


@pytest.mark.slow
def test_classes_that_no_line_parts_are_told_apart():
    x, new = numbers(400), numbers(400, seed=5)
    y, truth = ((rows[:, 0] * rows[:, 1] > 0).long() for rows in (x, new))
    feature_map = fit_table(NUMBERS, x, y, 64)
    phi, tests = feature_map(x), feature_map(new)
    weights = torch.linalg.lstsq(phi.T @ phi + 0.1 * torch.eye(64), phi.T @ (2.0 * y - 1)).solution
    assert ((tests @ weights > 0) == truth.bool()).float().mean() > 0.9


@pytest.mark.parametrize(
    ("name", "value"), [("left", 31), ("right", -1), ("column", 2), ("left", 0.0)]
)
def test_a_forest_that_fails_for_some_rows_alone_is_refused(name: str, value: float):
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    arrays = grow(x, (x[:, 0] > 0).long(), stream(0, "grown")).arrays()
    assert trees.restored(arrays, 2) is not None
    changed = arrays[name].clone() if isinstance(value, int) else arrays[name].float()
    changed[0, 1] = value  # a node that not every row comes to
    with pytest.raises(BadInput, match=name):
        trees.restored(arrays | {name: changed}, 2)


def test_rows_of_a_scale_alone_vary_in_each_feature_of_a_number() -> None:
    columns = (Column(name="a", angle=True, missing=True), Column(name="b", reach=1.0))
    deviation = _declared(columns).std(0)
    assert deviation[3] == 0  # no cell is missing
    assert (deviation[[0, 1, 2, 4]] - 1 / 3).abs().max() < 0.02
