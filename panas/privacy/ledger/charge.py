"""What is charged to an account, before and after it stands in the ledger; and its receipt."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from panas.privacy.accounting.events import (
    Event,
    Gaussian,
    Relation,
    event_from_json,
    event_to_json,
)
from panas.runtime.errors import BadInput
from panas.runtime.typed import check_fields

Phase = Literal["training", "release", "search"]
PHASES: tuple[Phase, ...] = get_args(Phase)
SECURE_SUM = "secure-sum"
"""Whom a charge trusts, where that is not whoever receives it."""
ISSUER = object()  # what `Ledger.charge` shows to make a receipt


def assumption(missing: int, sites: int) -> str:
    """What must hold for the price of a secure sum that bears so many missing, in words."""
    if not missing:
        return f"none of {sites} sites colludes with the server or is missing"
    return f"at most {missing} of {sites} sites collude with the server or are missing"


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """What the price of a release rests on of which only the sum over sites is seen.

    The charge's event is what the sum costs as long as at most `missing` of the `sites` collude
    with whoever sees it, or are missing. Against all others together a site has its own share of
    the noise alone: `local`.
    """

    sites: int  # n
    missing: int  # t, below n / 3
    local: float  # noise multiplier of the site's own share

    @property
    def assumption(self) -> str:
        """What must hold, in words."""
        return assumption(self.missing, self.sites)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; `from_json` reads it back."""
        return {"trust": SECURE_SUM, **asdict(self)}

    @classmethod
    def from_json(cls, r: Mapping[str, Any]) -> "SecureSum":
        """What `to_json` gave; KeyError, TypeError or ValueError if it is something else."""
        result = cls(**{key: value for key, value in r.items() if key != "trust"})
        whole = type(result.sites) is int and type(result.missing) is int
        if r["trust"] != SECURE_SUM or not (whole and 0 <= 3 * result.missing < result.sites):
            raise ValueError("no such trust")
        if not result.local > 0:
            raise ValueError("a share of no noise")
        return result


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What is about to touch the samples of a ledger."""

    event: Event  # the mechanism, as it is priced
    phase: Phase  # what of the run it serves
    mechanism: str  # the field's name of it, say "dp-sgd"
    recipient: str  # who will see the outcome
    sensitivity: float | None  # L2, under the account's relation; None: nothing bounds it
    subset: str = "train"  # which samples are touched
    round: int | None = None  # of the federation
    run: str = ""  # its name; "": that of the ledger that it is charged to
    trust: SecureSum | None = None  # None: the event holds against its recipient, whoever that is

    def __post_init__(self) -> None:
        check_fields(self)

    def to_json(self, *, relation: Relation) -> dict[str, Any]:
        """Its part of the ledger's line."""
        about = {} if self.trust is None else {"trust": self.trust.to_json()}
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
            **about,
        }

    @classmethod
    def from_json(cls, r: Mapping[str, Any]) -> "Charge":
        """The charge that a line of the ledger describes; KeyError or the like if it is none."""
        facts = ("phase", "mechanism", "recipient", "sensitivity", "subset", "round", "run")
        trust = SecureSum.from_json(r["trust"]) if "trust" in r else None
        event = event_from_json(r["event"])
        return cls(event=event, trust=trust, **{fact: r[fact] for fact in facts})


def covers(paid: Charge, wanted: Charge) -> bool:
    """Whether a charge that was made pays for another in its place: the same but for more noise."""
    if replace(wanted, event=paid.event, trust=paid.trust) != paid:
        return False
    if paid.trust is not None and wanted.trust is not None:
        alike = replace(wanted.trust, local=paid.trust.local) == paid.trust
        quiet = not (alike and wanted.trust.local >= paid.trust.local)
    else:
        quiet = wanted.trust != paid.trust
    if quiet or not (isinstance(paid.event, Gaussian) and isinstance(wanted.event, Gaussian)):
        return not quiet and wanted.event == paid.event
    return wanted.event.noise_multiplier >= paid.event.noise_multiplier


def number_of(ledger: str, line: Mapping[str, Any]) -> str:
    """The number of a charge: 32 hexadecimal digits that follow from its line in the ledger.

    It leaves the site in receipts. So it is a hash, of which nothing can be chosen but by trial.

    Args:
        ledger: what the ledger is called, drawn at random and known at the site alone.
        line: of the charge; its place in the file plays no part.
    """
    said = {k: v for k, v in line.items() if k not in ("id", "n", "previous")}
    content = json.dumps([ledger, said], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


MOST_AGAIN = 50
"""How often one charge pays for work that is begun again."""


@dataclass(frozen=True)
class Entry:
    """A charge as it stands in the ledger."""

    id: str  # of its receipt
    time: float  # seconds since 1970
    charge: Charge
    finished: bool = False  # whether its end was noted
    derived: bool = True  # whether the id is `number_of` its line
    again: int = 0  # how often what it pays for was begun again

    @property
    def resumable(self) -> bool:
        """Whether it pays for its work once more: that never ended, and failed seldom so far.

        Whether work fails may tell of the data; the limit bounds how often that is asked for free.
        """
        return not self.finished and self.again < MOST_AGAIN

    @property
    def event(self) -> Event:
        """What was charged, for the accounting."""
        return self.charge.event

    @property
    def local(self) -> "Entry":
        """The same, as it holds against the server and all other sites together."""
        trust = self.charge.trust
        if trust is None or not isinstance(self.event, Gaussian):
            return self
        event = Gaussian(trust.local)
        return replace(self, charge=replace(self.charge, event=event, trust=None))


class Receipt:
    """Proof that the ledger was charged, without which nothing leaves; `Ledger.charge` makes it.

    As a context manager it notes in the ledger that the block ended well; after an exception it
    notes nothing, and the charge stays spent.

    Args:
        issuer: `ISSUER`, which the ledger alone passes; BadInput for any other.
        id: of the charge in the ledger.
        charge: what was charged.
        commit: notes in the ledger that the charge of an id ended well.
    """

    __slots__ = ("_commit", "_done", "_used", "charge", "id")

    def __init__(
        self, issuer: object, id: str, charge: Charge, commit: Callable[[str], None]
    ) -> None:
        if issuer is not ISSUER:
            raise BadInput("expected a receipt from Ledger.charge, got a forged one; charge first")
        self.id, self.charge = id, charge
        self._commit = commit
        self._used = self._done = False

    def use(self) -> None:
        """Note a release for this charge, which pays for one only: BadInput at the second."""
        if self._used:
            raise BadInput("expected a fresh receipt, got one that paid for a release already")
        self._used = True

    def __enter__(self) -> "Receipt":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and not self._done:
            self._commit(self.id)
            self._done = True
