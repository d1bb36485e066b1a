"""Who takes part when, and which samples leave in which round: public facts, drawn beforehand.

Everything here follows from the configuration and a client's number of samples, never from what
the samples are.
"""

import numpy as np
from jaxtyping import Int64

from dprbft.config.schema import RunConfig
from panas.runtime.seeds import stream

LABEL_SHARE = 0.5
"""Share of the release's epsilon that flips the labels of noisy rows; the rest noises the rows."""


def participants(config: RunConfig) -> list[list[int]]:
    """Who takes part in each round, drawn beforehand from the run's seed, and so public."""
    f = config.federation
    size = max(1, round(f.participation * f.clients))
    rng = stream(config.seed, "participation")
    return [
        sorted(int(i) for i in rng.choice(f.clients, size, replace=False)) for _ in range(f.rounds)
    ]


def rounds_of(config: RunConfig, client: int) -> list[int]:
    """The rounds, from 1, in which a client takes part."""
    return [r for r, c in enumerate(participants(config), start=1) if client in c]


def release_subset(config: RunConfig, round: int) -> str:
    """The ledger's name of the records that leave in a round: all, or a part of their own."""
    return f"train/{round}" if config.sent == "noisy_rows" else "train"


def train_parts(config: RunConfig, client: int) -> tuple[str, ...]:
    """The disjoint parts of a client's training samples that releases name."""
    names = dict.fromkeys(release_subset(config, r) for r in rounds_of(config, client))
    return tuple(names) or ("train",)


def chunk(config: RunConfig, client: int, samples: int, round: int) -> Int64[np.ndarray, "k"]:
    """Positions of the training samples that leave as rows in a round.

    The rounds of a client share its positions out, disjoint and together all of them. The shares
    are drawn from the run's seed and the number of samples alone, whatever the samples are.

    Args:
        config: of the run.
        client: whose samples.
        samples: n, how many it trains with.
        round: one in which it takes part.

    """
    order = stream(config.seed, "client", client, "chunks").permutation(samples)
    rounds = rounds_of(config, client)
    return np.sort(np.array_split(order, len(rounds))[rounds.index(round)])
