"""The figures that benchmarks compute, against their definitions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import benchmarks.secure_sum_audit as audit
import benchmarks.secure_sum_trust as trust
from benchmarks import attacks, decnas, feathers, joining_methods, joining_world, networks
from benchmarks.affordable_steps import affordable_steps
from benchmarks.comparison import cost_ratio, holm, interval, worse_than
from benchmarks.features import Draw, gains, head, one
from benchmarks.rivals import ALGORITHMS, OURS
from benchmarks.tabular import Meter, MeteredFitness, Problem, Spent, at
from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.data.encoder import EncoderFacts
from panas.data.files.raw import Raw
from panas.evolution.fitness import ResumableFitness, TrainingJob
from panas.features.encoders.encoder import Encoder
from panas.privacy.accounting.events import Gaussian, SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of, release_multiplier
from panas.runtime.seeds import stream
from panas.training.linear.rules import histogram_share

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


def test_the_summary_says_whether_the_rows_show_what_they_should():
    def row(release: str, epsilon: float, verdict: str, decoder: float) -> dict[str, object]:
        about = {"dataset": "a set", "made_by": "network", "release": release, "epsilon": epsilon}
        return about | {"verdict": verdict, "decoder_r2": decoder, "ceiling_r2": 0.7, "shown": {}}

    paper, sound = row("raw_rows", 0.5, "leaks", 0.61), row("moments", 8.0, "inconclusive", 0.1)
    result = attacks.summary([paper, sound])
    assert result["paper_release_reaches_ceiling"]
    assert result["moments_at_8_beaten"] == ["a set, network"]  # not shown to hold is not held
    result = attacks.summary([row("raw_rows", 0.5, "leaks", 0.59), sound | {"epsilon": 5.0}])
    assert not result["paper_release_reaches_ceiling"]
    assert result["moments_at_8_beaten"] == []


@pytest.mark.thorough
@pytest.mark.parametrize(("rate", "sigma"), [(0.2, 1.0), (0.02, 1.0), (1.0, 1.92), (0.2, 2.0)])
def test_as_many_steps_as_a_budget_affords_and_not_one_more(rate: float, sigma: float) -> None:
    for most in (0.5, 3.0):
        budget = Budget(most, 1e-5)
        steps = affordable_steps(budget, rate, sigma)
        priced = [epsilon_of([SampledGaussian(rate, sigma, t)], budget) for t in (steps, steps + 1)]
        assert steps == 0 or priced[0] <= most
        assert priced[1] > most
        assert affordable_steps(budget, rate, sigma, most=3) == min(3, steps)


CELL = decnas.Cell(
    accuracy=0.5, searched=0.4, macs=10, iterations=2, rounds=5, up=10.0, down=20.0, work=30.0
)


def test_savings_are_ratios_to_all_on_and_their_product():
    cells = dict.fromkeys(decnas.SWITCHES, CELL)
    cells |= {"no groups": replace(CELL, up=40.0), "no early dropping": replace(CELL, up=15.0)}
    cells |= {"all off": replace(CELL, up=80.0)}
    result = decnas.savings(cells)["up"]
    assert (result["no groups"], result["product"], result["all off"]) == (4, 6, 8)
    assert decnas.savings(cells)["work"]["product"] == 1


def test_means_are_over_seeds():
    other = replace(CELL, accuracy=0.7, searched=None, macs=20)
    result = decnas.mean([CELL, other])
    assert result["accuracy"] == pytest.approx(0.6)
    assert result["std"] == pytest.approx(0.1 * 2**0.5)
    assert (result["searched"], result["macs"]) == (0.4, 15)


def test_iterations_reach_the_target():
    world = decnas.World(reduction=0.1)
    # 0.1 + 0.098 + 0.09604 + ...: three leave 70.6 %, four 61.2 %.
    assert (decnas.iterations_to(world, 0.71), decnas.iterations_to(world, 0.7)) == (3, 4)


def test_figures_are_means_over_seeds():
    tasks = [("inf", "iid", 0), ("inf", "iid", 1)]
    runs = [{"f1": f1, "macro_f1": 0.5, "auroc": None, "all frauds": 0.1} for f1 in (0.4, 0.8)]
    (row,) = feathers.summary(tasks, runs)
    assert row["f1"] == pytest.approx([np.mean([0.4, 0.8]), 0.2])
    assert row["auroc"] is None
    assert "0.600 +- 0.200" in feathers.table([row])


def test_the_head_without_noise_is_ridge_regression():
    rng = stream(0, "test")
    z = torch.from_numpy(rng.standard_normal((60, 4)) / 10)
    y = torch.arange(60) % 3
    rows = z.numpy()
    ridge = np.linalg.inv(rows.T @ rows + 0.9 * np.eye(4))
    weights = np.eye(3)[y.numpy()].T @ rows @ ridge
    expected = torch.from_numpy(weights - weights.mean(0))
    assert torch.allclose(head(z, y, 3, 0.0, 0), expected, atol=1e-6)


@pytest.mark.slow
def test_nobody_spends_more_than_epsilon():
    budget = Budget(8.0, joining_world.DELTA)
    histogram = Gaussian(release_multiplier(budget, 1, histogram_share(8.0)))
    for share in (0.0, 0.5, 0.85):
        plan = joining_methods.plan_of(60, 8.0, share)
        assert plan.releases == int(share > 0)
        assert 7.5 < epsilon_of([histogram, *plan.events()], budget) <= 8.0
    alone = Gaussian(joining_methods.all_released(60, 8.0))
    assert 7.5 < epsilon_of([histogram, alone], budget) <= 8.0


def site(joined: float, alone: float, **candidates: float) -> dict[str, object]:
    ladder = {"public": 0.1, "alone": alone, "joined": joined}
    return {"ladder": ladder, "candidates": candidates, "samples": {"test": 400}}


def test_the_average_stands_beside_the_best_candidate_of_each_site():
    sites = [
        site(0.60, 0.50, network=0.5, shared=0.6),
        site(0.70, 0.64, network=0.71, shared=0.4),
        site(0.50, 0.48, network=0.2, shared=0.64),
    ]
    result = networks.table(sites)
    assert result["joined"] == pytest.approx(0.6)
    assert result["network"] == pytest.approx(0.47)
    assert result["best candidate"] == pytest.approx(0.65)
    assert result["cells at least as good"] == pytest.approx(1 / 3)
    assert result["cells within a standard error"] == pytest.approx(2 / 3)
    assert result["joined over alone"] == pytest.approx([0.06, 0.04 / 3**0.5])


def test_colluding_sites_find_the_last_ones_numbers_and_no_more():
    last = np.arange(-4, 6)
    assert (audit.left_of_sum(last, 4) == last).all()


def test_less_noise_that_nobody_else_knows_costs_more():
    rows = trust.trusts([10], [1.0])
    assert rows == [
        {"sites": 10, "missing": 1, "epsilon": 1.0, "sum": 1.0, "left_out": 1.07, "share": 3.41}
    ]


def test_an_encoder_that_sees_the_class_is_above_the_built_in_map():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (900, 1, 8, 8), dtype=np.uint8), rng.integers(0, 3, 900)
    x[:, 0, 0, 0] = 100 * y  # one pixel of 64 has it
    facts = EncoderFacts(
        kind="callable",
        name="one pixel",
        sha256="0" * 64,
        shape=(1, 8, 8),
        mean=(0.0,),
        std=(1.0,),
        outputs=2,
    )
    encoder = Encoder(facts, lambda p: torch.cat([p[:, 0, 0, :1], p[:, 0, 0, :1] ** 2], 1))
    draw = Draw(public=200, train=300, width=16, labelled=False, seed=0)
    plain, alone, both = one(Raw(x, y, ("a", "b", "c")), "pixels", draw, encoder)
    assert [cell.map for cell in (plain, alone, both)] == ["built-in", "encoder", "both"]
    assert alone.exact > 0.99
    assert plain.exact < both.exact
    assert plain.exact < 0.9
    points = f"{100 * (alone.exact - plain.exact):+.1f} +- 0.0"
    assert points in gains([alone, alone], [plain, plain])
