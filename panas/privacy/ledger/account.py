"""The account of one site's data: its terms, its charges, and what they come to on each subset.

Subsets of the samples are declared beforehand and disjoint; which sample is in which may not depend
on what the samples are. "train/2" is a part of "train": a charge on "train" concerns every part.
Within a run, parts compose in parallel, so that the total is that of the worst. Another run may
have split the samples otherwise: of it all charges count, on whatever part.

A run's share of a budget for life counts as the Gaussian mechanism that costs exactly so much: what
the run will charge is not known when it begins. A share (epsilon, delta) is admitted if all that
was charged before, by any run, composes with one Gaussian mechanism of that epsilon at that delta
to no more than the budget for life. A run that charges subsampled Gaussians may turn out a little
dearer in company than that Gaussian: every charge is checked besides, against the run's share and
against the budget for life. A share is not set aside: of two runs at once, the later charge is
refused.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from panas.privacy.accounting.closed_form import gaussian_multiplier
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    MOST,
    Event,
    Gaussian,
    Relation,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.ledger.charge import PHASES, Entry, Phase, SecureSum
from panas.privacy.unit import unit_name
from panas.runtime.errors import BadInput

MOST_EPSILON = 1e6  # of a share that is weighed
STEPS = 12  # of the search for what is left: to epsilon / 4096, rounded down
UNIT = unit_name()  # a user who holds k samples is protected less: `epsilon`'s `group`


def as_gaussian(share: Budget) -> Gaussian:
    """The Gaussian mechanism with the least noise that costs no more than a finite share."""
    exact, more = gaussian_multiplier(min(share.epsilon, MOST_EPSILON), share.delta), 1e-12
    # Prices are rounded up by a little, which a tiny share cannot make good.
    while more < 1 and epsilon_of([Gaussian(exact * (1 + more))], share) > share.epsilon:
        more *= 2
    return Gaussian(min(exact * (1 + more), MOST))


@dataclass(frozen=True)
class Account:
    """The terms of one site's data, and its charges in order."""

    budget: Budget  # for life
    allow_unprotected: bool
    entries: tuple[Entry, ...] = ()
    relation: Relation = ADD_OR_REMOVE
    subsets: tuple[str, ...] = ("train",)
    unit: str = UNIT  # whose privacy the budget bounds
    shares: Mapping[str, Budget] = field(default_factory=dict)  # what each run asked for

    @property
    def terms(self) -> str:
        """What was agreed when it was opened, in words."""
        return (
            f"epsilon {self.budget.epsilon:g}, delta {self.budget.delta:g}, {self.relation}, on "
            f"{', '.join(self.subsets)}, for {self.unit}, allow_unprotected "
            f"{self.allow_unprotected}"
        )

    def to_json(self) -> dict[str, Any]:
        """Its terms, as the ledger's line holds them."""
        return {
            "epsilon": number(self.budget.epsilon),
            "delta": self.budget.delta,
            "allow_unprotected": self.allow_unprotected,
            "unit": self.unit,
            "relation": self.relation,
            "subsets": list(self.subsets),
        }

    @classmethod
    def from_json(cls, r: Mapping[str, Any]) -> "Account":
        """An account without charges; KeyError or the like if the line is none."""
        budget = Budget(float(r["epsilon"]), r["delta"])
        allowed, relation, subsets = r["allow_unprotected"], r["relation"], tuple(r["subsets"])
        return cls(budget, allowed, (), relation, subsets, r["unit"])

    @property
    def leaves(self) -> tuple[str, ...]:
        """The declared subsets that have no declared part: every sample is in at most one."""
        subsets = self.subsets
        return tuple(s for s in subsets if not any(within(o, s) for o in subsets if o != s))

    def events(self, phase: Phase | None = None) -> list[Event]:
        """The events of one phase, or of all, on any subset."""
        return [e.event for e in self.entries if phase in (None, e.charge.phase)]

    def protected(self) -> list[Event]:
        """All events that have a finite price, on any subset."""
        return [e for e in self.events() if not isinstance(e, Unprotected)]

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of all runs that began or charged; "" for what no run charged."""
        return tuple(dict.fromkeys([*self.shares, *(e.charge.run for e in self.entries)]))

    def of_run(self, run: str) -> "Account":
        """The charges of one run alone, under its share; without one, under the whole budget."""
        entries = tuple(e for e in self.entries if e.charge.run == run)
        return replace(self, budget=self.shares.get(run, self.budget), entries=entries)

    def as_owned(self, run: str) -> "Account":
        """The charges of one run, and what it asked for, at the delta of the budget for life."""
        own = self.of_run(run)
        return replace(own, budget=own.budget.at(self.budget.delta))

    def of_shares(self) -> dict[str, "Account"]:
        """`as_owned` of every run that has begun, by its name."""
        return {run: self.as_owned(run) for run in self.shares}

    def of_others(self, run: str) -> "Account":
        """The charges of all other runs, under the whole budget."""
        return replace(self, entries=tuple(e for e in self.entries if e.charge.run != run))

    def admits(self, share: Budget) -> bool:
        """Whether the budget for life holds a new run's share."""
        if not (self.budget.private and share.private):
            return not self.budget.private
        # The new run may split the samples otherwise: all charges count.
        return self.price([*self.protected(), as_gaussian(share)]) <= self.budget.epsilon

    def left(self) -> float:
        """The largest epsilon of a new run's share, at the budget's delta, rounded down."""
        if self.admits(self.budget):
            return self.budget.epsilon
        low, high = 0.0, self.budget.epsilon
        for _ in range(STEPS):
            middle = (low + high) / 2
            admitted = self.admits(Budget(middle, self.budget.delta))
            low, high = (middle, high) if admitted else (low, middle)
        return low

    def entries_on(self, subset: str, run: str | None = None) -> list[Entry]:
        """The charges that may concern a sample of a run's subset (None: of the last run).

        Of this run they are those on the subset or on what holds it; of other runs all.
        """
        if run is None and self.entries:
            run = self.entries[-1].charge.run
        return [e for e in self.entries if e.charge.run != run or within(subset, e.charge.subset)]

    def events_on(self, subset: str, run: str | None = None) -> list[Event]:
        """The events of `entries_on` that have a finite price, for a declared subset."""
        self.check_subset(subset)
        entries = self.entries_on(subset, run)
        return [e.event for e in entries if not isinstance(e.event, Unprotected)]

    def check_subset(self, subset: str) -> None:
        """Refuse a subset that was not declared, nor any part of it."""
        if not any(within(s, subset) for s in self.subsets):
            raise BadInput(
                f"expected one of the declared subsets ({', '.join(self.subsets)}), got "
                f"{subset!r}; declare it in open_account"
            )

    def price(self, events: Iterable[Event]) -> float:
        """Epsilon of events on the same samples, at the budget's delta, under the relation."""
        return epsilon_of(list(events), self.budget, relation=self.relation)

    def spent(self, phase: Phase | None = None) -> float:
        """Epsilon of one phase or of everything, worst subset; infinite if unprotected."""
        return max(self.spent_on(leaf, phase) for leaf in self.leaves)

    def spent_on(self, subset: str, phase: Phase | None = None) -> float:
        """Epsilon of one phase, or of everything, for one subset without parts."""
        return self.price(
            e.event for e in self.entries_on(subset) if phase in (None, e.charge.phase)
        )

    @property
    def local(self) -> "Account":
        """The same charges as they hold against a server with whom all other sites collude."""
        return replace(self, entries=tuple(e.local for e in self.entries))

    @property
    def trusts(self) -> tuple[SecureSum, ...]:
        """What the charges rest on, each once; none where they hold against any recipient."""
        return tuple(dict.fromkeys(t for e in self.entries if (t := e.charge.trust) is not None))

    def spent_protected(self) -> float:
        """Epsilon of everything that has a finite price, worst subset: what the budget bounds."""
        return max(self.price(self.events_on(leaf)) for leaf in self.leaves)


@dataclass(frozen=True)
class Allotment:
    """What the runs of one hub may spend together, of a budget for life that others spend of, too.

    Its runs are called `PREFIX:RUN`; those of a prefix "" have no colon in their names.
    """

    hub: str  # as the owner calls it
    prefix: str
    budget: Budget

    def of(self, account: Account) -> Account:
        """The charges of the hub's runs alone, under what they may spend together."""
        entries = tuple(e for e in account.entries if self.holds(e.charge.run))
        return replace(account, budget=self.budget, entries=entries)

    def holds(self, run: str) -> bool:
        """Whether a run is one of the hub's."""
        return run.rpartition(":")[0] == self.prefix


def within(part: str, whole: str) -> bool:
    """Whether a subset is another or a part of it, by its name."""
    return part == whole or part.startswith(f"{whole}/")


def number(x: float) -> float | str:
    """JSON has no infinity; `float` reads the word back."""
    return x if math.isfinite(x) else "infinity"


def totals(account: Account) -> dict[str, Any]:
    """Budget, spent, and the parts for release and search, JSON-able; where charges rest on a
    secure sum also on which, and what is spent against all other sites together."""
    trusted: dict[str, Any] = {}
    if account.trusts:
        trusted["trust"] = [t.to_json() | {"assumption": t.assumption} for t in account.trusts]
        trusted["spent_local"] = number(account.local.spent())
    return {
        **trusted,
        "budget": number(account.budget.epsilon),
        "delta": account.budget.delta,
        "unit": account.unit,
        "relation": account.relation,
        "spent": number(account.spent()),
        "spent_protected": number(account.spent_protected()),
        **{phase: number(account.spent(phase)) for phase in PHASES},
        "subsets": {leaf: number(account.spent_on(leaf)) for leaf in account.leaves},
        "charges": len(account.entries),
        "reserved": sum(not e.finished for e in account.entries),
    }
