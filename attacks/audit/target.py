"""A network that was trained elsewhere, and the samples to ask it about."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from attacks.audit.membership import NO_CLAIM, PrivacyClaim
from attacks.audit.network_file import load_query
from attacks.inference.membership import Query, logits
from attacks.threats.observation import MIN_PUBLIC
from panas.architecture.genome import Genome
from panas.data.members import load_members
from panas.data.samples import Samples, concat
from panas.runtime.errors import BadInput
from panas.training.evaluate import EVALUATION_BATCH

ACCURACY_TOLERANCE = 0.02
"""By how much a network's accuracy on its training samples may differ from what is known of it."""


@dataclass(frozen=True, kw_only=True)
class ExternalModel:
    """A network that was trained elsewhere, and what is known of it.

    Attributes:
        file: its weights. Loading a .pt2 can run code that is in it.
        data: what it was trained on: an .npz archive, a .csv table or a folder of pictures.
        others: like samples that it was not trained on; None: the other parts of the archive.
        label: name of a table's label column.
        mean: that the network's own preprocessing takes off values in [0, 1], one or one a channel.
        std: that it divides by.
        accuracy: that it is known to have on what it was trained on, in [0, 1]; another one found
            here means wrong arguments. None: it is not known.
        claim: of its privacy.

    """

    file: Path
    data: str
    others: str | None = None
    label: str | None = None
    mean: Sequence[float] = (0.5,)
    std: Sequence[float] = (0.5,)
    accuracy: float | None = None
    claim: PrivacyClaim = NO_CLAIM


@dataclass(frozen=True, kw_only=True)
class Target:
    """A network that can be asked, and the samples to ask about."""

    query: Query
    genome: Genome | None
    members: Samples
    others: Samples
    public: Samples
    """Half of the others, to learn attacks from."""
    apart: Samples
    """The other half."""
    duplicates: int


def load_target(model: ExternalModel, rng: np.random.Generator) -> Target:
    """Read network and samples, and see that they fit; `rng` halves the others.

    Raises:
        BadInput: if a file cannot be read, there are too few samples, network and samples do not
            match, or the accuracy is another than the known one.

    """
    found = load_members(model.data, model.others, label=model.label)
    members, rest = found.members, found.others
    half = rng.permutation(len(rest))
    if min(len(rest) // 2, len(members)) < MIN_PUBLIC:
        twice = f" besides {found.duplicates} that are among these" * (found.duplicates > 0)
        raise BadInput(
            f"expected at least {2 * MIN_PUBLIC} samples that were not trained on, and "
            f"{MIN_PUBLIC} that were, got {len(rest)} and {len(members)}{twice}; give more"
        )
    probe = concat([s.take(range(min(len(s), EVALUATION_BATCH))) for s in (members, rest)])
    query, genome, classes = load_query(model.file, probe, model.mean, model.std)
    name = model.file.name
    members, rest = (_labelled(s, classes, found.names, name) for s in (members, rest))
    if model.accuracy is not None:
        _check_accuracy(query, members, model.accuracy)
    return Target(
        query=query,
        genome=genome,
        members=members,
        others=rest,
        public=rest.take(half[::2]),
        apart=rest.take(half[1::2]),
        duplicates=found.duplicates,
    )


def _labelled(samples: Samples, outputs: int, names: tuple[str, ...], model: str) -> Samples:
    """The samples, their labels being indices of a network's outputs."""
    if names and len(names) != outputs:
        raise BadInput(
            f"expected as many classes by name as {model} has outputs, {outputs}, got {len(names)} "
            f"({', '.join(names)[:100]}); give labels as numbers, the indices of its outputs"
        )
    wrong = samples.y[(samples.y < 0) | (samples.y >= outputs)]
    if len(wrong):
        raise BadInput(
            f"expected labels from 0 to {outputs - 1}, the indices of the {outputs} outputs of "
            f"{model}, got {int(wrong[0])}; number them as in its training"
        )
    return replace(samples, classes=outputs)


def _check_accuracy(query: Query, members: Samples, known: float) -> None:
    """Refuse a network that is not what is known of it."""
    right = logits(query, members).argmax(1) == members.y
    measured = float(right.double().mean())
    if not abs(measured - known) <= ACCURACY_TOLERANCE + 1e-9:
        raise BadInput(
            f"expected accuracy {known:g} on what it was trained on, got {measured:.3g}; check "
            "--mean, --std and the labels"
        )
