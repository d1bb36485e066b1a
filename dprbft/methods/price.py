"""What a site's ledger will show once a run is through, before anything is charged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dprbft.site.site import Site
from panas.privacy.accounting.events import Event
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.charge import PHASES, Charge, Entry, Phase

Span = tuple[float, float]
"""The least and the most; what is tuned decides where between them a run will be."""


@dataclass(frozen=True)
class PlannedSpending:
    """Epsilon of each phase by itself, and of all together."""

    phases: Mapping[Phase, Span]
    total: Span
    delta: float  # at which they hold: that of the site's owner


def coming(event: Event, phase: Phase, subset: str = "train") -> Charge:
    """A charge that a run will make, as far as its price goes.

    Args:
        event: the mechanism.
        phase: what of the run it serves.
        subset: which samples are touched.
    """
    return Charge(
        event=event,
        phase=phase,
        mechanism="planned",
        recipient="server",
        sensitivity=None,
        subset=subset,
    )


def spending_of(site: Site, plans: Iterable[Sequence[Charge]]) -> PlannedSpending:
    """What the ledger will show of a run, under one of several plans.

    Args:
        site: whose account it is, with what the run has charged already.
        plans: what the run will still charge, at least one.

    Privacy: charges nothing, and reads no sample.
    """
    return priced(account_of(site), plans)


def account_of(site: Site) -> Account:
    """The account as `panas ledger` shows it of the run, at its owner's delta."""
    return site.ledger.account().as_owned(site.paths.run)


def priced(account: Account, plans: Iterable[Sequence[Charge]]) -> PlannedSpending:
    """What an account will show, under one of several plans.

    Args:
        account: with what counts as spent already.
        plans: what will be charged besides, at least one.
    """
    accounts = [
        replace(account, entries=(*account.entries, *(Entry("", 0.0, c) for c in charges)))
        for charges in plans
    ]
    phases = {phase: span(a.spent(phase) for a in accounts) for phase in PHASES}
    return PlannedSpending(phases, span(a.spent() for a in accounts), account.budget.delta)


def span(values: Iterable[float]) -> Span:
    """The least and the most of some values, at least one."""
    listed = list(values)
    return min(listed), max(listed)
