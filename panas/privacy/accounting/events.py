"""Mechanisms as facts: what the ledger writes down and the accountant sums up and prices.

A noise multiplier is the standard deviation of the noise over the L2 sensitivity under the
account's relation; only DP-SGD's is over the clip (see `SampledGaussian`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from panas.runtime.errors import BadInput

Relation = Literal["add-or-remove-one", "replace-one"]  # what makes two datasets neighbours
ADD_OR_REMOVE: Relation = "add-or-remove-one"
REPLACE: Relation = "replace-one"

LEAST, MOST = 1e-6, 1e6  # noise multipliers: less counts as none, and more as the most
MOST_SAMPLES = 1000  # of a group


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism on the whole subset: noise_multiplier = std / sensitivity, above 0."""

    noise_multiplier: float


@dataclass(frozen=True)
class SampledGaussian:
    """DP-SGD: `steps` Gaussian mechanisms, each on a Poisson sample of rate q in (0, 1].

    The noise has std noise_multiplier * C, where C is the clip: adding or removing a sample moves
    a step by up to C, replacing one by up to 2 C. The multiplier is above 0, steps are 0 or more.
    """

    rate: float
    noise_multiplier: float
    steps: int


@dataclass(frozen=True)
class RandomizedResponse:
    """A label replaced, with probability `flip`, by a uniform one of all `classes`.

    Priced under replace-one only: it does not hide whether a record is there.
    """

    flip: float
    classes: int


@dataclass(frozen=True)
class NoisyRows:
    """Each record's row under Gaussian noise and its label by randomised response, together.

    Priced under replace-one only: the number of rows shows whether a record is there.
    """

    noise_multiplier: float
    flip: float
    classes: int


@dataclass(frozen=True)
class PostProcessing:
    """Something computed from public samples and from what was charged already: costs nothing."""


@dataclass(frozen=True)
class Unprotected:
    """Something that leaves, or is chosen, without protection: epsilon is infinity."""


Event = Gaussian | SampledGaussian | RandomizedResponse | NoisyRows | PostProcessing | Unprotected

_KINDS: dict[str, type[Event]] = {
    "gaussian": Gaussian,
    "sampled-gaussian": SampledGaussian,
    "randomized-response": RandomizedResponse,
    "noisy-rows": NoisyRows,
    "post-processing": PostProcessing,
    "unprotected": Unprotected,
}


def event_to_json(event: Event) -> dict[str, Any]:
    """A JSON-able description of an event."""
    kind = next(k for k, t in _KINDS.items() if isinstance(event, t))
    return {"kind": kind, **asdict(event)}


def event_from_json(record: Mapping[str, Any]) -> Event:
    """The event that `event_to_json` described; KeyError or TypeError if it described none."""
    fields = {k: v for k, v in record.items() if k != "kind"}
    return _KINDS[record["kind"]](**fields)


class Merged(NamedTuple):
    """Equal events summed; Gaussians of m_i compose exactly to one of (sum of m_i^-2)^-1/2."""

    precision: float = 0.0  # sum of m_i^-2 of all full-batch Gaussians
    sampled: tuple[tuple[float, float, int], ...] = ()  # q, sigma, T
    responses: tuple[tuple[float, int, int], ...] = ()  # flip, classes, times
    relation: Relation = ADD_OR_REMOVE
    group: int = 1  # samples of one user in which neighbours differ

    @property
    def free(self) -> bool:
        """Whether nothing was charged."""
        return not (self.precision or self.sampled or self.responses)


def merge(events: Iterable[Event], relation: Relation, group: int) -> Merged | None:
    """The events in merged form; None if any of them protects nothing.

    BadInput if an event has no price under this relation, or the group is too large.

    Args:
        events: any number, in any order.
        relation: under which each event is priced.
        group: k, 1 to `MOST_SAMPLES`: samples of one user in which neighbours differ.
    """
    if not 1 <= group <= MOST_SAMPLES:
        raise BadInput(
            f"expected a group of 1 to {MOST_SAMPLES} samples, got {group}; give another"
        )
    precision, times, events = 0.0, 1, _known(events)
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
    if not sampled:  # each of the group is surely read: shifts add up, responses are independent
        precision, times, group = precision * group**2, group, 1
    return Merged(
        precision,
        tuple((q, s, t) for (q, s), t in sorted(sampled.items())),
        tuple((f, c, n * times) for (f, c), n in sorted(responses.items())),
        relation,
        group,
    )


def _known(events: Iterable[Event]) -> tuple[Event, ...]:
    result = tuple(events) if isinstance(events, Iterable) else (events,)
    for event in result:
        if not isinstance(event, Event):
            raise BadInput(
                "expected a list of events, as SampledGaussian(q, sigma, steps), got "
                f"{type(event).__name__}; of a plan give plan.events()"
            )
    return result


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
