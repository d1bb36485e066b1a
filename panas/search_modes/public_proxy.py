"""`public-proxy`: public samples, resampled to the site's noised label histogram.

Privacy: the search and what is tuned on its data depend on private samples through the histogram
alone, which is charged before it is counted. If the budget affords none, all classes count alike.
"""

import math

import torch

from panas.data.splits import SearchData, proxy_data
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.privacy.calibration import release_multiplier
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import label_histogram
from panas.runtime.errors import BudgetExhausted
from panas.search_modes.mode import SearchMode, SearchPrice, SearchSite


def _price(site: SearchSite, paid: bool) -> SearchPrice:
    account, event = site.account, _event(site)
    before = account.events("search")
    if isinstance(event, Unprotected):
        return SearchPrice(math.inf, "unbounded", event)
    if paid:
        return SearchPrice(account.price(before), "histogram kept")
    budget = account.budget.epsilon
    if event is None or account.price([*account.events_on("train"), event]) > budget:
        return SearchPrice(account.price(before), "no histogram")
    return SearchPrice(account.price([*before, event]), "histogram", event)


def _pay(site: SearchSite) -> list[float]:
    """Charge the histogram, and draw it with noise from the operating system."""
    event = _event(site)
    alike = [1.0] * site.train.classes
    if event is None:
        return alike
    try:
        noised = label_histogram(
            lambda: (site.train.y, site.train.groups),
            classes=site.train.classes,
            event=event,
            ledger=site.ledger,
            noise=SystemNoise(),
            recipient=site.recipient,
        )
    except BudgetExhausted:
        return alike  # searches that died have spent what it costs
    return [float(x) for x in noised]


def _data(site: SearchSite, histogram: list[float] | None) -> SearchData:
    """As many public samples as the site has, in its class frequencies."""
    counts = torch.tensor(histogram) if histogram else torch.ones(site.train.classes)
    rng = site.rng("search-data")
    return proxy_data(site.public, counts, samples=site.units, rng=rng)


def _event(site: SearchSite) -> Gaussian | Unprotected | None:
    """What the histogram is charged as; None if no noise is enough for the budget."""
    budget = site.account.budget
    if not budget.private:
        return Unprotected()
    try:
        return Gaussian(release_multiplier(budget, 1, site.histogram_share))
    except BudgetExhausted:
        return None


MODE = SearchMode(price=_price, pay=_pay, data=_data, needs_public=True)
