"""A training that is the same for all sites: done once where they share a folder, read elsewhere.

It goes on in parts, each by whoever comes first; whoever comes meanwhile waits or does something
else (`Busy`). What is kept follows from the fields of `CommonTraining` alone: it has the same
bytes, whoever made it. A process that dies loses one part, and the next one goes on.

Privacy: what is kept depends on the samples, the answers and the weights that are given. All of
them must be public, or covered by what was charged before, and none a site's own.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.runtime.seeds import one_thread, stream
from panas.runtime.store import exclusive, read_json, read_tensors, write_json, write_tensors
from panas.training.distillation import Change, SoftSamples, student_trainer
from panas.training.last_layer import averaged_maps
from panas.training.sgd import OptimizerConfig

PARTS = 8
"""Of a training. Processes take turns at them: three trainings keep two cores busy to the end."""

LEFT = "epochs left"  # in the metadata of a training that is not yet over

Weights = Mapping[str, Tensor]
"""Of bottom ("0.") and head ("1."), as `nn.Sequential` of both names them."""


@dataclass(frozen=True, kw_only=True)
class CommonTraining:
    """All that decides a training; nothing of it is a site's."""

    genome: Genome
    spec: NetworkSpec
    taught: SoftSamples
    config: OptimizerConfig
    seed: int  # of the run
    device: str
    changed: Change | None = None  # how inputs are shown
    folder: Path  # common to those who share it
    origin: str = ""  # stands for all that decides `begin`
    begin: Callable[[], Weights] | None = None  # where the weights start; None, or {}: drawn anew

    def weights(self, *, wait: bool = True) -> dict[str, Tensor]:
        """The weights after the training, read if somebody has trained; they may not be finite.

        Args:
            wait: for another process that is at it; else that is `Busy`.
        """
        while self.left:
            self.go_on(wait=wait)
        return read_tensors(self._path)[0]

    @property
    def left(self) -> float:
        """The share of the training that is left: 1 before it begins, 0 after its end."""
        if not self._path.is_file():
            return 1.0
        epochs = int(read_tensors(self._path)[1].get(LEFT, 0))
        return epochs / max(1, self.config.epochs)

    def go_on(self, *, wait: bool = True) -> None:
        """Train for one part, unless the end is reached; see `weights`."""
        with exclusive(self._path, wait=wait):
            if self.left:
                self._train_part()

    def maps(self) -> Float[Tensor, "n c"]:
        """Averaged maps of what was taught, by these weights: computed once for all sites."""
        path = self.folder / f"maps-{self.key}.safetensors"
        weights = self.weights()
        with exclusive(path):
            if not path.is_file():
                bottom, head = self.spec.network(self.genome, stream(self.seed), self.device)
                load(bottom, head, weights)
                write_tensors(path, {"maps": averaged_maps(bottom, self.taught.samples)}, {})
            return read_tensors(path)[0]["maps"]

    @cached_property
    def key(self) -> str:
        """Stands for all of it but the folder."""
        decided = {
            "genome": str(self.genome),
            "spec": repr(self.spec),
            "taught": self.taught.digest,
            "config": repr(self.config),
            "training": f"{self.seed}, {self.device}",
            "changed": self.changed,
            "origin": self.origin,
        }
        content = json.dumps(decided, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    @property
    def _path(self) -> Path:
        return self.folder / f"student-{self.key}.safetensors"

    def _train_part(self) -> None:
        rng = stream(self.seed, "common student", str(self.genome), self.origin)
        begun = self._path.is_file()
        start = self.begin() if self.begin and not begun else {}
        bottom, head = self.spec.network(self.genome, rng, self.device)
        if start:
            load(bottom, head, start)
        config = replace(self.config, train_head=self.spec.head_moves)
        trainer = student_trainer(
            *(bottom, head, self.taught),
            config=config,
            rng=rng,
            changed=self.changed and (self.changed, self.seed),
        )
        if begun:
            trainer.resume(read_tensors(self._path)[0])
        with one_thread():  # sums over threads differ in their last bits
            trainer.run(min(config.epochs, trainer.epochs + math.ceil(config.epochs / PARTS)))
        left, about = config.epochs - trainer.epochs, {"genome": str(self.genome)}
        if left:
            write_tensors(self._path, trainer.state(), about | {LEFT: str(left)})
        else:
            write_tensors(self._path, nn.Sequential(bottom, head).state_dict(), about)


def load(bottom: Bottom, head: Head, weights: Weights) -> None:
    """Put weights into a network of the same genome and spec, in place.

    Args:
        bottom: takes its part.
        head: takes its part.
        weights: by name, as the training has left them.
    """
    nn.Sequential(bottom, head).load_state_dict(dict(weights))


def want(folder: Path, genome: Genome) -> None:
    """Note in the common folder that a site will want a genome's training; not which site."""
    text = str(genome)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = folder / f"wanted-{name}.json"
    with exclusive(path):
        if not path.is_file():
            write_json(path, {"genome": text})


def wanted(folder: Path) -> list[str]:
    """Texts of the genomes that sites will want, in an order that is the same for all."""
    return [str(read_json(path)["genome"]) for path in sorted(folder.glob("wanted-*.json"))]
