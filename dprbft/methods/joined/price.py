"""What joining, and all that follows, will have cost a site, as its ledger will show it."""

from dataclasses import replace

from dprbft.methods.joined.residual import joining_events
from dprbft.methods.joined.tuning import FEWEST
from dprbft.methods.price import PlannedSpending, account_of, coming, priced
from dprbft.site.site import Site


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon by phase; BudgetExhausted if the site cannot pay. Charges nothing.

    Where rehearsals may find that a residual does not pay, the least is that of a site without.
    """
    histogram, release, residual = joining_events(site)
    sent = [coming(e, "search") for e in histogram] + [coming(e, "release") for e in release]
    plans = [[*sent, *(coming(e, "training") for e in residual)]]
    if may_spare(site):
        plans.append(sent)
    return priced(replace(account_of(site), entries=()), plans)


def may_spare(site: Site) -> bool:
    """Whether trials on public samples may come to it that nothing is to be trained."""
    tunes = site.config.training.noise_multiplier is None and not site.config.stays
    trials = site.config.tuning.config.trials
    return bool(site.budget.private and tunes and trials) and len(site.public) >= FEWEST
