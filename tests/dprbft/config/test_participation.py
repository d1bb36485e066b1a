"""Who takes part when: drawn from the seed, as many as the configuration says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprbft.config.files import build_config
from dprbft.config.schema import participants, rounds_of


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    clients=st.integers(1, 8),
    rounds=st.integers(1, 6),
    participation=st.sampled_from([0.01, 0.3, 0.5, 1.0]),
)
def test_the_seed_says_who_takes_part_when(
    seed: int, clients: int, rounds: int, participation: float
) -> None:
    federation = {"method": "dprbft", "clients": clients, "participation": participation}
    settings = {"seed": seed, "federation": federation | {"rounds": rounds}}
    config = build_config(settings)
    drawn = participants(config)
    assert drawn == participants(config)
    assert participants(build_config(settings, {"federation": {"rounds": 9}}))[:rounds] == drawn
    assert [len(set(c)) for c in drawn] == [max(1, round(participation * clients))] * rounds
    assert all(set(c) <= set(range(clients)) for c in drawn)
    for i in range(clients):
        assert rounds_of(config, i) == [r + 1 for r, c in enumerate(drawn) if i in c]


def test_not_all_rounds_have_the_same_sites() -> None:
    federation = {"method": "dprbft", "clients": 8, "rounds": 6, "participation": 0.3}
    assert len({*map(tuple, participants(build_config({"federation": federation})))}) > 1
