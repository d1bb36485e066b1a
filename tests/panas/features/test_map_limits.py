"""A map from a file is of the sizes that its shape or its columns allow; its cost is known before.

At commit 4a98628 a map of 4,000 x 4,000 averaged pixels in 34 kB took 44 s and 5.6 GB.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from panas.data.facts import Facts
from panas.data.files.columns import Column, side_of
from panas.data.samples import Samples
from panas.features.cost import CHUNK_BYTES
from panas.features.map import cost_of, fit_map, restored_map
from panas.runtime.errors import BadInput

IMAGES = Facts(class_names=("a", "b"), shape=(1, 8, 8), dtype="float32")
COLUMNS = tuple(Column(name=f"n{i}", reach=1.0) for i in range(5))
TABLE = Facts(
    class_names=("a", "b"), shape=(1, side_of(5), side_of(5)), dtype="float32", columns=COLUMNS
)


@pytest.fixture(scope="module")
def image_map() -> tuple[dict[str, Any], dict[str, Tensor]]:
    found = fit_map(IMAGES, IMAGES.no_samples(), 8)
    return found.to_json(), found.arrays()


@pytest.fixture(scope="module")
def table_map() -> tuple[dict[str, Any], dict[str, Tensor]]:
    found = fit_map(TABLE, TABLE.no_samples(), 8)
    return found.to_json(), found.arrays()


@pytest.mark.parametrize(
    "change",
    [
        {"averaged": [4000, 4000]},
        {"stride": 1, "side": 7},
        {"side": 3},
        {"stride": 0},
        {"shape": [1, 8]},
        {"shape": [1, 8, 2**40]},
        {"shape": [1, 8, True]},
        {"shape": "1x8"},
        {"kind": "other"},
        {"kind": ["gabor"]},
        {"more": 1},
    ],
)
def test_a_map_of_images_of_other_sizes_is_refused(image_map: Any, change: dict[str, Any]) -> None:
    record, arrays = image_map
    with pytest.raises(BadInput):
        restored_map(record | change, arrays)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("filters", torch.zeros(32, 1, 5, 5)),
        ("filters", torch.zeros(2, 1, 5, 5)),
        ("mean", torch.zeros(7)),
        ("matrix", torch.zeros(3, 8)),
        ("matrix", torch.zeros(0)),
        ("more", torch.zeros(1)),
    ],
)
def test_arrays_of_other_shapes_are_refused(image_map: Any, name: str, array: Tensor) -> None:
    record, arrays = image_map
    with pytest.raises(BadInput):
        restored_map(record, arrays | {name: array})


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
@pytest.mark.parametrize("name", ["mean", "matrix"])
def test_numbers_that_no_fit_gives_are_refused(image_map: Any, name: str, value: float) -> None:
    record, arrays = image_map
    changed = arrays[name].clone()
    changed.view(-1)[3] = value
    with pytest.raises(BadInput):
        restored_map(record, arrays | {name: changed})
    with pytest.raises(BadInput):
        restored_map(record, {k: v for k, v in arrays.items() if k != name})


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("directions", torch.zeros(5, 10**6)),
        ("directions", torch.full((5, 256), torch.nan)),
        ("phases", torch.zeros(3)),
        ("scale", torch.zeros(9)),
        ("column", torch.zeros(10**5, 31, dtype=torch.int64)),
        ("matrix", torch.zeros(256, 8).double()),
    ],
)
def test_a_map_of_a_table_of_other_sizes_is_refused(
    table_map: Any, name: str, array: Tensor
) -> None:
    record, arrays = table_map
    with pytest.raises(BadInput):
        restored_map(record, arrays | {name: array})
    assert restored_map(record, arrays).width == 8


@pytest.mark.slow
@pytest.mark.parametrize("facts", [IMAGES, TABLE], ids=["images", "table"])
def test_what_a_map_needs_is_known_from_facts_alone(facts: Facts) -> None:
    x = torch.rand(120, *facts.shape) * 2 - 1
    found = fit_map(facts, Samples(x, (x[:, 0, 0, 0] > 0).long(), 2), 16)
    cost = cost_of(facts, 16)
    assert found.macs <= cost.macs
    assert 4 * found.numbers <= cost.fixed_bytes
    assert cost.chunk >= 1
    assert cost.chunk_bytes <= max(CHUNK_BYTES, cost.row_bytes)


def test_a_large_image_is_worked_off_alone() -> None:
    wide = Facts(class_names=("a", "b"), shape=(1, 1, 100_000), dtype="float32")
    assert cost_of(wide).chunk == 1
    assert cost_of(wide).chunk_bytes < 1 << 26
