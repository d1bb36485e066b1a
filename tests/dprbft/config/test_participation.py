"""Who releases which samples when: parts are disjoint, cover everything, and look at nothing."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dprbft.config.participation import chunk, participants, release_subset, rounds_of, train_parts
from dprbft.config.schema import build_config


def config_of(seed: int, clients: int, rounds: int, participation: float, kind: str = "noisy_rows"):
    return build_config(
        {
            "seed": seed,
            "privacy": {"release": kind},
            "federation": {"clients": clients, "rounds": rounds, "participation": participation},
        }
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    clients=st.integers(1, 4),
    rounds=st.integers(1, 6),
    participation=st.sampled_from([0.3, 0.6, 1.0]),
    samples=st.integers(1, 60),
)
def test_every_record_leaves_in_exactly_one_round(
    seed: int, clients: int, rounds: int, participation: float, samples: int
) -> None:
    config = config_of(seed, clients, rounds, participation)
    taken = rounds_of(config, 0)
    assert taken == [r + 1 for r, c in enumerate(participants(config)) if 0 in c]
    assume(taken)
    parts = [chunk(config, 0, samples, r) for r in taken]
    everything = np.concatenate(parts)
    assert sorted(everything) == list(range(samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    # The ledger's parts are as many, and disjoint by their names.
    assert train_parts(config, 0) == tuple(f"train/{r}" for r in taken)
    assert [release_subset(config, r) for r in taken] == list(train_parts(config, 0))


def test_parts_are_drawn_from_the_seed_for_each_client() -> None:
    first, again, other = (config_of(seed, 2, 2, 1.0) for seed in (1, 1, 2))
    assert np.array_equal(chunk(first, 0, 40, 1), chunk(again, 0, 40, 1))
    assert not np.array_equal(chunk(first, 0, 40, 1), chunk(other, 0, 40, 1))
    assert not np.array_equal(chunk(first, 0, 40, 1), chunk(first, 1, 40, 1))
    # Not the first half: positions in a data set may be ordered by what the samples are.
    assert not np.array_equal(chunk(first, 0, 40, 1), np.arange(20))


@pytest.mark.parametrize("kind", ["moments", "class_sums", "public_rows", "none"])
def test_other_releases_concern_all_samples(kind: str) -> None:
    config = config_of(0, 2, 3, 1.0, kind)
    assert train_parts(config, 0) == ("train",)
    assert release_subset(config, 2) == "train"


def test_a_client_that_never_takes_part_has_one_part() -> None:
    config = config_of(0, 4, 1, 0.25)
    idle = [i for i in range(4) if not rounds_of(config, i)]
    assert len(idle) == 3
    assert train_parts(config, idle[0]) == ("train",)
