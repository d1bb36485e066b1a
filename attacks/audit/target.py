"""A network that was trained elsewhere, read from its file, and the samples to query it with.

| file | read as |
|---|---|
| `.safetensors` | a network that panas saved |
| `.pt2` | a program of `torch.export`, images (b, c, h, w) to logits (b, classes), b dynamic |

**Loading a .pt2 can run code that is in it**, as torch unpickles parts of it and evaluates others;
a .safetensors of panas cannot. Pickles (.pt, .pth) are refused. One output (b, 1) is the logit of
class 1 of two. Images come in [-1, 1], which the network sees as ((x + 1) / 2 - mean) / std; labels
are indices of its outputs. A network that panas saved has scales and classes of its own.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attacks.audit.membership import NO_CLAIM, PrivacyClaim
from attacks.inference.membership import Query, logits
from attacks.threats.observation import MIN_PUBLIC
from panas.architecture.genome import Genome
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.data.files.raw import one_line
from panas.data.members import load_members
from panas.data.samples import Samples, concat
from panas.runtime.errors import BadInput, quiet
from panas.runtime.store import CHECKSUM, parse_tensors
from panas.training.checkpoint import SavedNetwork, load_network
from panas.training.evaluate import EVALUATION_BATCH

ACCURACY_TOLERANCE = 0.02
"""By how much a network's accuracy on its training samples may differ from what is known of it."""

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")


@dataclass(frozen=True, kw_only=True)
class ExternalModel:
    """A network that was trained elsewhere, and what is known of it."""

    file: Path
    """Its weights. Loading a .pt2 can run code that is in it."""
    data: str
    """What it was trained on: an .npz archive, a table or a folder of pictures."""
    others: str | None = None
    """Like samples that it was not trained on; None: the other parts of the archive."""
    label: str | None = None
    """Name of a table's label column."""
    mean: Sequence[float] = (0.5,)
    """That its own preprocessing takes off values in [0, 1], one or one a channel."""
    std: Sequence[float] = (0.5,)
    """That it divides by."""
    accuracy: float | None = None
    """Known on what it was trained on, in [0, 1]: another one means wrong arguments."""
    claim: PrivacyClaim = NO_CLAIM

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", Path(self.file))
        object.__setattr__(self, "data", str(self.data))


@dataclass(frozen=True, kw_only=True)
class Target:
    """A network that can be asked, and the samples to ask about."""

    query: Query
    genome: Genome | None
    members: Samples
    others: Samples
    public: Samples  # half of the others, to learn attacks from
    apart: Samples  # the other half
    duplicates: int
    columns: tuple[Column, ...] = ()  # of a table, where the network's file says what they are


def load_target(model: ExternalModel, rng: np.random.Generator) -> Target:
    """Read network and samples; `rng` halves the others. BadInput where they do not fit."""
    program = _load(model)
    membership = load_members(model.data, model.others, label=model.label, facts=program.facts)
    members, rest = membership.members, membership.others
    half = rng.permutation(len(rest))
    if min(len(rest) // 2, len(members)) < MIN_PUBLIC:
        twice = f" besides {membership.duplicates} that are among these" * (
            membership.duplicates > 0
        )
        raise BadInput(
            f"expected at least {2 * MIN_PUBLIC} samples that were not trained on, and "
            f"{MIN_PUBLIC} that were, got {len(rest)} and {len(members)}{twice}; give more"
        )
    probe = concat([s.take(range(min(len(s), EVALUATION_BATCH))) for s in (members, rest)])
    query, classes = _query(model, program, probe)
    name = model.file.name
    members, rest = (_labelled(s, classes, membership.names, name) for s in (members, rest))
    if model.accuracy is not None:
        _check_accuracy(query, members, model.accuracy)
    return Target(
        query=query,
        genome=program.genome,
        members=members,
        others=rest,
        public=rest.take(half[::2]),
        apart=rest.take(half[1::2]),
        duplicates=membership.duplicates,
        columns=program.facts.columns if program.facts else (),
    )


def _labelled(samples: Samples, outputs: int, names: tuple[str, ...], model: str) -> Samples:
    if names and len(names) != outputs:
        raise BadInput(
            f"expected as many classes by name as {model} has outputs, {outputs}, got {len(names)} "
            f"({', '.join(names)[:100]}); give labels as numbers, the indices of its outputs"
        )
    wrong = samples.y[(samples.y < 0) | (samples.y >= outputs)]
    if len(wrong):
        raise BadInput(
            f"expected labels from 0 to {outputs - 1}, the indices of the {outputs} outputs of "
            f"{model}, got others; number them as in its training"
        )
    return replace(samples, classes=outputs)


def _check_accuracy(query: Query, members: Samples, known: float) -> None:
    measured = float((logits(query, members).argmax(1) == members.y).double().mean())
    if not abs(measured - known) <= ACCURACY_TOLERANCE + 1e-9:
        raise BadInput(
            f"expected accuracy {known:g} on what it was trained on, got {measured:.3g}; check "
            "--mean, --std and the labels"
        )


@dataclass(frozen=True)
class _Program:
    network: nn.Module
    saved: SavedNetwork | None = None  # of panas

    @property
    def facts(self) -> Facts | None:
        """Of the data of a network of panas, if it was saved with them."""
        return self.saved.facts if self.saved and "facts" in self.saved.notes else None

    @property
    def genome(self) -> Genome | None:
        return self.saved.genome if self.saved else None


def _query(model: ExternalModel, program: _Program, samples: Samples) -> tuple[Query, int]:
    """A way to ask the network, and its outputs.

    It is tried with one of the samples, and with as large a batch as it will be asked.
    """
    name, saved = model.file.name, program.saved
    if saved and saved.shape != samples.shape:
        raise BadInput(
            f"expected samples of shape {saved.shape} for {name}, got {samples.shape}; "
            "give the data that it was trained on"
        )
    prepared, network = _preprocessing(model, program, samples.shape[0]), program.network
    weights = (p for p in network.parameters() if p.is_floating_point())
    dtype = next((p.dtype for p in weights), torch.float32)

    def ask(x: Tensor) -> object:
        with torch.no_grad():
            answer = network(prepared(x).to(dtype))
        if not isinstance(answer, Tensor):
            return answer
        return (F.pad(answer, (1, 0)) if answer.shape == (len(x), 1) else answer).float()

    outputs = {
        _outputs_of(name, ask, samples.inputs(torch.arange(n)))
        for n in (1, min(EVALUATION_BATCH, len(samples)))
    }
    if len(outputs) > 1:
        raise BadInput(
            f"expected {name} to answer any batch with as many logits a sample, got "
            f"{sorted(outputs)}; export it with a dynamic batch"
        )
    return lambda x: cast(Tensor, ask(x)), outputs.pop()


def _preprocessing(
    model: ExternalModel, program: _Program, channels: int
) -> Callable[[Tensor], Tensor]:
    """What the network sees of images in [-1, 1], or of rows as its facts scale them."""
    mean, std = model.mean, model.std
    if program.facts:
        if (tuple(mean), tuple(std)) != ((0.5,), (0.5,)):
            raise BadInput(
                f"expected no --mean and --std for {model.file.name}, which says by itself how its "
                "data are scaled; leave them out"
            )
        return lambda x: x
    fine = all(math.isfinite(v) for v in (*mean, *std)) and all(s > 0 for s in std)
    if any(len(v) not in (1, channels) for v in (mean, std)) or not fine:
        raise BadInput(
            f"expected one finite mean and one std above 0, or {channels} each, got {list(mean)} "
            f"and {list(std)}; give what the network was trained with"
        )
    shift, scale = (torch.tensor(v, dtype=torch.float32).view(1, -1, 1, 1) for v in (mean, std))
    return lambda x: ((x + 1) / 2 - shift) / scale


def _load(external: ExternalModel) -> _Program:
    model, kinds = external.file, "a .safetensors file of panas or a .pt2 file of torch.export"
    if model.suffix.lower() in PICKLES:
        raise BadInput(
            f"expected {kinds}, got {model}: pickled formats are refused, as they run whatever "
            "they hold; export it with torch.export.save, or as safetensors of panas"
        )
    if model.suffix not in (".safetensors", ".pt2") or not model.is_file():
        raise BadInput(
            f"expected {kinds} at {model}, got another or none; check the path, or export the "
            "network with torch.export.save"
        )
    if model.suffix == ".pt2":
        try:
            # Without torch's own accounts of a file that it cannot load: our error is one line.
            with quiet("torch.export", "torch._export", level=logging.CRITICAL + 1):
                return _Program(torch.export.load(model).module())
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
    return _Program(saved.network.eval(), saved)


def _outputs_of(name: str, ask: Callable[[Tensor], object], x: Tensor) -> int:
    try:
        answer = ask(x)
    except Exception as error:  # shapes, types, fixed batch sizes: each in torch's own words
        raise BadInput(
            f"expected {name} to take samples of shape {tuple(x.shape[1:])} in batches of any "
            f"size, got of {len(x)}: {one_line(error)}; export it with a dynamic batch"
        ) from error
    given = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if not isinstance(answer, Tensor) or answer.ndim != 2 or len(answer) != len(x):
        raise BadInput(
            f"expected {name} to answer {len(x)} samples with one tensor of logits ({len(x)}, "
            f"classes), got {given}; export a network that gives logits alone"
        )
    return int(answer.shape[1])
