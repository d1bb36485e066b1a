"""Who is dropped at which ratio, and that rounds and loads add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.decnas import (
    Load,
    dropped,
    planned,
    rounds_of_iteration,
    turns_of,
)


def left(candidates: int, turns: int, drop: float) -> list[int]:
    results = [candidates]
    for _ in range(turns):
        results.append(results[-1] - dropped(candidates, results[-1], drop))
    return results


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        (0.0, [14, 14, 14, 14]),
        (0.33, [14, 9, 4, 1]),  # "all non-optimal candidates will be dropped after 3 rounds"
        (0.5, [14, 7, 1, 1]),
        (1.0, [14, 1, 1, 1]),
    ],
)
def test_a_share_of_the_first_candidates_is_dropped_and_one_stays(drop: float, expected: list[int]):
    assert left(14, 3, drop) == expected


@pytest.mark.parametrize(("drop", "published"), [(0.33, 0.79), (0.5, 0.82), (1.0, 0.85)])
def test_the_weights_sent_are_those_of_table_3(drop: float, published: float):
    """50 % ConvNet: 7 candidates and 10 turns; savings of the uplink against no dropping."""
    sent = sum(left(7, 10, drop)[1:])
    assert 1 - sent / 70 == pytest.approx(published, abs=0.025)


def test_rounds_grow_with_iterations_or_are_always_the_most():
    numbers = [turns_of(t, (5, 10, 15, 20), 5, True) for t in (1, 5, 6, 15, 16, 99)]
    assert numbers == [5, 5, 10, 15, 20, 20]
    assert turns_of(1, (5, 10, 15, 20), 5, False) == 20


def test_a_turn_that_drops_takes_two_rounds():
    assert rounds_of_iteration(3, 1, 0.33) == 2
    assert rounds_of_iteration(3, 3, 0.33) == 2 + 2 + 1
    assert rounds_of_iteration(3, 3, 0.0) == 3
    assert rounds_of_iteration(1, 2, 1.0) == 2


def test_loads_by_hand():
    schedule = planned(8, (0.25, 0.25), [1, 2, 2], 3, 0.33)
    # 2 of 8 first, 2 last; one iteration of a turn fits into 4, the next of 2 turns does not.
    assert (schedule.start, schedule.turns) == (2, (1,))
    train, report, wait = Load(1, 0), Load(1, 1), Load(0, 0)
    rest = [train] * 4
    assert schedule.loads(3, 3) == [train, report, report, wait, *rest]
    # One group of all sites trains all three.
    assert schedule.loads(3, 1) == [train, report, Load(3, 3), wait, *rest]


@given(
    st.integers(1, 40),
    st.sampled_from([(0.3, 0.3), (0.0, 0.0), (0.0, 1.0), (0.5, 0.5)]),
    st.lists(st.integers(1, 4), max_size=9),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from([0.0, 0.33, 0.5, 1.0]),
)
def test_every_round_has_its_load(rounds, ends, turns, size, drop):
    candidates, groups = size
    schedule = planned(rounds, ends, turns, candidates, drop)
    loads = schedule.loads(candidates, min(groups, candidates))
    assert len(loads) == rounds
    trained = sum(load.trainings for load in loads)
    assert trained >= schedule.start + sum(schedule.turns)
    assert schedule.turns == tuple(turns[: len(schedule.turns)])
