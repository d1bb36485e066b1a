"""`unaccounted`: the paper's way, on the private search split as it is.

Privacy: none. Nothing bounds what architecture and settings tell of the search split; the ledger
says epsilon infinity, and is charged before the split is read.
"""

import math

from panas.data.splits import SearchData, private_data
from panas.privacy.accounting.events import Unprotected
from panas.privacy.ledger.charge import Charge
from panas.search_modes.mode import SearchMode, SearchPrice, SearchSite


def _price(site: SearchSite, paid: bool) -> SearchPrice:
    return SearchPrice(math.inf, "unbounded", Unprotected())


def _pay(site: SearchSite) -> None:
    charge = Charge(
        event=Unprotected(),
        phase="search",
        mechanism="search on private samples",
        recipient="whoever sees the architecture or the settings",
        sensitivity=None,
        subset="search",
    )
    with site.ledger.charge(charge):
        pass


def _data(site: SearchSite, histogram: list[float] | None) -> SearchData:
    """The search split, and the public samples that a warm start would see."""
    public = site.public if site.warm_start else site.public.take([])
    return private_data(site.search, public, site.rng("search-data"))


MODE = SearchMode(
    price=_price,
    pay=_pay,
    data=_data,
    protected=False,
    least_search=4,  # with fewer there would be none to validate on
)
