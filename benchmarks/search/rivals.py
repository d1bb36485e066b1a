"""What people search architectures with today, each as short as it can be read.

Each is a function (meter, seed) that trains fully until the meter raises `Spent`; the meter keeps
the trace. As people use them, none remembers a genome that it has trained before (the meter may,
for all alike).

| name | is | source |
|---|---|---|
| random | random genomes | Li and Talwalkar 2020 |
| regularised evolution | the oldest dies; the best of a sample is mutated | Real et al. 2019 |
| Optuna TPE | `optuna.samplers.TPESampler`, as it comes | Bergstra et al. 2011 |
| Optuna NSGA-II | `optuna.samplers.NSGAIISampler`, a population of 10 | Deb et al. 2002 |
| plain GA | `panas.evolution.genetic`, as in the paper | DPFNAS, III-A2 |
| ours | `panas.evolution.genetic`, as it comes | |
"""

from collections import deque
from collections.abc import Callable

import optuna

from benchmarks.tabular import Meter, MeteredFitness
from panas.architecture.blocks import Block, PoolBlock
from panas.architecture.genome import Genome
from panas.architecture.operators import mutate, random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.seeds import stream

Rival = Callable[[Meter, int], None]

POPULATION = 10
PLAIN_GA = EvolutionConfig.paper()
OUR_GA = EvolutionConfig(generations=41)  # 211 candidates with the first 6; the plain GA has 210


def random_search(meter: Meter, seed: int) -> None:
    """Train random genomes."""
    rng = stream(seed, "random")
    while True:
        meter.train(random_genome(meter.problem.space, rng))


def regularised_evolution(
    meter: Meter, seed: int, *, population: int = POPULATION, sample: int = 3
) -> None:
    """Mutate the best of a random sample of the population; the oldest makes room for the child."""
    rng, space = stream(seed, "regularised evolution"), meter.problem.space
    alive: deque[tuple[float, Genome]] = deque(maxlen=population)
    while True:
        if len(alive) < population:
            genome = random_genome(space, rng)
        else:
            drawn = rng.choice(population, size=sample, replace=False)
            genome = mutate(space, max((alive[i] for i in drawn), key=lambda a: a[0])[1], rng)
        alive.append((meter.train(genome), genome))


def optuna_tpe(meter: Meter, seed: int) -> None:
    """Optuna's tree-structured Parzen estimator."""
    _optuna(meter, optuna.samplers.TPESampler(seed=seed))


def optuna_nsga2(meter: Meter, seed: int) -> None:
    """Optuna's NSGA-II, of one objective."""
    _optuna(meter, optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed))


def _optuna(meter: Meter, sampler: optuna.samplers.BaseSampler) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = meter.problem.space
    study = optuna.create_study(direction="maximize", sampler=sampler)
    while True:
        trial = study.ask()
        study.tell(trial, meter.train(_genome(space, trial)))


def _genome(space: SearchSpace, trial: optuna.Trial) -> Genome:
    """A length, and a categorical for each place; a pool that may not stand there is mended.

    It becomes the menu's first convolution, at no cost: told as a failure it would cost the
    samplers trials that a user's own code would spare them.
    """
    every: tuple[Block, ...] = (*space.convs, *(PoolBlock(kind) for kind in space.pools))
    menu = {str(b): b for b in every}
    length = trial.suggest_int("length", space.min_blocks, space.max_blocks)
    blocks: tuple[Block, ...] = ()
    for i in range(length):
        block = menu[trial.suggest_categorical(f"block {i}", list(menu))]
        last_chance = i == length - 1 and all(isinstance(b, PoolBlock) for b in blocks)
        if isinstance(block, PoolBlock) and (last_chance or block not in space.menu(blocks)):
            block = space.convs[0]
        blocks += (block,)
    return Genome(blocks)


def plain_ga(meter: Meter, seed: int) -> None:
    """The paper's genetic search: 10 individuals, 20 generations, and no more after them."""
    rng = stream(seed, "plain GA")
    problem = SearchProblem(meter.problem.space, MeteredFitness(meter))
    evolve(problem, config=PLAIN_GA, rng=rng)


def ours(meter: Meter, seed: int) -> None:
    """The project's search as it comes, for as many candidates as the plain GA has at most."""
    rng = stream(seed, "ours")
    space = meter.problem.space
    problem = SearchProblem(space, MeteredFitness(meter), prior=prior_of(space.shape))
    evolve(problem, config=OUR_GA, rng=rng)


OURS, PLAIN = "ours", "plain GA"
ALGORITHMS: dict[str, Rival] = {
    OURS: ours,
    PLAIN: plain_ga,
    "random": random_search,
    "regularised evolution": regularised_evolution,
    "Optuna TPE": optuna_tpe,
    "Optuna NSGA-II": optuna_nsga2,
}
