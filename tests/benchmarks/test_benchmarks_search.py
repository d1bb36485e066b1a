"""The benchmark of searches: what is paid for, what is compared, and what counts as worse."""

from pathlib import Path

import numpy as np
import pytest

import benchmarks
from benchmarks.comparison import cost_ratio, holm, interval, worse_than
from benchmarks.make_tables import all_genomes, table_space
from benchmarks.rivals import ALGORITHMS, OURS
from benchmarks.tabular import Meter, MeteredFitness, Problem, Spent, at
from dprbft.config.files import build_config, read_toml
from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import ResumableFitness, TrainingJob
from panas.runtime.seeds import stream

SPACE = SearchSpace(
    shape=(1, 8, 8), min_blocks=2, max_blocks=4, widths=(16, 32), kernels=(3, 5), pools=("max",)
)


def worth(genome: Genome, epochs: int) -> float:
    return min(1.0, len(str(genome)) / 32) * epochs / 8


PROBLEM = Problem(
    name="toy",
    space=SPACE,
    classes=10,
    samples=100,
    epochs=8,
    validation=worth,
    test=lambda genome: worth(genome, 8) / 2,
)
SMALL, LARGE = Genome.parse("c16k3-max"), Genome.parse("c16k3-c16k3-c32k5-max")


def test_a_training_in_stages_costs_what_it_costs_at_once():
    whole, staged = Meter(PROBLEM), MeteredFitness(Meter(PROBLEM))
    assert isinstance(staged, ResumableFitness)
    accuracy = whole.train(LARGE)
    state, spent = None, 0
    for share in (1 / 8, 1 / 2, 1.0):
        outcome = staged.advance(TrainingJob(LARGE, share, state))
        state, spent = outcome.state, spent + outcome.passes
    assert outcome.fitness == accuracy
    assert spent == staged.meter.passes == whole.passes == 800
    assert staged.meter.trace == whole.trace


def test_only_a_finished_training_becomes_the_best():
    fitness = MeteredFitness(Meter(PROBLEM))
    fitness.advance(TrainingJob(LARGE, 0.5))
    assert fitness.meter.trace == []
    fitness(SMALL)
    assert [v for _, v, _ in fitness.meter.trace] == [worth(SMALL, 8)]


@pytest.mark.parametrize(("cached", "passes"), [(False, 1600), (True, 800)])
def test_training_again_is_free_only_with_a_cache(cached: bool, passes: int):
    meter = Meter(PROBLEM, cached=cached)
    meter.train(SMALL)
    meter.train(SMALL)
    assert meter.passes == passes


def test_a_cache_knows_how_far_a_training_was_paid():
    meter = Meter(PROBLEM, cached=True)
    meter.train(SMALL, 2)
    meter.train(SMALL)
    assert meter.passes == 800


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_everyone_spends_the_budget_and_not_more(name: str):
    meter = Meter(PROBLEM, budget=25 * 800)
    with pytest.raises(Spent):
        ALGORITHMS[name](meter, 0)
    assert 24 * 800 < meter.passes <= 25 * 800
    assert meter.trace == sorted(meter.trace)
    again = Meter(PROBLEM, budget=25 * 800)
    with pytest.raises(Spent):
        ALGORITHMS[name](again, 0)
    assert again.trace == meter.trace


@pytest.mark.slow
def test_what_optuna_proposes_lies_in_the_space():
    met = []

    def validation(genome: Genome, epochs: int) -> float:
        met.append(genome)
        return worth(genome, epochs)

    problem = Problem(**{**vars(PROBLEM), "validation": validation})
    for name in ("Optuna TPE", "Optuna NSGA-II"):
        with pytest.raises(Spent):
            ALGORITHMS[name](Meter(problem, budget=60 * 800), 1)
    assert len(met) == 120
    assert all(SPACE.allows(genome) for genome in met)


def test_the_best_at_a_budget():
    trace = [(10, 0.5, 0.4), (30, 0.7, 0.3)]
    assert at(trace, 9, 0.1) == (0.1, 0.1)
    assert at(trace, 10, 0.1) == at(trace, 29, 0.1) == (0.5, 0.4)
    assert at(trace, 1000, 0.1) == (0.7, 0.3)


def test_the_cost_ratio_of_a_search_four_times_as_fast():
    plain = [(800, [(100, 0.5, 0.5), (400, 0.8, 0.8)])] * 3
    fast = [(800, [(25, 0.5, 0.5), (100, 0.8, 0.8)])] * 3
    assert cost_ratio(fast, plain) == {"medians": 0.125, "paired": 0.125, "larger": 0.125}
    never = [(800, [(25, 0.79, 0.9)])] * 3
    assert cost_ratio(never, plain) == {"medians": None, "paired": None, "larger": None}


def test_the_larger_of_the_two_cost_ratios_counts():
    plain = [(100, [(10, 0.5, 0.5)]), (100, [(10, 0.6, 0.5)]), (100, [(10, 0.7, 0.5)])]
    ours = [(100, [(10, 0.9, 0.5)]), (100, [(90, 0.9, 0.5)]), (100, [(20, 0.65, 0.5)])]
    result = cost_ratio(ours, plain)
    assert result == {"medians": 0.2, "paired": 0.9, "larger": 0.9}


def test_holm_against_its_definition():
    p = stream(0, "p").random(12) ** 4
    fallen = holm(p)
    order = np.argsort(p)
    first = next(k for k in range(12) if p[order[k]] > 0.05 / (12 - k))
    assert set(np.flatnonzero(fallen)) == set(order[:first])
    assert not holm(np.array([0.03, 0.04])).any()


def curves(shift: float) -> dict[str, np.ndarray]:
    rng = stream(3, "curves")
    base = 0.8 + 0.02 * rng.standard_normal((50, 1, 1))  # the repetition's own samples
    noise = 0.01 * rng.standard_normal((2, 50, 6, 2))
    rival = base + noise[0]
    rival[:, 2, 1] += shift  # better at one budget only, by one metric
    return {OURS: base + noise[1], "rival": rival}


def test_being_worse_at_one_budget_is_noticed():
    assert worse_than(curves(0.0))[0] == []
    assert worse_than(curves(0.02))[0] == ["rival"]
    assert worse_than(curves(-0.02))[0] == []


def test_the_interval_holds_the_median():
    values = stream(0, "values").random((51, 4))
    result = interval(values)
    assert result["median"] == np.round(np.median(values, axis=0), 4).tolist()
    assert all(
        low < m < high
        for low, m, high in zip(result["low"], result["median"], result["high"], strict=True)
    )


def test_random_genomes_of_the_table_are_in_it():
    genomes = all_genomes(table_space((1, 8, 8)))
    assert len(genomes) == len(set(genomes)) == 756
    rng = stream(0, "g")
    assert {random_genome(SPACE, rng) for _ in range(200)} <= set(genomes)


def test_the_cifar10_experiment_is_the_papers():
    folder = Path(benchmarks.__file__).parent / "search"
    config = build_config(read_toml(folder / "search_cifar10.toml"))
    e = config.search.evolution
    assert (e.population, e.generations) == (10, 20)
    assert (e.rungs, e.screening, e.cache) == ((), 1, False)
    assert config.data.source.limit * config.data.search_fraction == 700
