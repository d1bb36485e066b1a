"""The files of a program, each checked against the network before anybody has it.

| format | file | reads it |
|---|---|---|
| onnx | an ONNX model | onnxruntime and others; needs the extra `export` to be written |
| torch | a program of `torch.export`; loading one can run code that is in it | torch |
| safetensors | weights, and JSON that builds the network again | `panas.load` |

A file holds the weights, and as JSON the genome, the facts and what is promised; the size of a
batch is free. What compilers note of their own (paths of source files) is taken out.
"""

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from panas.architecture.blocks import BUILT_IN
from panas.runtime.errors import INSTALL_EXPORT, BadInput, PanasError, quiet
from panas.runtime.store import pack_tensors, unpack_tensors
from panas.training.checkpoint import SavedNetwork, network_of, network_record
from panas.training.export.program import Program, input_name, program_of, samples_of

Format = Literal["onnx", "torch", "safetensors"]
ENDINGS: Mapping[Format, str] = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}

TOLERANCE = 1e-4
"""By how much a probability may differ from the network's."""
TRIED = (1, 7)  # samples of the batches of a check
OUTPUT = "probabilities"
ABOUT = "panas.json"
"""Name of the JSON in a file: `about_of`."""

Run = Callable[[Tensor], Tensor]


def export(saved: SavedNetwork, form: Format, promise: Mapping[str, Any]) -> bytes:
    """A network as a file.

    Args:
        saved: with facts.
        form: as in the table above.
        promise: JSON-able: what covers the weights, for whoever reads the file.

    Raises:
        BadInput: for a network without facts, or without the libraries of a format.
        PanasError: if the file's answers differ from the network's by more than `TOLERANCE`.

    Privacy: nothing but weights, genome, facts and promise is in the file; whoever passes it on
    answers for these.
    """
    about = about_of(saved, promise)
    return FORMATS[form](saved, about)


def about_of(saved: SavedNetwork, promise: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of its network: genome, sizes, facts and promise, and nothing else."""
    notes = {"facts": saved.facts.to_json(), **promise}
    return _record(saved, notes)[1]


def _record(
    saved: SavedNetwork, notes: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    s = saved
    return network_record(s.bottom, s.head, s.genome, s.spec, notes, s.trunk)


def _safetensors(saved: SavedNetwork, about: dict[str, Any]) -> bytes:
    weights, _ = _record(saved, {})
    content = pack_tensors(weights, {"network": json.dumps(about)})
    tensors, notes = unpack_tensors(content, Path("the export"))
    blocks = [block for block in saved.genome.blocks if not isinstance(block, BUILT_IN)]
    again = program_of(network_of(json.loads(notes["network"]), tensors, blocks))
    check(saved, {"the file": again})
    return content


def _torch(saved: SavedNetwork, about: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    with _silence():
        exported = exported_program(saved)
        torch.export.save(exported, content, extra_files={ABOUT: json.dumps(about)})
        loaded = torch.export.load(io.BytesIO(content.getvalue())).module()
    check(saved, {"torch.export": loaded})
    return content.getvalue()


def _onnx(saved: SavedNetwork, about: dict[str, Any]) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise BadInput(
            "expected the libraries onnx, onnxscript and onnxruntime for --format onnx, got none "
            f"of {error.name}; {INSTALL_EXPORT}, or take --format torch"
        ) from error
    name = input_name(saved.facts)
    with _silence():
        exported = exported_program(saved)
        converted = torch.onnx.export(
            exported, dynamo=True, input_names=[name], output_names=[OUTPUT], verbose=False
        )
    assert converted is not None
    content = _cleaned(converted.model_proto, about)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run([OUTPUT], {name: x.numpy()})[0])

    check(saved, {"torch.export": exported.module(), "onnxruntime": run})
    return content


FORMATS: Mapping[Format, Callable[[SavedNetwork, dict[str, Any]], bytes]] = {
    "onnx": _onnx,
    "torch": _torch,
    "safetensors": _safetensors,
}


def exported_program(saved: SavedNetwork) -> torch.export.ExportedProgram:
    """The program in torch's form, with a free batch size and without paths of source files."""
    example = torch.zeros_like(samples_of(saved.facts, 3, torch.Generator()))
    batch = torch.export.Dim("batch", min=1)
    exported = torch.export.export(program_of(saved), (example,), dynamic_shapes=({0: batch},))
    for module in exported.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            node.meta.pop("stack_trace", None)
    return exported


def check(saved: SavedNetwork, runs: Mapping[str, Run | nn.Module]) -> None:
    """PanasError if an answer differs from the program's by more than `TOLERANCE`.

    Args:
        saved: the network.
        runs: what answers in its place, by name.
    """
    program, generator = program_of(saved), torch.Generator().manual_seed(0)
    for n in TRIED:
        x = samples_of(saved.facts, n, generator)
        for name, run in runs.items():
            difference = deviation(program, run, x)
            if not difference <= TOLERANCE:
                raise PanasError(
                    f"expected answers of {name} within {TOLERANCE:g} of the network's, got "
                    f"{difference:.2g} for a batch of {n}; nothing was written: take another format"
                )


@torch.no_grad()
def deviation(program: Program, run: Run | nn.Module, x: Tensor) -> float:
    """The largest difference of two answers; infinity where they have different shapes.

    Args:
        program: the network with its preprocessing.
        run: what answers in its place.
        x: n inputs of the program.
    """
    wanted, got = program(x), run(x)
    return float((wanted - got).abs().max()) if wanted.shape == got.shape else torch.inf


def _cleaned(model: Any, about: dict[str, Any]) -> bytes:
    """An ONNX model without what the exporter notes of source files, and with `about`."""
    graph = model.graph
    del graph.value_info[:], model.metadata_props[:]
    nodes = [*graph.node, *(node for function in model.functions for node in function.node)]
    for part in (graph, *nodes, *model.functions, *graph.input, *graph.output, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    model.metadata_props.add(key=ABOUT, value=json.dumps(about))
    return model.SerializeToString(deterministic=True)


@contextmanager
def _silence() -> Iterator[None]:
    """Within it, exporters make no remarks on their own matters."""
    with (
        warnings.catch_warnings(action="ignore"),
        quiet("torch.onnx", "torch.export", "onnxscript", "onnx_ir"),
    ):
        yield
