"""What joining will have cost a site, known before it begins."""

from dataclasses import dataclass

from dprbft.methods.joined.budget import (
    histogram_event,
    planned_release,
    recipe_of,
    residual_plan,
    share_of,
)
from dprbft.methods.joined.residual import settings_by
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, Unprotected


@dataclass(frozen=True)
class JoiningPrice:
    """Epsilon of what a site spends, each by itself, and of all together, which is less."""

    histogram: float
    release: float
    residual: float  # of its DP-SGD, by the settings of the rule
    together: float


def joining_price(site: Site) -> JoiningPrice:
    """What a site has spent, or will; BudgetExhausted if it cannot pay. Charges nothing."""
    account = site.account
    if not site.budget.private:
        free: list[Event] = [Unprotected()]
        return JoiningPrice(*(account.price(free) for _ in range(4)))
    histogram, release = account.events("search"), account.events("release")
    residual, coming = account.events("training"), list[Event]()
    if not histogram:
        histogram = histogram_event(site.budget, site.config.privacy.histogram_share)
        coming += histogram
    if not release and not residual:
        release = [event] if (event := planned_release(site)) else []
        coming += release
    if not residual and not site.config.stays:
        settings = settings_by(site, recipe_of(site, share_of(site) if release else 0.0))
        residual = [residual_plan(site, settings, coming).training_event]
    parts = (histogram, release, residual)
    together = [event for part in parts for event in part]
    return JoiningPrice(*(account.price(events) for events in (*parts, together)))
