"""A site's plan for its rounds of DP-SGD, and what of it has been spent: kept in its memory.

What a process charged before it died counts as spent. The rounds that are left are then planned
anew, with more noise (`panas.privacy.calibration.rescale_noise`); where no noise is enough, the
site skips the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dprbft.config.schema import rounds_of
from dprbft.methods.price import PlannedSpending, coming, spending_of
from dprbft.site.counting import count_units, counting_event
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, Unprotected
from panas.privacy.calibration import calibrate, rescale_noise
from panas.privacy.ledger.account import within
from panas.privacy.ledger.charge import Charge, Phase, Receipt
from panas.privacy.plan import Plan, TrainingSchedule
from panas.privacy.unit import check_unit
from panas.runtime.errors import BudgetExhausted


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a site still plans on one subset of its samples; `plan` is None without a budget."""

    plan: Plan | None = None
    charges: int = 0  # protected ones on the subset that whole rounds, or what came first, made
    before: int = 0  # of these, those that came before the plan was made
    subset: str = "train"

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return asdict(self)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Spending":
        """Read back `to_json`."""
        plan = record["plan"]
        return Spending(**{**record, "plan": Plan(**plan) if plan else None})

    @property
    def skips(self) -> bool:
        """Whether the budget pays for no further round."""
        return self.plan is not None and self.plan.rounds == 0


@dataclass(frozen=True, kw_only=True)
class Planned:
    """How a site means to spend: DP-SGD each round, and releases besides."""

    batch_size: int
    clip: float
    epochs: int  # passes a round
    steps_a_round: int | None = None  # of an optimiser, in the place of `epochs`
    rounds: int | None = None  # None: all in which the site takes part
    releases: int = 0  # Gaussian ones of the same samples, over all rounds
    release_share: float = 0.3  # of epsilon, sizes their noise
    subset: str = "train"
    samples: int | None = None  # privacy units, a public number; None: those that are trained on


def begin(site: Site, planned: Planned) -> Spending:
    """The least noise that the budget allows; BudgetExhausted if none is enough.

    A plan that fails for the usual number of samples is refused before samples are counted, which
    is charged.
    """
    if not site.budget.private:
        return Spending(subset=planned.subset)
    n = planned.samples
    if n is None and (count := counting_event(site)) is not None:
        _plan(site, planned, site.units, [count])
    plan = _plan(site, planned, count_units(site) if n is None else n, [])
    known = len(_protected(site, planned.subset))
    return Spending(plan=plan, charges=known, before=known, subset=planned.subset)


APART = 8
"""How many times more or fewer samples than usual a site may have, in a plan."""


def spending_for(site: Site, planned: Planned) -> PlannedSpending:
    """Epsilon by phase of all rounds, as the ledger will show it; charges nothing.

    The number of samples is public of the site, or near the usual one. BudgetExhausted if the
    budget does not pay for them.
    """
    if not site.budget.private:
        return spending_of(site, [list(_charges(site, planned, None))])
    count, n = counting_event(site), planned.samples
    counts = [] if n is not None or count is None else [count]
    sizes = [n or site.units] if not counts else [site.units // APART, APART * site.units]
    plans = [_plan(site, planned, size, [*counts]) for size in sizes]
    before = [coming(event, "training") for event in counts]
    return spending_of(site, [[*before, *_charges(site, planned, plan)] for plan in plans])


def _charges(site: Site, planned: Planned, plan: Plan | None) -> Iterator[Charge]:
    """Those of all rounds."""
    rounds = len(rounds_of(site.config, site.id)) if planned.rounds is None else planned.rounds
    for _ in range(rounds):
        event = plan.training_event if plan else Unprotected()
        yield coming(event, "training", planned.subset)
    for _ in range(planned.releases):
        yield coming(plan.release_event if plan else Unprotected(), "release", planned.subset)


def _plan(site: Site, planned: Planned, samples: int, coming: list[Event]) -> Plan:
    """The plan for so many samples, once events that are `coming` are charged, too."""
    rounds = len(rounds_of(site.config, site.id)) if planned.rounds is None else planned.rounds
    (budget, spent), *life = site.bounds(planned.subset)
    plan = calibrate(
        budget,
        TrainingSchedule(
            samples=samples,
            epochs=planned.epochs,
            rounds=rounds,
            steps_a_round=planned.steps_a_round,
            releases=planned.releases,
            release_share=planned.release_share,
            spent=[*spent, *coming],
        ),
        batch_size=planned.batch_size,
        clip=planned.clip,
    )
    for budget, spent in life:
        plan = rescale_noise(plan, budget, (), [*spent, *coming])
    return plan


def current(site: Site, spending: Spending) -> Spending:
    """The same, with more noise where a process that died has charged; `skips` if none helps."""
    plan, own = spending.plan, _protected(site, spending.subset)
    if plan is None or not plan.rounds + plan.releases or len(own) <= spending.charges:
        return spending
    done = own[spending.before :]
    try:
        for budget, spent in site.bounds(spending.subset):
            plan = rescale_noise(plan, budget, done, _before(spent, done))
    except BudgetExhausted:
        return replace(spending, plan=replace(plan, rounds=0, releases=0))
    return replace(spending, plan=plan)


def after_round(site: Site, spending: Spending, *, releases: int = 0) -> Spending:
    """The same after a round of training, and releases, that are charged.

    Args:
        site: for the charges of its ledger.
        spending: before the round.
        releases: how many the round made besides training, 0 or more.
    """
    plan = spending.plan
    if plan is not None:
        rounds, left = max(0, plan.rounds - 1), max(0, plan.releases - releases)
        plan = replace(plan, rounds=rounds, releases=left)
    return replace(spending, plan=plan, charges=len(_protected(site, spending.subset)))


@dataclass(frozen=True)
class Mechanism:
    """What is about to read private samples, as the ledger's line will say it."""

    name: str  # the field's name of it, say "dp-sgd"
    sensitivity: float | None  # L2; None: nothing bounds it
    phase: Phase = "training"
    subset: str = "train"


def charged(site: Site, mechanism: Mechanism, event: Event | None, round: int) -> Receipt:
    """Charge an event (None: without protection) to the site's ledger, before anything is read.

    Use it as `with charged(...) as receipt:` around what reads. BudgetExhausted if it does not fit;
    BadInput if the ledger protects groups, and the samples have none.

    Args:
        site: whose ledger is charged.
        mechanism: name, sensitivity, phase and subset, as the ledger's line has them.
        event: as it is priced; None: without protection, which the run's settings must allow.
        round: from 1.
    """
    return site.ledger.charge(charge_of(site, mechanism, event, round))


def charge_of(site: Site, mechanism: Mechanism, event: Event | None, round: int) -> Charge:
    """What `charged` charges.

    Args:
        site: its unit of privacy is checked against its samples.
        mechanism: name, sensitivity, phase and subset, as the ledger's line has them.
        event: as it is priced; None: without protection.
        round: from 1.
    """
    check_unit(site.account.unit, site.data.train.groups)
    return Charge(
        event=Unprotected() if event is None else event,
        phase=mechanism.phase,
        mechanism=mechanism.name,
        recipient="server",
        sensitivity=mechanism.sensitivity if event is not None else None,
        subset=mechanism.subset,
        round=round,
    )


def _protected(site: Site, subset: str) -> list[Event]:
    return [
        e.event
        for e in site.account.entries
        if within(subset, e.charge.subset) and not isinstance(e.event, Unprotected)
    ]


def _before(spent: Sequence[Event], done: Sequence[Event]) -> list[Event]:
    left = list(spent)
    for event in done:
        left.remove(event)
    return left
