"""What a site prepares once, before it trains: its architecture and its DP-SGD settings."""

from collections.abc import Callable

from dprbft.paths import history_picture, network_picture, search_file, trials_picture, tune_file
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.site import Site
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.runtime.store import write_bytes


def search_once(site: Site, search: Callable[[Site], SearchRecord]) -> None:
    """Write the search's record, its history and the network that it found, once."""
    if not search_file(site.home).exists():
        record = search(site)
        draw_search(site, record)
        record.write(site.home)


def tune_once(site: Site, tune: Callable[[Site], TuningRecord]) -> None:
    """Write the record of the DP-SGD settings, and the trials, where there were some, once."""
    if not tune_file(site.home).exists():
        record = tune(site)
        draw_tuning(site, record)
        record.write(site.home)


def draw_search(site: Site, record: SearchRecord) -> None:
    """Draw the search's history and the winner's network."""
    evolution, size = record.result, site.config.search.size
    picture = history(
        evolution.records,
        evolution.history,
        evolution.front if size else None,
        size=size or "parameters",
        taken=(record.genome, record.fitness) if site.config.serves_all("search") else None,
    )
    write_bytes(history_picture(site.home), picture)
    write_bytes(network_picture(site.home), drawing(record.genome, site.spec, record.fitness))


def draw_tuning(site: Site, record: TuningRecord) -> None:
    """Draw the trials, if any."""
    if record.trials:
        picture = trials(record.trials, record.best or record.settings)
        write_bytes(trials_picture(site.home), picture)
