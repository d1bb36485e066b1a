"""Who takes part when: public facts, drawn beforehand from the run's seed."""

from dprbft.config.schema import RunConfig
from panas.runtime.seeds import stream


def participants(config: RunConfig) -> list[list[int]]:
    """The clients of each round, in order."""
    f = config.federation
    size = max(1, round(f.participation * f.clients))
    rng = stream(config.seed, "participation")
    return [
        sorted(int(i) for i in rng.choice(f.clients, size, replace=False)) for _ in range(f.rounds)
    ]


def rounds_of(config: RunConfig, client: int) -> list[int]:
    """The rounds, from 1, in which a client takes part."""
    return [r for r, c in enumerate(participants(config), start=1) if client in c]
