"""A map from a file is of the sizes that its shape or its columns allow; its cost is known before.

At commit 4a98628 a map of 4,000 x 4,000 averaged pixels in 34 kB took 44 s and 5.6 GB.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_samples import one_at_a_time
from map_facts import NUMBERS, image_facts, table_facts, vector_facts
from torch import Tensor

from panas.data.facts import Facts
from panas.data.load import DataSettings, load
from panas.data.samples import Samples
from panas.features.exact import CHUNK_BYTES
from panas.features.map import cost_of, fit_map, restored_map, write_map
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

IMAGES, TABLE, VECTORS = image_facts(1, 8, 8), table_facts(NUMBERS[:5]), vector_facts(20)


@cache
def of_map(facts: Facts) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The record and the arrays of a map."""
    result = fit_map(facts, facts.no_samples(), 8)
    return result.to_json(), result.arrays()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"stride": 1, "side": 7},
        *one_at_a_time(averaged=[[4000, 4000]], side=[3], stride=[0], more=[1]),
        *one_at_a_time(
            shape=([1, 8], [1, 8, 2**40], [1, 8, True], "1x8"), kind=("other", ["gabor"])
        ),
    ],
)
def test_a_map_of_images_of_other_sizes_is_refused(change: dict[str, Any]) -> None:
    record, arrays = of_map(IMAGES)
    with pytest.raises(BadInput):
        restored_map(record | change, arrays)


@pytest.mark.parametrize(
    ("facts", "name", "array"),
    [
        (IMAGES, "filters", torch.zeros(32, 1, 5, 5)),
        (IMAGES, "filters", torch.zeros(2, 1, 5, 5)),
        (IMAGES, "mean", torch.zeros(7)),
        (IMAGES, "matrix", torch.zeros(3, 8)),
        (IMAGES, "matrix", torch.zeros(0)),
        (IMAGES, "more", torch.zeros(1)),
        (TABLE, "directions", torch.zeros(5, 10**6)),
        (TABLE, "directions", torch.full((5, 256), torch.nan)),
        (TABLE, "phases", torch.zeros(3)),
        (TABLE, "scale", torch.zeros(9)),
        (TABLE, "column", torch.zeros(10**5, 31, dtype=torch.int64)),
        (TABLE, "matrix", torch.zeros(256, 8).double()),
        (VECTORS, "mean", torch.zeros(21)),
        (VECTORS, "matrix", torch.zeros(21, 8)),
        (VECTORS, "more", torch.zeros(1)),
    ],
)
def test_arrays_of_other_shapes_are_refused(facts: Facts, name: str, array: Tensor) -> None:
    record, arrays = of_map(facts)
    with pytest.raises(BadInput):
        restored_map(record, arrays | {name: array})
    assert restored_map(record, arrays).width == 8


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
@pytest.mark.parametrize("name", ["mean", "matrix"])
def test_numbers_that_no_fit_gives_are_refused(name: str, value: float) -> None:
    record, arrays = of_map(IMAGES)
    changed = arrays[name].clone()
    changed.view(-1)[3] = value
    with pytest.raises(BadInput):
        restored_map(record, arrays | {name: changed})
    with pytest.raises(BadInput):
        restored_map(record, {k: v for k, v in arrays.items() if k != name})


@pytest.mark.parametrize(
    "change",
    [{"outputs": 21}, {"outputs": 2**20}, {"outputs": "20"}, {"more": 1}, {"encoder": {"a": 1}}],
)
def test_a_map_of_other_vectors_is_refused(change: dict[str, Any]) -> None:
    record, arrays = of_map(VECTORS)
    with pytest.raises(BadInput):
        restored_map(record | change, arrays)


@pytest.mark.slow
@pytest.mark.parametrize("facts", [IMAGES, TABLE, VECTORS], ids=["images", "table", "vectors"])
def test_what_a_map_needs_is_known_from_facts_alone(facts: Facts) -> None:
    x = torch.rand(120, *facts.shape) * 2 - 1
    result = fit_map(facts, Samples(x, (x[:, 0, 0, 0] > 0).long(), 2), 16)
    cost = cost_of(facts, 16)
    assert result.cost.macs <= cost.macs
    assert 4 * sum(a.numel() for a in result.arrays().values()) <= cost.fixed_bytes
    assert cost.chunk >= 1
    assert cost.chunk * cost.row_bytes <= max(CHUNK_BYTES, cost.row_bytes)


def test_a_large_image_is_worked_off_alone() -> None:
    wide = Facts(class_names=("a", "b"), shape=(1, 1, 100_000), dtype="float32")
    assert cost_of(wide).chunk == 1
    assert cost_of(wide).row_bytes < 1 << 26


def images(path: Path, seed: int, *, faint: bool = False) -> None:
    rng = stream(seed, "test")
    x = rng.integers(0, 3 if faint else 256, (60, 9, 9), dtype=np.uint8)
    np.savez(path, images=x, labels=rng.permutation(np.arange(60) % 3))


def table(path: Path, seed: int, *, wild: bool = False) -> None:
    rng, rows = stream(seed, "test"), ["age,ward,day,dose,label"]
    for i in range(120):
        age = rng.normal(50, 10) * (1e9 if wild else 1)
        ward = rng.choice(("other", "") if wild else ("north", "south"))
        day = f"{1900 if wild else 2024}-01-{rng.integers(1, 28):02d}"
        dose = "" if rng.random() < (0.9 if wild else 0.1) else f"{rng.random():.4f}"
        label = i % 2 if wild else rng.random() < 0.5
        rows.append(f"{age:.5f},{ward},{day},{dose},{'ill' if label else 'well'}")
    path.write_text("\n".join(rows) + "\n")


def map_bytes(private: Path, public: Path, tmp_path: Path, *, labelled: bool = True) -> bytes:
    settings = DataSettings(dataset=str(private), public_data=str(public), label="label")
    if private.suffix == ".npz":
        settings = DataSettings(dataset=str(private), public_data=str(public))
    source = load(settings, stream(0, "test"))
    path = tmp_path / "map.safetensors"
    write_map(path, fit_map(source.facts, source.public, 16, labelled=labelled))
    return path.read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("suffix", [".npz", ".csv"])
@pytest.mark.filterwarnings("ignore")
def test_other_private_samples_give_the_same_map(tmp_path: Path, suffix: str, labelled: bool):
    def file(name: str, seed: int, **how: bool) -> Path:
        path = tmp_path / f"{name}{suffix}"
        (images if suffix == ".npz" else table)(path, seed, **how)
        return path

    public, first, second = file("public", 0), file("first", 1), file("second", 2)
    far = file("far", 3, **{"faint" if suffix == ".npz" else "wild": True})
    made = [map_bytes(p, public, tmp_path, labelled=labelled) for p in (first, second, far)]
    assert made[0] == made[1] == made[2]
    # The same change of public samples does change it.
    assert map_bytes(first, second, tmp_path, labelled=labelled) != made[0]
