"""What joining, and all that follows, will have cost a site, as its ledger will show it."""

from dprbft.methods.joined.residual import joining_price
from dprbft.methods.joined.tuning import FEWEST
from dprbft.methods.price import PlannedSpending
from dprbft.site.site import Site


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon by phase; BudgetExhausted if the site cannot pay. Charges nothing.

    Where rehearsals may find that a residual does not pay, the least is that of a site without.
    """
    price = joining_price(site)
    least, together = (0.0, price.sent) if may_spare(site) else (price.residual, price.together)
    return PlannedSpending(
        {
            "search": (price.histogram, price.histogram),
            "training": (least, price.residual),
            "release": (price.release, price.release),
        },
        (together, price.together),
    )


def may_spare(site: Site) -> bool:
    """Whether trials on public samples may come to it that nothing is to be trained."""
    tunes = site.config.training.noise_multiplier is None and not site.config.stays
    trials = site.config.tuning.config.trials
    return bool(site.budget.private and tunes and trials) and len(site.public) >= FEWEST
