"""How long a network takes for one sample, beside all else that a site predicts with.

A student is worth having by itself where it is small and quick. Its teacher needs the common map
and heads on it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch

from panas.runtime.seeds import one_thread
from panas.training.linear.predictor import Predictor

REPEATS = 15  # passes whose median counts


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one sample on one thread of this machine's CPU."""

    network: float
    teacher: float  # the common map, its heads, and models of public samples


def latency_of(
    predictor: Predictor, clock: Callable[[], float] = time.perf_counter
) -> Latency | None:
    """What its network takes, and what all else takes; None without a network.

    Args:
        predictor: of a site.
        clock: tells seconds; another one for tests.
    """
    c = predictor.candidates
    if c.network is None:
        return None
    network, others = c.network.network.eval(), replace(c, network=None)
    x = torch.zeros(1, *c.network.shape)

    def milliseconds(work: Callable[[], object]) -> float:
        work()
        times = []
        for _ in range(REPEATS):
            began = clock()
            work()
            times.append(clock() - began)
        return 1000 * median(times)

    with one_thread(), torch.no_grad():
        return Latency(milliseconds(lambda: network(x)), milliseconds(lambda: others.logits(x)))
