"""What is charged to an account, before and after it stands in the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from panas.privacy.accounting.events import Event, Relation, event_from_json, event_to_json

Phase = Literal["training", "release", "search"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What is about to touch the samples of a ledger."""

    event: Event
    phase: Phase
    mechanism: str  # the field's name of it, say "dp-sgd"
    recipient: str  # who will see the outcome
    sensitivity: float | None  # L2, under the account's relation; None: nothing bounds it
    subset: str = "train"  # which samples are touched
    round: int | None = None  # of the federation
    run: str = ""  # its name; "": that of the ledger that it is charged to

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
            "run": self.run,
        }

    @classmethod
    def from_json(cls, r: Mapping[str, Any]) -> "Charge":
        """The charge that a line of the ledger describes; KeyError or the like if it is none."""
        facts = ("phase", "mechanism", "recipient", "sensitivity", "subset", "round", "run")
        return cls(event=event_from_json(r["event"]), **{fact: r[fact] for fact in facts})


@dataclass(frozen=True)
class Entry:
    """A charge as it stands in the ledger."""

    id: str  # of its receipt
    time: float  # seconds since 1970
    charge: Charge
    finished: bool = False  # whether its end was noted

    @property
    def event(self) -> Event:
        """What was charged, for the accounting."""
        return self.charge.event
