"""Encoders from their files: nothing is downloaded, and no file of a hub is ever read.

| file | kind | read by |
|---|---|---|
| NAME.pt2 | a program of `torch.export` | torch |
| NAME.onnx | ONNX in one file | onnx, onnxruntime (extra `encoders`) |
| ARCHITECTURE:NAME.safetensors, .pth, .pt | a torchvision network, no classifier | torch |

**What is trusted.** Weights are read without unpickling code (`weights_only`), also those inside a
program; a program with machine code or pickled objects is refused. But a program's own description
may hold expressions that torch evaluates: open a .pt2 only from whom you would take a program. The
file is its owner's choice, and its SHA-256 is part of what a federation agrees on. So nothing else
is read: weights of an ONNX file that lie in other files are refused.

A vector may depend on its picture alone. A file is refused where the same picture gives another
vector after a second one: it draws numbers, or keeps some, as dropout and batch norm in training.
It is refused, too, where its vectors are not finite, too large, or the same for other pictures.
"""

import hashlib
import io
import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from panas.data.encoder import EncoderFacts, Shape
from panas.data.files.raw import one_line
from panas.features.encoders.description import EMBEDDED, description, input_of
from panas.features.encoders.encoder import LARGEST, Encoder, Network, vector_of
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread

PROGRAM, ONNX, WEIGHTS = (".pt2",), (".onnx",), (".safetensors", ".pth", ".pt")
FILES = "a .pt2 or .onnx file, or ARCHITECTURE:FILE with a .safetensors or .pth file of weights"
CLASSIFIERS = ("fc", "classifier", "heads", "head")  # of torchvision's networks
CODE = ("aotinductor", ".so", ".py", ".cubin", ".wrapper", "opaque_obj", "custom_obj")
"""In the names of an archive's members: machine code, and objects that torch unpickles."""
FORMAT = "archive_format"
"""The member of an archive without which torch prints many lines."""
OTHER_FILES = "session.model_external_initializers_file_folder_path"
"""onnxruntime's option: the folder of weights that a model names by their files."""
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"  # of onnxruntime
ONLY_WEIGHTS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def encoder_path(given: str) -> Path:
    """The file of an encoder; BadInput if there is none."""
    path = Path(given.partition(":")[2] or given).expanduser()
    if not path.is_file():
        raise BadInput(f"expected an encoder, {FILES}, at {path}, found none; check --encoder")
    return path


def absolute(given: str, folder: Path) -> str:
    """An encoder as settings name it, its path absolute.

    Args:
        given: a path, or ARCHITECTURE:PATH.
        folder: that a relative path starts at.
    """
    architecture, colon, path = given.rpartition(":")
    return f"{architecture}{colon}{(folder / Path(path).expanduser()).resolve()}"


def load_encoder(given: str, device: str = "cpu") -> Encoder:
    """The encoder of a file, kept in memory for the next call.

    BadInput in one line for a file that cannot be read, or is no encoder of one picture.

    Args:
        given: a path, or ARCHITECTURE:PATH for weights of one of torchvision's networks.
        device: that it computes on, as `panas.runtime.device` names it. ONNX computes on a GPU
            where onnxruntime can, else on the CPU.
    """
    path = encoder_path(given)
    stat = path.stat()
    beside = [p for p in (path.with_suffix(".toml"), path.parent / "encoder.toml") if p.is_file()]
    changed = tuple(p.stat().st_mtime_ns for p in beside)
    return _loaded(given, str(path), device, stat.st_mtime_ns, stat.st_size, changed)


def deferred(given: str, facts: EncoderFacts, device: str = "cpu") -> Encoder:
    """The encoder of a file, which is read when the first picture comes.

    BadInput then, if it is not the one of the facts.

    Args:
        given: as for `load_encoder`.
        facts: of the encoder.
        device: as for `load_encoder`.
    """

    def network(x: Tensor) -> Tensor:
        encoder = load_encoder(given, device)
        if different := facts.differs_from(encoder.facts):
            raise BadInput(f"expected the encoder {facts.name}, got {different}; put it back")
        return encoder.network(x.to(encoder.device))

    return Encoder(facts, network)


@lru_cache(maxsize=4)
def _loaded(
    given: str, file: str, device: str, changed: int, size: int, beside: tuple[int, ...]
) -> Encoder:
    path, kind = Path(file), Path(file).suffix.lower()
    content = path.read_bytes()
    architecture = given.partition(":")[0] if ":" in given else ""
    network: Network
    try:
        if architecture and kind in WEIGHTS:
            network, own, embedded = _torchvision(architecture, path, content, device)
        elif not architecture and kind in PROGRAM:
            network, own, embedded = _program(content, device)
        elif not architecture and kind in ONNX:
            network, own, embedded = _onnx(content, device)
            device = "cpu"  # arrays go in, wherever it computes
        else:
            raise BadInput(
                f"expected an encoder, {FILES}, got {given!r:.200}; "
                "convert it, or name the architecture of its weights"
            )
    except BadInput:
        raise
    except Exception as e:  # parsers of three libraries: each has its own types
        remedy = "export it again" + ", with external_data=False" * (kind in ONNX)
        raise BadInput(
            f"expected a readable encoder at {path}, got: {one_line(e)}; {remedy}"
        ) from e
    shape, mean, std = input_of(description(path, embedded), own, path)
    try:
        outputs = _outputs_of(network, shape, device)
    except BadInput:
        raise
    except Exception as e:
        raise BadInput(
            f"expected an encoder of one picture (1, {', '.join(map(str, shape))}) at {path}, got: "
            f"{one_line(e)}; export it for one picture at a time"
        ) from e
    facts = EncoderFacts(
        kind="torchvision" if architecture else "program" if kind in PROGRAM else "onnx",
        name=f"{architecture}:{path.name}" if architecture else path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        shape=shape,
        mean=mean,
        std=std,
        outputs=outputs,
    )
    return Encoder(facts, network, device)


def _outputs_of(network: Network, shape: Shape, device: str) -> int:
    """How many numbers a vector has; BadInput if vectors of pictures would be of no use."""
    picture = torch.linspace(0, 1, math.prod(shape)).view(1, *shape).to(device)
    with one_thread(), torch.inference_mode():
        first, turned, darker, again = (
            vector_of(network(x.clone())).clone()
            for x in (picture, picture.flip(2, 3), picture.square(), picture)
        )
    if not torch.allclose(first, again, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise BadInput(
            "expected an encoder that always makes the same vector of a picture, got one that "
            "draws numbers or keeps some; export it after .eval()"
        )
    others = torch.stack([turned, darker])
    if not (torch.cat([first[None], others]).abs() <= LARGEST).all():
        raise BadInput(
            f"expected an encoder of numbers up to {LARGEST:g}, got larger ones or NaN for a plain "
            "picture; check its weights, and the scale, mean and std of its input"
        )
    if (others == first).all():
        raise BadInput(
            "expected an encoder whose vectors differ between pictures, got the same for three; "
            "check its weights, and the scale, mean and std of its input"
        )
    return len(first)


Loaded = tuple[Network, Shape | None, str]
"""A network, the shape of its input where the file says it, and JSON about its input."""


@contextmanager
def _only_weights() -> Iterator[None]:
    """torch reads tensors alone: its reader of programs would else unpickle what fails to be."""
    before = os.environ.get(ONLY_WEIGHTS)
    os.environ[ONLY_WEIGHTS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ONLY_WEIGHTS]
        else:
            os.environ[ONLY_WEIGHTS] = before


def _program(content: bytes, device: str) -> Loaded:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        said = next((n for n in names if n.endswith(f"{EMBEDDED}.json")), None)
        embedded = archive.read(said).decode() if said else ""
    if code := next((n for n in names if any(part in n.lower() for part in CODE)), None):
        raise BadInput(
            "expected a program of torch.export alone, got one with machine code or pickled "
            f"objects ({code:.80}); save it with torch.export.save"
        )
    if not any(n.endswith(FORMAT) for n in names):
        raise BadInput(
            "expected a program of torch.export, got another file of torch; save it with "
            "torch.export.save, or give its weights as ARCHITECTURE:FILE"
        )
    program = _loaded_program(content)
    inputs = program.graph_signature.user_inputs
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in inputs]
    if len(nodes) != 1:
        raise BadInput(f"expected a program of one input, got one of {len(nodes)}; export it so")
    sizes = nodes[0].meta["val"].shape
    if device != "cpu":  # with the constants that it makes on its way
        program = move_to_device_pass(program, device)
    return program.module(), _fixed(sizes), embedded


def _loaded_program(content: bytes) -> ExportedProgram:
    with _only_weights():
        return torch.export.load(io.BytesIO(content))


def exported(given: str, facts: EncoderFacts) -> ExportedProgram:
    """The program of an encoder of torch, which `load_encoder` has read before.

    Args:
        given: as for `load_encoder`; no ONNX.
        facts: of the encoder.
    """
    path = encoder_path(given)
    if facts.kind == "program":
        return _loaded_program(path.read_bytes())
    network, _, _ = _torchvision(given.partition(":")[0], path, path.read_bytes(), "cpu")
    return torch.export.export(network, (torch.zeros(1, *facts.shape),))


def _fixed(sizes: Any) -> Shape | None:
    """(channels, height, width) of an input (n, c, h, w) where these are numbers; else None."""
    if len(sizes) != 4:
        raise BadInput(f"expected an input of one picture (n, c, h, w), got {len(sizes)} axes")
    c, h, w = sizes[1:]
    return (c, h, w) if all(type(n) is int for n in (c, h, w)) else None


def _onnx(content: bytes, device: str) -> Loaded:
    try:
        import onnx  # noqa: F401  (its layers are read later)
        import onnxruntime
    except ModuleNotFoundError as e:
        raise BadInput(
            "expected onnx and onnxruntime for an encoder in ONNX, did not find both (in the "
            "checkout: pip install '.[encoders]')"
        ) from e
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level, options.use_deterministic_compute = 4, True
    options.add_session_config_entry(OTHER_FILES, os.devnull)  # which has no files in it
    providers = _providers(onnxruntime.get_available_providers(), device)
    session = onnxruntime.InferenceSession(content, options, providers=providers)
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(float)":
        raise BadInput("expected a network of one float32 input in ONNX, got another; export it so")
    name = inputs[0].name

    def network(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {name: x.numpy()})[0])

    metadata = session.get_modelmeta().custom_metadata_map
    return network, _fixed(inputs[0].shape), metadata.get(EMBEDDED, "")


def _providers(there: Sequence[str], device: str) -> list[str | tuple[str, dict[str, str]]]:
    """Where onnxruntime computes, the first choice first.

    Args:
        there: what it was built with.
        device: as `panas.runtime.device` names it.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or CUDA not in there:
        return [CPU]
    options = {
        "device_id": number or "0",
        "use_tf32": "0",  # whole float32
        "cudnn_conv_algo_search": "HEURISTIC",  # no trial of kernels, which may vary
    }
    return [(CUDA, options), CPU]


def _torchvision(
    architecture: str, path: Path, content: bytes, device: str
) -> tuple[nn.Module, None, str]:
    from torchvision.models import get_model, list_models

    if architecture not in list_models():
        raise BadInput(
            f"expected an architecture of torchvision, as resnet18, got {architecture!r:.80}; "
            "check the name before the colon"
        )
    network = get_model(architecture, weights=None)
    names = [name for name in CLASSIFIERS if hasattr(network, name)]
    if not names:
        raise BadInput(f"expected a network for classes, got {architecture}; choose another")
    setattr(network, names[0], nn.Identity())
    state = _weights(path, content)
    kept = {k: v for k, v in state.items() if not k.startswith(f"{names[0]}.")}
    network.load_state_dict(kept)
    return network.eval().requires_grad_(False).to(device), None, ""


def _weights(path: Path, content: bytes) -> Mapping[str, Tensor]:
    """Tensors by name; nothing is unpickled."""
    if path.suffix.lower() == ".safetensors":
        from safetensors.torch import load

        return load(content)
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise BadInput(
            f"expected a state dictionary in {path}, got another object; save network.state_dict()"
        )
    return state
