"""The benchmark of DecNAS: its ratios by hand, and that its runs fit."""

import math
from dataclasses import replace

import pytest

from baselines.networks.pruning import macs_by_layer
from benchmarks.decnas import (
    SWITCHES,
    Cell,
    World,
    config_of,
    iterations_to,
    mean,
    multiplied,
    options_of,
    rounds_of,
    run,
    savings,
    whole_of,
)

CELL = Cell(
    accuracy=0.5, searched=0.4, macs=10, iterations=2, rounds=5, up=10.0, down=20.0, work=30.0
)


def test_savings_are_ratios_to_all_on_and_their_product():
    cells = dict.fromkeys(SWITCHES, CELL)
    cells |= {"no groups": replace(CELL, up=40.0), "no early dropping": replace(CELL, up=15.0)}
    cells |= {"all off": replace(CELL, up=80.0)}
    result = savings(cells)["up"]
    assert (result["no groups"], result["product"], result["all off"]) == (4, 6, 8)
    assert savings(cells)["work"]["product"] == 1


def test_means_are_over_seeds():
    other = replace(CELL, accuracy=0.7, searched=None, macs=20)
    result = mean([CELL, other])
    assert result["accuracy"] == pytest.approx(0.6)
    assert result["std"] == pytest.approx(0.1 * 2**0.5)
    assert (result["searched"], result["macs"]) == (0.4, 15)


def test_iterations_reach_the_target():
    world = World(reduction=0.1)
    # 0.1 + 0.098 + 0.09604 + ...: three leave 70.6 %, four 61.2 %.
    assert (iterations_to(world, 0.71), iterations_to(world, 0.7)) == (3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_the_rival_is_at_most_as_large(epsilon: float):
    world = World(epsilon=epsilon)
    whole = sum(macs_by_layer(whole_of(world), (1, 8, 8)))
    small = whole_of(multiplied(world, whole // 2))
    assert 0.2 * whole < sum(macs_by_layer(small, (1, 8, 8))) <= whole / 2


@pytest.mark.parametrize("name", SWITCHES)
def test_rounds_are_those_that_the_search_takes(name: str):
    world = World()
    options = options_of(world, **SWITCHES[name])
    config = config_of(world, options)
    assert config.federation.rounds == world.start + rounds_of(world, options) + world.final


@pytest.mark.slow
def test_a_tiny_run_has_all_its_iterations():
    world = World(limit=150, sites=2, iterations=1, start=1, final=1)
    cell = run(world)
    assert (cell.iterations, cell.rounds) == (1, 4)
    assert cell.up > 0
    assert cell.macs < sum(macs_by_layer(whole_of(world), (1, 8, 8)))
