"""What every feature map guarantees: norm, determinism, and the same bytes after a file."""

import hashlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from map_facts import drawn, image_facts, table_facts, vector_facts

from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.map import FeatureMap, fit_map, read_map, write_map
from panas.runtime.errors import BadInput
from panas.runtime.store import write_tensors

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


CASES = {
    "grey, public": (image_facts(1, 8, 8), 40),
    "grey, nothing public": (image_facts(1, 8, 8), 0),
    "colour": (image_facts(3, 20, 20), 30),
    "table, public": (table_facts(), 150),
    "table, few public": (table_facts(), 40),
    "table, nothing public": (table_facts(), 0),
    "vectors, public": (vector_facts(30), 40),
    "vectors, few public": (vector_facts(30), 9),
    "vectors, nothing public": (vector_facts(30), 0),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Facts, FeatureMap]:
    facts, n = CASES[request.param]
    return facts, fit_map(facts, drawn(facts, n), 16)


def test_no_sample_gives_no_row(case: tuple[Facts, FeatureMap]):
    facts, feature_map = case
    assert feature_map(facts.no_samples().inputs()).shape == (0, 16)


def test_it_comes_back_from_a_file_as_the_same_bytes(
    case: tuple[Facts, FeatureMap], tmp_path: Path
):
    facts, feature_map = case
    write_map(tmp_path / "map.safetensors", feature_map)
    back = read_map(tmp_path / "map.safetensors")
    write_map(tmp_path / "again.safetensors", back)
    first, second = ((tmp_path / f"{n}.safetensors").read_bytes() for n in ("map", "again"))
    assert first == second
    x = drawn(facts, 5).x
    assert torch.equal(feature_map(x), back(x))
    assert torch.equal(back.of(Samples(x, torch.zeros(5).long(), 2)), back(x))
    assert (back.width, back.cost) == (16, feature_map.cost)
    assert json.loads(json.dumps(feature_map.to_json())) == feature_map.to_json()


def digest(feature_map: FeatureMap, x: torch.Tensor) -> str:
    content = [a.numpy().tobytes() for _, a in sorted(feature_map.arrays().items())]
    return hashlib.sha256(b"".join([*content, feature_map(x).numpy().tobytes()])).hexdigest()


@pytest.mark.thorough
def test_it_is_the_same_in_every_process_and_with_any_number_of_threads():
    code = (
        "import torch; torch.set_num_threads({threads});"
        "from test_feature_map import digest, drawn, fit_map, image_facts;"
        "f = image_facts(1, 8, 8); s = drawn(f, 40); print(digest(fit_map(f, s, 16), s.x))"
    )
    results = set()
    for threads in (1, 3):
        env = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": f"{ROOT}:{ROOT}/tests/helpers:{HERE}",
        }
        call = [sys.executable, "-c", code.format(threads=threads)]
        results.add(subprocess.run(call, capture_output=True, check=True, env=env).stdout.strip())
    facts = image_facts(1, 8, 8)
    public = drawn(facts, 40)
    assert results == {digest(fit_map(facts, public, 16), public.x).encode()}


@pytest.mark.slow
def test_neither_global_seeds_nor_private_samples_reach_it():
    facts = image_facts(1, 8, 8)
    public = drawn(facts, 12)
    first = digest(fit_map(facts, public, 16), public.x)
    torch.manual_seed(7)
    np.random.seed(7)
    torch.rand(9)
    assert digest(fit_map(facts, public, 16), public.x) == first
    assert [*inspect.signature(fit_map).parameters] == ["facts", "public", "d", "labelled"]


def test_public_samples_shape_it_but_for_broken_ones():
    facts = image_facts(1, 8, 8)
    maps = [fit_map(facts, drawn(facts, n), 16) for n in (0, 9, 40)]
    none, few, many = (m.arrays()["matrix"] for m in maps)
    assert torch.equal(none, few)
    assert not torch.equal(none, many)
    public = drawn(facts, 41)
    public.x[40] = torch.nan
    expected = fit_map(facts, public.take(range(40)), 16)
    assert torch.equal(fit_map(facts, public, 16).projection.matrix, expected.projection.matrix)


def test_bytes_and_floats_of_the_same_pictures_agree():
    facts = image_facts(1, 8, 8, dtype="uint8")
    x = torch.randint(256, (20, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    as_bytes = Samples(x.to(torch.uint8), torch.zeros(20, dtype=torch.int64), 2)
    as_floats = Samples(x / 127.5 - 1, torch.zeros(20, dtype=torch.int64), 2)
    maps = [fit_map(facts, s, 16) for s in (as_bytes, as_floats)]
    assert torch.allclose(*(m.projection.mean for m in maps), atol=1e-5)


def test_what_cannot_be_is_refused(tmp_path: Path):
    facts = image_facts(1, 8, 8)
    with pytest.raises(BadInput, match="at least 1 coordinate"):
        fit_map(facts, facts.no_samples(), 0)
    with pytest.raises(BadInput, match="public samples of shape"):
        fit_map(facts, drawn(image_facts(1, 9, 9), 3))
    write_tensors(tmp_path / "other", {"x": torch.zeros(1)}, {})
    with pytest.raises(BadInput, match="feature map"):
        read_map(tmp_path / "other")
