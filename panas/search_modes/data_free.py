"""`data-free`: genomes are scored on noise (`panas.evolution.fitness`).

Privacy: no sample is read, nobody's; epsilon 0. A genome scores the same at all sites.
"""

from panas.data.splits import SearchData
from panas.runtime.errors import BadInput
from panas.search_modes.mode import SearchMode, SearchPrice, SearchSite


def _price(site: SearchSite, paid: bool) -> SearchPrice:
    return SearchPrice(0.0, "noise")


def _pay(site: SearchSite) -> None:
    """Charge nothing."""


def _data(site: SearchSite, histogram: list[float] | None) -> SearchData:
    raise BadInput("expected a search mode that looks at samples, got data-free; use another")


MODE = SearchMode(price=_price, pay=_pay, data=_data, reads_samples=False)
