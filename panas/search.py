"""One client's search for its architecture (DPFNAS, algorithm 1, first half).

What the search looks at decides what it costs: `panas.search_data`. `search_without_data` looks
at noise only and costs nothing. Scores on private samples that are noised and paid for:
`panas.selection`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch

from panas.data.dataset import Samples, concat
from panas.evolution import EvolutionConfig, EvolutionResult, GenerationRecord, evolve
from panas.genome import Genome
from panas.network import Blueprint, Bottom, Head
from panas.proxies import score
from panas.search_data import SearchData
from panas.seeds import stream, torch_generator
from panas.selection import Algorithm
from panas.space import SearchSpace
from panas.training import Optimisation, accuracy, fit


def search_architecture(
    data: SearchData,
    *,
    blueprint: Blueprint,
    space: SearchSpace,
    config: EvolutionConfig,
    how: Optimisation,
    seed: int,
    client: int,
    device: torch.device,
    algorithm: Algorithm = "genetic",
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    """Search a client's architecture; fitness is validation accuracy after a short training."""
    train = concat([data.warm, data.train]) if len(data.warm) else data.train

    def fitness(genome: Genome) -> float:
        networks = trained(genome, train, blueprint, how, seed, client, device)
        return accuracy(*networks, data.validation)

    rng = stream(seed, "client", client, "search")
    return explore(space, fitness, config, algorithm, rng, on_generation)


def search_without_data(
    *,
    blueprint: Blueprint,
    space: SearchSpace,
    config: EvolutionConfig,
    seed: int,
    client: int,
    algorithm: Algorithm = "genetic",
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    """Search a client's architecture by `panas.proxies.score`, which looks at noise alone.

    Privacy: reads no sample of anybody's; epsilon 0. A genome scores the same for all clients.
    """

    def fitness(genome: Genome) -> float:
        return score(genome, blueprint, stream(seed, "data-free", str(genome)))

    rng = stream(seed, "client", client, "search")
    return explore(space, fitness, config, algorithm, rng, on_generation)


def explore(
    space: SearchSpace,
    fitness: Callable[[Genome], float],
    config: EvolutionConfig,
    algorithm: Algorithm,
    rng: np.random.Generator,
    on_generation: Callable[[GenerationRecord], None] | None = None,
    map: Callable[[Callable[[Genome], float], list[Genome]], Iterable[float]] = map,
) -> EvolutionResult:
    """The genetic search, or the best of as many random genomes as it would evaluate at most."""
    if algorithm == "random":
        config = replace(
            config, population=config.population * (config.generations + 1), generations=0
        )
    return evolve(space, fitness, config=config, rng=rng, on_generation=on_generation, map=map)


def trained(
    genome: Genome,
    samples: Samples,
    blueprint: Blueprint,
    how: Optimisation,
    seed: int,
    client: int,
    device: torch.device,
) -> tuple[Bottom, Head]:
    """A genome's network after a short training without privacy.

    It is seeded by the genome, so that it comes out the same whenever and wherever it is trained.
    """
    rng = stream(seed, "client", client, "fitness", str(genome))
    generator = torch_generator(rng)
    bottom = blueprint.bottom(genome, generator).to(device)
    head = blueprint.head(generator).to(device)
    fit(bottom, head, samples, how=how, rng=rng, train_head=blueprint.head_moves)
    return bottom, head
