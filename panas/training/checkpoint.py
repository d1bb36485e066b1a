"""One trained network as a file: weights in safetensors, and all it takes to build it again."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from panas.architecture.blocks import BlockType
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.batches import batches_of, is_picture
from panas.data.facts import Facts, fit
from panas.data.load import unlabelled
from panas.data.samples import Samples
from panas.features.encoders.trunk import Trunk, restored
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, under, write_tensors


def save_network(
    path: Path,
    bottom: Bottom,
    head: Head,
    *,
    genome: Genome,
    spec: NetworkSpec,
    notes: dict[str, Any],
) -> None:
    """Write bottom and head to a file, with what builds them again.

    Args:
        path: a .safetensors file; its folder is there.
        bottom: of `genome` and `spec`, on any device.
        head: of `spec`.
        genome: the architecture; a custom block is saved by its text.
        spec: shape, width and classes.
        notes: JSON-able; `Facts.to_json` of its data as "facts" lets the network name classes and
            read raw data.
    """
    tensors, about = network_record(bottom, head, genome, spec, notes)
    write_tensors(path, tensors, {"network": json.dumps(about)})


def network_record(
    bottom: Bottom,
    head: Head,
    genome: Genome,
    spec: NetworkSpec,
    notes: Mapping[str, Any],
    trunk: Trunk | None = None,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A network as its weights and JSON; `network_of` builds it again.

    Args:
        bottom: of `genome` and `spec`, on any device.
        head: of `spec`.
        genome: the architecture; a custom block is noted by its text.
        spec: shape, width and classes.
        notes: JSON-able, as for `save_network`.
        trunk: layers of an encoder that make what the bottom reads of pictures, if it needs any.
    """
    tensors = nn.ModuleDict({"bottom": bottom, "head": head}).state_dict()
    if trunk is not None:
        tensors |= {f"trunk.{name}": values for name, values in trunk.packed().items()}
    classes, width = head.linear.weight.shape
    return tensors, {
        "genome": str(genome),
        "shape": spec.shape,
        "norm": spec.norm,
        "width": width,
        "classes": classes,
        "unit": bottom.unit,
        "notes": dict(notes),
        **({} if trunk is None else {"trunk": trunk.to_json()}),
    }


class Classifier(ABC):
    """What tells classes of images or rows, and knows what is public of such data.

    `predict`, `predict_proba` and `classes_` are named as scikit-learn's.
    """

    notes: Mapping[str, Any]

    @property
    def facts(self) -> Facts:
        """Class names and preprocessing; BadInput if the file has none."""
        if "facts" not in self.notes:
            raise BadInput(
                "expected a network saved with what is public of its data, got one without; call "
                "`network` on inputs in [-1, 1]"
            )
        return Facts.from_json(self.notes["facts"])

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name an output."""
        return self.facts.class_names

    @abstractmethod
    def probabilities_of(
        self, samples: Samples | Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n classes"]:
        """Probability of each class of samples, or of network inputs in [-1, 1]."""

    @torch.no_grad()
    def probabilities(self, data: Any) -> Float[Tensor, "n classes"]:
        """Probability of each class for images or rows as `panas.data.load` takes, or for those at
        the path of a table, an archive or a folder (`panas.data.batches`)."""
        if isinstance(data, str | Path) and (self.facts.columns or not is_picture(data)):
            every = batches_of(str(data), self.facts)
            return torch.cat([self.probabilities_of(batch.samples) for batch in every])
        return self.probabilities_of(fit(unlabelled(data, self.facts), self.facts))

    def predict(self, data: Any) -> tuple[str, ...]:
        """The most probable class of each image or row, by name; `data` as for `probabilities`."""
        return self.names_of(self.probabilities(data))

    def names_of(self, probabilities: Float[Tensor, "n classes"]) -> tuple[str, ...]:
        """The most probable class of each row, by name."""
        names = self.class_names
        return tuple(names[i] for i in probabilities.argmax(dim=1).tolist())

    def predict_proba(self, data: Any) -> Float[np.ndarray, "n classes"]:
        """`probabilities` as a numpy array; column i is of `classes_[i]`, as in scikit-learn."""
        return self.probabilities(data).numpy()

    @property
    def classes_(self) -> np.ndarray:
        """`class_names` as a numpy array of texts, as in scikit-learn."""
        return np.array(self.class_names)


@dataclass(frozen=True)
class SavedNetwork(Classifier):
    """A network as its file holds it; its parts are in evaluation mode."""

    bottom: Bottom
    head: Head
    genome: Genome
    spec: NetworkSpec
    notes: Mapping[str, Any]
    trunk: Trunk | None = None  # makes what the bottom reads of a picture; None: the picture itself

    @property
    def network(self) -> nn.Sequential:
        """All of it as one module: images in [-1, 1] to logits."""
        return nn.Sequential(*([self.trunk] if self.trunk else []), self.bottom, self.head)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of an image."""
        return self.facts.shape if self.trunk else self.spec.shape

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.spec.classes

    def probabilities_of(
        self, samples: Samples | Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n classes"]:
        """Probability of each class of samples, or of network inputs in [-1, 1]."""
        x = samples if isinstance(samples, Tensor) else samples.inputs()
        return self.network(x).softmax(dim=1)


def write_network(path: Path, saved: SavedNetwork) -> None:
    """Write a whole network, with its trunk, to a file that `load_network` reads."""
    s = saved
    tensors, about = network_record(s.bottom, s.head, s.genome, s.spec, s.notes, s.trunk)
    write_tensors(path, tensors, {"network": json.dumps(about)})


def load_network(path: str | Path, blocks: Sequence[BlockType] = ()) -> SavedNetwork:
    """Read what `save_network` wrote; `blocks` are custom ones that its genome may name.

    BadInput if the file is missing, damaged, or no network of this project.
    """
    tensors, metadata = read_tensors(Path(path))
    if "network" not in metadata:
        raise BadInput(
            f"expected a network saved by panas at {path}, got another safetensors file; give one "
            "of a run's models/"
        )
    return network_of(json.loads(metadata["network"]), tensors, blocks)


def network_of(
    about: Mapping[str, Any], tensors: Mapping[str, Tensor], blocks: Sequence[BlockType] = ()
) -> SavedNetwork:
    """The network that `network_record` told of.

    Args:
        about: the JSON of `network_record`.
        tensors: its weights, by name.
        blocks: custom blocks that its genome may name.
    """
    spec = NetworkSpec(
        shape=tuple(about["shape"]),
        classes=about["classes"],
        width=about["width"],
        norm=about["norm"],
        unit=about["unit"],
    )
    genome = Genome.parse(about["genome"], blocks)
    bottom, head = spec.bottom(genome), Head(spec.width, spec.classes)
    trunk = under(tensors, "trunk.")
    own = {k: v for k, v in tensors.items() if not k.startswith("trunk.")}
    nn.ModuleDict({"bottom": bottom, "head": head}).load_state_dict(own)
    first = restored(about["trunk"], trunk) if "trunk" in about else None
    return SavedNetwork(bottom.eval(), head.eval(), genome, spec, about["notes"], first)
