"""Who takes part when: drawn from the seed, as many as the configuration says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dprbft.config.files import build_config
from dprbft.config.schema import participants, rounds_of


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    clients=st.integers(1, 4),
    rounds=st.integers(1, 6),
    participation=st.sampled_from([0.3, 0.6, 1.0]),
)
def test_the_seed_says_who_takes_part_when(
    seed: int, clients: int, rounds: int, participation: float
) -> None:
    config = build_config(
        {
            "seed": seed,
            "federation": {
                "method": "dprbft",
                "clients": clients,
                "rounds": rounds,
                "participation": participation,
            },
        }
    )
    drawn = participants(config)
    assert drawn == participants(config)
    assert [len(set(c)) for c in drawn] == [max(1, round(participation * clients))] * rounds
    for i in range(clients):
        assert rounds_of(config, i) == [r + 1 for r, c in enumerate(drawn) if i in c]
