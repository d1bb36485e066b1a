"""What is charged to an account, before and after it stands in the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from panas.privacy.accounting.events import Event, Relation, event_from_json, event_to_json

Phase = Literal["search", "training", "release"]


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What is about to touch a client's samples.

    Attributes:
        event: what happens, for the accounting.
        phase: which part of the run it belongs to.
        mechanism: the field's name of it, say "dp-sgd".
        recipient: who will see the outcome.
        sensitivity: L2 sensitivity under the account's relation; None where nothing bounds it.
        subset: which of the client's samples are touched.
        round: round of the federation, if any.

    """

    event: Event
    phase: Phase
    mechanism: str
    recipient: str
    sensitivity: float | None
    subset: str = "train"
    round: int | None = None

    def to_json(self, *, relation: Relation) -> dict[str, Any]:
        """Its part of the ledger's line."""
        return {
            "phase": self.phase,
            "mechanism": self.mechanism,
            "recipient": self.recipient,
            "event": event_to_json(self.event),
            "sensitivity": self.sensitivity,
            "relation": relation,
            "subset": self.subset,
            "round": self.round,
        }

    @classmethod
    def from_json(cls, r: Mapping[str, Any]) -> "Charge":
        """The charge that a line of the ledger describes; KeyError or the like if it is none."""
        return cls(
            event=event_from_json(r["event"]),
            phase=r["phase"],
            mechanism=r["mechanism"],
            recipient=r["recipient"],
            sensitivity=r["sensitivity"],
            subset=r["subset"],
            round=r["round"],
        )


@dataclass(frozen=True)
class Entry:
    """A charge as it stands in the ledger.

    Attributes:
        id: of its receipt.
        client: whose samples it concerns.
        time: when it was charged, in seconds since 1970.
        charge: what was charged.
        finished: whether its end was noted.

    """

    id: str
    client: int
    time: float
    charge: Charge
    finished: bool = False

    @property
    def event(self) -> Event:
        """What was charged, for the accounting."""
        return self.charge.event
