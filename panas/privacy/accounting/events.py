"""Mechanisms as facts: what the ledger writes down and the accountant prices.

A noise multiplier is the standard deviation of the noise over the L2 sensitivity under the
account's relation; only DP-SGD's is over the clip (see `SampledGaussian`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Relation = Literal["add-or-remove-one", "replace-one"]
"""When two datasets are neighbours: one sample more or less, or one sample exchanged."""

ADD_OR_REMOVE: Relation = "add-or-remove-one"
REPLACE: Relation = "replace-one"


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism on the whole subset: noise_multiplier = std / sensitivity, above 0."""

    noise_multiplier: float


@dataclass(frozen=True)
class SampledGaussian:
    """DP-SGD: `steps` Gaussian mechanisms, each on a Poisson sample of rate q in (0, 1].

    The noise has std noise_multiplier * C, where C is the clip: adding or removing a sample moves
    a step by up to C, replacing one by up to 2 C.
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
