"""What a run tells while it goes on: records of facts, for whoever shows them.

A run takes a `Listener` and calls it once an event; `panas_cli.progress` makes sentences of them.
Accuracies in events are the simulator's view.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dprbft.site.records import SearchRecord, TuningRecord


@dataclass(frozen=True)
class ClientSearched:
    """A client's architecture is found."""

    record: SearchRecord


@dataclass(frozen=True)
class ClientTuned:
    """A client's DP-SGD settings are found."""

    record: TuningRecord


@dataclass(frozen=True)
class ClientStarted:
    """A client is ready for round 1."""

    client: int
    validation: float  # accuracy


@dataclass(frozen=True)
class ClientTrained:
    """A participant has trained in a round."""

    client: int
    round: int


@dataclass(frozen=True)
class RoundEnded:
    """A round of so many has ended; the mean accuracy of what its participants keep."""

    round: int
    rounds: int
    accuracy: float


Event = ClientSearched | ClientTuned | ClientStarted | ClientTrained | RoundEnded
Listener = Callable[[Event], None]
