"""Learning what two views have in common, and the search for the network that learns it best.

The loss is SimCLR's: of all other views of a batch, the one of the same thing is to be nearest.
Source: Chen and others 2020, equation 1.

Every epoch draws its own pictures from its number. So training goes on after a kill where the
last epoch ended, and nothing depends on where it was cut.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.encoder.network import GRID, PROJECTED, EncoderNetwork, space
from experiments.encoder.tasks import Task, by_vectors
from experiments.encoder.views import GROUP, Bank, pairs
from panas.architecture.genome import Genome
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenerationRecord
from panas.evolution.toolbox import SearchProblem
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal

Tell = Callable[[str], None]
LAST = "training"
HIDDEN = 256  # of the projection


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a network learns."""

    epochs: int
    steps: int = 50  # of an epoch
    groups: int = 4  # of `views.GROUP` pairs, of a step
    bank: int = 3000  # fields and masks of an epoch
    rate: float = 3e-3  # of AdamW, along a cosine
    decay: float = 1e-4
    temperature: float = 0.1
    seed: int = 0


SHORT = Plan(epochs=1, steps=24, bank=2000)
"""The training that gives a genome its fitness."""

SEARCH = EvolutionConfig(
    population=5, generations=2, initial=5, offspring=3, rungs=(), seeding=1, screening=10
)


class Learner(nn.Module):
    """A network, and what projects its vectors for the loss.

    Args:
        genome: of the network.
        seed: of its first weights.
    """

    def __init__(self, genome: Genome, seed: int) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.network = EncoderNetwork(genome, g)
        outputs = self.network.outputs
        first, last = nn.Linear(outputs, HIDDEN, bias=False), nn.Linear(HIDDEN, PROJECTED)
        for layer in (first, last):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=g)
        nn.init.zeros_(last.bias)
        self.project = nn.Sequential(first, nn.BatchNorm1d(HIDDEN), nn.ReLU(), last)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.parameters()).device

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n k"]:
        """Unit vectors that the loss compares."""
        return F.normalize(self.project(self.network(x)), dim=1)


def contrast(
    a: Float[Tensor, "n k"], b: Float[Tensor, "n k"], temperature: float
) -> Float[Tensor, ""]:
    """The loss of pairs of unit vectors.

    Args:
        a: first views.
        b: second views.
        temperature: that similarities are divided by.
    """
    z = torch.cat([part.view(-1, GROUP, part.shape[1]) for part in (a, b)], 1)
    similar = z @ z.transpose(1, 2) / temperature
    similar = similar.masked_fill(torch.eye(2 * GROUP, device=z.device).bool(), -torch.inf)
    partner = torch.arange(2 * GROUP, device=z.device).roll(GROUP).repeat(len(z))
    return F.cross_entropy(similar.flatten(0, 1), partner)


def epoch(learner: Learner, optimiser: torch.optim.Optimizer, number: int, plan: Plan) -> float:
    """One epoch; its mean loss.

    Args:
        learner: is changed.
        optimiser: of its parameters.
        number: of the epoch, from 0 on.
        plan: how it learns.
    """
    g = torch.Generator().manual_seed(7919 * plan.seed + number + 1)
    bank, total, steps = Bank.drawn(plan.bank, g), 0.0, plan.epochs * plan.steps
    learner.train()
    for i in range(plan.steps):
        step = number * plan.steps + i
        warm = min(1.0, (step + 1) / min(100, steps / 5))
        for group in optimiser.param_groups:
            group["lr"] = plan.rate * warm * 0.5 * (1 + math.cos(math.pi * step / steps))
        views = torch.cat(pairs(bank, plan.groups, g)) * 2 - 1
        views = views.to(learner.device, memory_format=torch.channels_last)
        a, b = learner(views).chunk(2)
        loss = contrast(a, b, plan.temperature)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total / plan.steps


def fresh(genome: Genome, plan: Plan, device: str) -> tuple[Learner, torch.optim.Optimizer]:
    """A learner at its beginning, and its optimiser.

    Args:
        genome: of its network.
        plan: seed, rate and decay.
        device: where it learns.
    """
    learner = Learner(genome, plan.seed).to(memory_format=torch.channels_last).to(device)
    return learner, torch.optim.AdamW(learner.parameters(), lr=plan.rate, weight_decay=plan.decay)


def trained(
    genome: Genome, plan: Plan, folder: Path, tell: Tell, device: str = "cpu"
) -> EncoderNetwork:
    """The network after all epochs; goes on from the last one that the folder has.

    Args:
        genome: of the network.
        plan: how it learns.
        folder: of checkpoints.
        tell: told of each epoch.
        device: where it learns; pictures are drawn on the CPU, the same everywhere.
    """
    learner, optimiser = fresh(genome, plan, device)
    path, done = folder / f"{LAST}.pt", 0
    said = {"genome": str(genome), **asdict(plan)}
    if path.is_file():
        state = torch.load(path, weights_only=True, map_location=device)
        if state["said"] != said:
            raise SystemExit(f"expected a training of {said} in {path}, got {state['said']}")
        learner.load_state_dict(state["learner"])
        optimiser.load_state_dict(state["optimiser"])
        done = state["done"]
    for number in range(done, plan.epochs):
        loss = epoch(learner, optimiser, number, plan)
        state = {"learner": learner.state_dict(), "optimiser": optimiser.state_dict()}
        torch.save({**state, "done": number + 1, "said": said}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        tell(f"epoch {number + 1} of {plan.epochs}: loss {loss:.3f}")
    return learner.network.cpu().eval()


def vectors(network: nn.Module, x: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n e"]:
    """A network's vectors of pictures in [0, 1]."""
    network.eval()
    device = next(network.parameters()).device
    with torch.inference_mode():
        parts = [network((part * 2 - 1).to(device)).cpu() for part in x.split(250)]
    return torch.cat(parts)


@dataclass(frozen=True)
class ProbeFitness:
    """Mean accuracy on held-out tasks of a network after a short training."""

    tasks: list[Task]
    plan: Plan
    device: str = "cpu"

    def __call__(self, genome: Genome) -> float:
        """The fitness of a genome."""
        learner, optimiser = fresh(genome, self.plan, self.device)
        for number in range(self.plan.epochs):
            epoch(learner, optimiser, number, self.plan)
        scores = [by_vectors(vectors(learner.network, t.x), t.y) for t in self.tasks]
        return sum(scores) / len(scores)


def searched(tasks: list[Task], folder: Path, tell: Tell, device: str = "cpu") -> EvolutionResult:
    """The search; goes on from what the folder has.

    Args:
        tasks: that decide.
        folder: of its journal.
        tell: told of each generation.
        device: where candidates learn.
    """

    def said(record: GenerationRecord) -> None:
        tell(f"generation {record.generation}: {record.best:.4f} {record.best_genome}")

    problem = SearchProblem(space(), ProbeFitness(tasks, SHORT, device))
    header = {"plan": asdict(SHORT), "search": asdict(SEARCH), "grid": GRID}
    with open_journal(folder / "search.jsonl", header) as journal:
        execution = Execution[GenerationRecord](
            journal=journal,
            on_progress=said,
            on_candidate=lambda i, n: tell(f"candidate {i} of {n}"),
        )
        rng = np.random.default_rng(SHORT.seed)
        return evolve(problem, config=SEARCH, rng=rng, execution=execution)
