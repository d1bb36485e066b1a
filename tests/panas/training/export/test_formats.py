"""Exported files answer as their networks, for any batch, and hold nothing besides."""

import io
import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from custom_blocks import Squeeze
from patients import TABLE
from torch import Tensor

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import space_of
from panas.data.facts import Facts
from panas.data.files.columns import Column, side_of
from panas.runtime.errors import BadInput, PanasError
from panas.training.checkpoint import SavedNetwork, load_network
from panas.training.export import formats
from panas.training.export.formats import ABOUT, TOLERANCE, check, deviation, export
from panas.training.export.program import input_name, program_of, samples_of

PROMISE = {"network": "protected", "epsilon": 4.0, "delta": 1e-6}
IMAGES = Facts(class_names=("cat", "dog", "owl"), shape=(1, 6, 4), dtype="uint8")


def made_of(genome: Genome, facts: Facts, seed: int = 1) -> SavedNetwork:
    """A network that is not trained, but whose norms and biases are not as they begin."""
    generator = torch.Generator().manual_seed(seed)
    spec = NetworkSpec(shape=facts.shape, classes=facts.classes, width=8 + facts.classes)
    bottom, head = spec.bottom(genome, generator), spec.head(generator)
    with torch.no_grad():
        for p in [*bottom.parameters(), *head.parameters()]:
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    notes = {"facts": facts.to_json(), "client": 3, "accuracy": 0.123456}
    return SavedNetwork(bottom.eval(), head.eval(), genome, spec, notes)


@pytest.fixture(scope="module")
def saved() -> SavedNetwork:
    return made_of(Genome.parse("c8k3-max-c4k3"), IMAGES)


def test_weights_and_what_builds_them_again_are_a_file(saved: SavedNetwork, tmp_path: Path):
    path = tmp_path / "n.safetensors"
    path.write_bytes(export(saved, "safetensors", PROMISE))
    again = load_network(path)
    assert again.facts == IMAGES
    assert {k: v for k, v in again.notes.items() if k != "facts"} == PROMISE
    x = samples_of(IMAGES, 3, torch.Generator())
    assert torch.equal(again.probabilities(x), saved.probabilities(x))


def test_an_answer_that_differs_is_caught(saved: SavedNetwork):
    program = program_of(saved)

    def off(x: Tensor) -> Tensor:
        return program(x) + 2 * TOLERANCE

    check(saved, {"the same": program})
    for run in (off, lambda x: program(x)[:1], lambda x: program(x) * torch.nan):
        with pytest.raises(PanasError, match="nothing was written"):
            check(saved, {"another": run})


def test_an_export_that_differs_is_not_made(saved: SavedNetwork, monkeypatch: pytest.MonkeyPatch):
    other = made_of(saved.genome, IMAGES, seed=2)
    monkeypatch.setattr(formats, "network_of", lambda *_: other)
    with pytest.raises(PanasError, match="the file"):
        export(saved, "safetensors", PROMISE)


def test_without_the_libraries_a_line_says_what_installs_them(
    saved: SavedNetwork, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BadInput, match=r"onnxruntime.*pip install '\.\[export\]'"):
        export(saved, "onnx", PROMISE)


def test_a_network_without_facts_is_refused(saved: SavedNetwork):
    with pytest.raises(BadInput, match="saved with what is public"):
        export(replace(saved, notes={}), "safetensors", PROMISE)


def onnx_run(content: bytes, name: str) -> Callable[[Tensor], Tensor]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def torch_run(content: bytes) -> Callable[[Tensor], Tensor]:
    return torch.export.load(io.BytesIO(content)).module()


MORE = (
    Column(name="dose"),
    Column(name="cells", angle=True),
    Column(name="note", kind="text", missing=True),
    *TABLE.columns,
    Column(name="day", kind="date", centre=18_000.0, reach=300.0, missing=True),
)
SIDE = side_of(sum(column.width for column in MORE))
KINDS = (
    IMAGES,
    Facts(class_names=("a", "b"), shape=(3, 12, 9), dtype="uint8"),
    Facts(class_names=tuple("abcdefg"), shape=(2, 8, 8), dtype="float32"),
    replace(TABLE, columns=MORE, shape=(1, SIDE, SIDE)),
)


def agree(first: int, many: int) -> None:
    """Draw genomes, and compare both programs with the network for batches of 1 and 7."""
    for seed in range(first, first + many):
        facts = KINDS[seed % len(KINDS)]
        sizes: dict[str, Any] = {"max_blocks": 5, "widths": (3, 4, 8, 16), "kernels": (1, 3, 5)}
        space = space_of(facts.shape, rows=facts.are_rows, **sizes)
        saved = made_of(random_genome(space, np.random.default_rng(seed)), facts, seed)
        runs = {
            "onnx": onnx_run(export(saved, "onnx", PROMISE), input_name(facts)),
            "torch": torch_run(export(saved, "torch", PROMISE)),
        }
        generator, program = torch.Generator().manual_seed(seed), program_of(saved)
        for n in (1, 7):
            x = samples_of(facts, n, generator)
            for name, run in runs.items():
                assert deviation(program, run, x) <= TOLERANCE, (str(saved.genome), name, n)


@pytest.mark.slow
def test_programs_of_some_random_genomes_agree():
    agree(0, 1)
    agree(3, 1)  # rows of a table, through dense blocks


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(10))
def test_programs_of_200_random_genomes_agree(part: int):
    agree(20 * part, 20)


@dataclass
class Files:
    """Both programs of one network."""

    onnx: bytes
    torch: bytes


@pytest.fixture(scope="module")
def files(saved: SavedNetwork) -> Files:
    return Files(export(saved, "onnx", PROMISE), export(saved, "torch", PROMISE))


@pytest.mark.slow
def test_files_hold_weights_genome_facts_and_promise_alone(saved: SavedNetwork, files: Files):
    archive = zipfile.ZipFile(io.BytesIO(files.torch))
    parts = [archive.read(name) for name in archive.namelist()]
    root = str(Path(__file__).resolve().parents[4])
    for content in (files.onnx, *parts):
        for private in (root, str(Path.home()), "site-packages", ".py", "client", "0.123456"):
            assert private.encode() not in content
    extra = {ABOUT: ""}
    torch.export.load(io.BytesIO(files.torch), extra_files=extra)
    model = onnx.load_from_string(files.onnx)
    told = [json.loads(extra[ABOUT]), json.loads(model.metadata_props[0].value)]
    for about in told:
        assert set(about) == {"genome", "shape", "norm", "width", "classes", "unit", "notes"}
        assert about["genome"] == str(saved.genome)
        assert about["notes"] == json.loads(json.dumps({"facts": IMAGES.to_json(), **PROMISE}))


@pytest.mark.slow
def test_an_onnx_model_is_valid_and_names_its_input_output_and_batch(files: Files):
    model = onnx.load_from_string(files.onnx)
    onnx.checker.check_model(model, full_check=True)
    (x,), (p,) = model.graph.input, model.graph.output
    assert (x.name, p.name) == ("images", "probabilities")
    dims = [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim]
    assert dims == ["batch", 1, 6, 4]
    assert model.opset_import[0].version >= 20


@pytest.mark.slow
def test_a_custom_block_is_exported_too():
    saved = made_of(Genome.parse("c4k3-se2", (Squeeze(2),)), IMAGES)
    x = samples_of(IMAGES, 7, torch.Generator())
    run = onnx_run(export(saved, "onnx", PROMISE), "images")
    assert deviation(program_of(saved), run, x) <= TOLERANCE
    assert export(saved, "safetensors", PROMISE)
