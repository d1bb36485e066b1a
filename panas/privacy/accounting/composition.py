"""Events summed up before they are priced: what is equal composes in closed form."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from panas.privacy.accounting.events import (
    REPLACE,
    Event,
    NoisyRows,
    PostProcessing,
    RandomizedResponse,
    Relation,
    SampledGaussian,
    Unprotected,
)
from panas.runtime.errors import BadInput

LEAST, MOST = 1e-6, 1e6
"""Noise multipliers that are told apart: less counts as none, and more as the most."""
MOST_SAMPLES = 1000


class Merged(NamedTuple):
    """Equal events summed; Gaussians of m_i compose exactly to one of (sum of m_i^-2)^-1/2."""

    precision: float = 0.0  # sum of m_i^-2 of all full-batch Gaussians
    sampled: tuple[tuple[float, float, int], ...] = ()  # q, sigma, T
    responses: tuple[tuple[float, int, int], ...] = ()  # flip, classes, times


NOTHING = Merged()


def merge(events: Iterable[Event], relation: Relation, group: int) -> Merged | None:
    """The events in merged form; None if any of them protects nothing.

    BadInput if an event has no price under this relation, or the group is too large.
    """
    if not 1 <= group <= MOST_SAMPLES:
        raise BadInput(
            f"expected a group of 1 to {MOST_SAMPLES} samples, got {group}; give another group"
        )
    precision = 0.0
    sampled = defaultdict[tuple[float, float], int](int)
    responses = defaultdict[tuple[float, int], int](int)
    # Under replace-one a full batch moves by 2 C.
    reach = 2.0 if relation == REPLACE else 1.0
    for event in events:
        if isinstance(event, PostProcessing):
            continue
        if isinstance(event, Unprotected) or not _protects(event, relation):
            return None
        if isinstance(event, RandomizedResponse | NoisyRows):
            if event.flip < 1 and event.classes > 1:
                responses[event.flip, event.classes] += 1
            if isinstance(event, RandomizedResponse):
                continue
        m = min(event.noise_multiplier, MOST)
        if not isinstance(event, SampledGaussian):
            precision += m**-2
        elif event.rate >= 1:
            precision += event.steps * (m / reach) ** -2
        elif event.steps > 0 and event.rate > 0:
            sampled[event.rate, m] += event.steps
    return Merged(
        precision,
        tuple((q, s, t) for (q, s), t in sorted(sampled.items())),
        tuple((f, c, n) for (f, c), n in sorted(responses.items())),
    )


def _protects(event: Event, relation: Relation) -> bool:
    """Whether an event's numbers are those of a mechanism; every check also refuses NaN."""
    if isinstance(event, RandomizedResponse | NoisyRows):
        if relation != REPLACE:
            raise BadInput(
                "expected randomised response under replace-one, got it under "
                f"{relation}, where it has no price; open the account as replace-one"
            )
        if not 0 < event.flip <= 1 or event.classes < 1:
            return False
    if isinstance(event, SampledGaussian) and not (event.rate >= 0 and event.steps >= 0):
        return False
    return bool(getattr(event, "noise_multiplier", 1.0) > LEAST)


def whole_group(merged: Merged, group: int) -> Merged:
    """What k samples cost where each is surely read: shifts add up, responses are independent."""
    responses = tuple((f, c, n * group) for f, c, n in merged.responses)
    return merged._replace(precision=merged.precision * group**2, responses=responses)
