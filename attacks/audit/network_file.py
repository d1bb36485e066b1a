"""Read a network from a file that was written elsewhere, and see that it can be asked.

| file | read as |
|---|---|
| `.safetensors` | a network that panas saved |
| `.pt2` | a program of `torch.export`, images (b, c, h, w) to logits (b, classes), b dynamic |

**Loading a .pt2 can run code that is in it**, as torch unpickles parts of it and evaluates others:
audit only files that you trust. A .safetensors of panas holds numbers and cannot. Formats that are
pickles altogether (.pt, .pth) are refused. Images come in [-1, 1], which the network sees as
((x + 1) / 2 - mean) / std; labels are indices of its outputs.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from attacks.inference.membership import Query
from panas.architecture.genome import Genome
from panas.data.files.raw import one_line
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.store import CHECKSUM, parse_tensors
from panas.training.checkpoint import load_network
from panas.training.evaluate import EVALUATION_BATCH

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")


def load_query(
    model: Path, samples: Samples, mean: Sequence[float], std: Sequence[float]
) -> tuple[Query, Genome | None, int]:
    """A way to ask the network of a file, its genome if it is one of panas, and its outputs.

    Args:
        model: the file. Loading a .pt2 can run code that is in it.
        samples: at least one, to try it with: one image, and as large a batch as it will be asked.
        mean: of its preprocessing, see `audit_model`.
        std: of its preprocessing.

    Raises:
        BadInput: if the file is none of the two kinds, or refuses the samples, or does not answer
            with logits.

    """
    c = samples.shape[0]
    fine = all(math.isfinite(v) for v in (*mean, *std)) and all(s > 0 for s in std)
    if any(len(v) not in (1, c) for v in (mean, std)) or not fine:
        raise BadInput(
            f"expected one finite mean and one std above 0, or {c} each, got {list(mean)} and "
            f"{list(std)}; give what the network was trained with"
        )
    network, genome = _load(model, samples.shape)
    shift, scale = (torch.tensor(v, dtype=torch.float32).view(1, -1, 1, 1) for v in (mean, std))

    def ask(x: Tensor) -> object:
        with torch.no_grad():
            return network(((x + 1) / 2 - shift) / scale)

    outputs = {
        _outputs_of(model.name, ask, samples.inputs(torch.arange(n)))
        for n in (1, min(EVALUATION_BATCH, len(samples)))
    }
    if len(outputs) > 1:
        raise BadInput(
            f"expected {model.name} to answer any batch with as many logits a sample, got "
            f"{sorted(outputs)}; export it with a dynamic batch"
        )
    return lambda x: cast(Tensor, ask(x)), genome, outputs.pop()


def _load(
    model: Path, shape: tuple[int, int, int]
) -> tuple[Callable[[Tensor], object], Genome | None]:
    """The network of a file, and its genome if it is one of panas."""
    kinds = "a .safetensors file of panas or a .pt2 file of torch.export"
    if model.suffix.lower() in PICKLES:
        raise BadInput(
            f"expected {kinds}, got {model}: pickled formats are refused, as they run whatever "
            "they hold; export it with torch.export.save, or as safetensors of panas"
        )
    if model.suffix not in (".safetensors", ".pt2") or not model.is_file():
        raise BadInput(
            f"expected {kinds} at {model}, got another or none; export it with torch.export.save"
        )
    if model.suffix == ".pt2":
        try:
            with _quiet():
                return torch.export.load(model).module(), None
        except Exception as error:  # whatever torch makes of a damaged file
            raise BadInput(
                f"expected a program of torch.export at {model}, got: {one_line(error)}; "
                "save it again"
            ) from error
    try:
        _, notes = parse_tensors(model.read_bytes())
    except ValueError as error:
        raise BadInput(
            f"expected a network saved by panas at {model}, got no readable safetensors file; "
            "copy it again"
        ) from error
    if not {"network", CHECKSUM} <= notes.keys():
        raise BadInput(
            f"expected a network saved by panas at {model}, got another safetensors file, which "
            "holds no architecture; export the network with torch.export.save"
        )
    saved = load_network(model)
    if saved.spec.shape != shape:
        raise BadInput(
            f"expected images {saved.spec.shape} for {model.name}, got {shape}; "
            "give the data that it was trained on"
        )
    return nn.Sequential(saved.bottom, saved.head).eval(), saved.genome


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's own accounts of a file that it cannot load: our error is one line."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch._export")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _outputs_of(name: str, ask: Callable[[Tensor], object], x: Tensor) -> int:
    """The number of logits that a network answers each image of a batch with."""
    try:
        answer = ask(x)
    except Exception as error:  # shapes, types, fixed batch sizes: each in torch's own words
        raise BadInput(
            f"expected {name} to take images {tuple(x.shape[1:])} in batches of any size, got of "
            f"{len(x)}: {one_line(error)}; export it with a dynamic batch"
        ) from error
    given = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if not isinstance(answer, Tensor) or answer.ndim != 2 or len(answer) != len(x):
        raise BadInput(
            f"expected {name} to answer {len(x)} images with one tensor of logits ({len(x)}, "
            f"classes), got {given}; export a network that gives logits alone"
        )
    return int(answer.shape[1])
