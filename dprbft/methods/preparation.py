"""What a site prepares once, before it trains: its architecture and its DP-SGD settings."""

from collections.abc import Callable

from dprbft.paths import search_file, tune_file
from dprbft.site.results.pictures import draw_search, draw_tuning
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.site import Site


def search_once(site: Site, search: Callable[[Site], SearchRecord]) -> None:
    """Write the record of the search, once."""
    if not search_file(site.home).exists():
        record = search(site)
        if _is_drawn(site):
            draw_search(site.home, record, site.config, site.spec)
        record.write(site.home)


def tune_once(site: Site, tune: Callable[[Site], TuningRecord]) -> None:
    """Write the record of the DP-SGD settings, once."""
    if not tune_file(site.home).exists():
        record = tune(site)
        if _is_drawn(site):
            draw_tuning(site.home, record)
        record.write(site.home)


def _is_drawn(site: Site) -> bool:
    """Whether pictures are drawn now: where whoever leads the run cannot draw them later."""
    return bool(site.config.federation.remote)
