"""What `panas.search` does: one data set in, its own architecture and trained network out.

Source: DPFNAS, algorithm 1, first half.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from panas.architecture.cost import Cost, Size, cost, size_of
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.facts import Facts
from panas.data.samples import Samples, digest
from panas.data.splits import split
from panas.evolution.fitness import Fitness, TrainingFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenerationRecord
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.seeds import one_thread, stream
from panas.runtime.store import write_json
from panas.training.checkpoint import save_network
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What a search found: the best genome and its trained network."""

    genome: Genome
    bottom: Bottom = field(repr=False)
    head: Head = field(repr=False)
    spec: NetworkSpec
    fitness: float
    """Validation accuracy, by which it was chosen."""
    accuracy: float
    """Accuracy on test samples that chose nothing."""
    cost: Cost
    result: EvolutionResult = field(repr=False)
    """The whole search: every generation, every candidate, the Pareto front."""
    facts: Facts | None = None  # class names and preprocessing

    @property
    def network(self) -> nn.Sequential:
        """Bottom and head as one module: images in [-1, 1] to logits."""
        return nn.Sequential(self.bottom, self.head)

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON, without weights."""
        return {
            "genome": str(self.genome),
            "fitness": self.fitness,
            "accuracy": self.accuracy,
            "cost": asdict(self.cost),
            "evaluations": self.result.evaluations,
            "passes": self.result.passes,
            "front": [[str(genome), *rest] for genome, *rest in self.result.front],
        }

    def save(self, folder: Path) -> None:
        """Write the network and the result; the result comes last and says that all is there."""
        notes: dict[str, Any] = {"fitness": self.fitness, "accuracy": self.accuracy}
        if self.facts:
            notes["facts"] = self.facts.to_json()
        save_network(
            folder / "network.safetensors",
            self.bottom,
            self.head,
            genome=self.genome,
            spec=self.spec,
            notes=notes,
        )
        write_json(folder / "best.json", self.to_json())


@dataclass(frozen=True, kw_only=True)
class NetworkSearch:
    """A search on one data set; the fields are the parameters of `panas.api.search`."""

    samples: Samples
    spec: NetworkSpec
    space: SearchSpace
    config: EvolutionConfig
    optimizer: OptimizerConfig
    fitness: Fitness | None
    size: Size | None
    seed: int
    device: str
    facts: Facts | None = None

    def header(self) -> dict[str, Any]:
        """What decides the search, as a log notes it."""
        own = self.fitness
        return {
            "search": "architecture",
            "data": digest(self.samples),
            "seed": self.seed,
            "width": self.spec.width,
            "space": repr(self.space),
            "config": repr(self.config),
            "training": repr(self.optimizer),
            "fitness": "accuracy" if own is None else repr(getattr(own, "__name__", own)),
            "size": self.size,
        }

    def run(self, execution: Execution[GenerationRecord]) -> SearchResult:
        """Search, and train the best."""
        rng, y = stream(self.seed, "split"), self.samples.y
        s = split(y, search=0.0, validation=1 / 7, test=1 / 7, rng=rng)
        train, validation, test = (self.samples.take(p) for p in (s.train, s.validation, s.test))
        spec, seed = self.spec, self.seed
        training = TrainingFitness(train, validation, spec, self.optimizer, seed, 0, self.device)
        result = evolve(
            SearchProblem(
                self.space, self.fitness or training, size_of(spec, self.size), prior_of(spec.shape)
            ),
            config=self.config,
            rng=stream(seed, "client", 0, "search"),
            execution=execution,
        )
        if all(candidate.failed for candidate in result.history):
            raise BadInput(
                f"expected a candidate that can be scored, got {len(result.history)} failures, the "
                f"first with {result.history[0].error}; mend that, and begin in a new folder"
            )
        with one_thread():  # as when it was scored
            bottom, head = training.trained(result.best)
        return SearchResult(
            genome=result.best,
            bottom=bottom,
            head=head,
            spec=spec,
            fitness=result.fitness,
            accuracy=accuracy(bottom, head, test),
            cost=cost(result.best, spec),
            result=result,
            facts=self.facts,
        )
