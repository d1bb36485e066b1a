"""Pictures of a site's search and tuning, in its own folder."""

from dprbft.paths import history_picture, network_picture, trials_picture
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.site import Site
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.runtime.store import write_bytes


def draw_search(site: Site, record: SearchRecord) -> None:
    """The search's history, and the network that it found."""
    result, size = record.result, site.config.search.size
    front = result.front if size else None
    picture = history(
        result.records,
        result.history,
        front,
        size=size or "parameters",
        taken=(record.genome, record.fitness) if site.config.serves_all("search") else None,
    )
    write_bytes(history_picture(site.home), picture)
    write_bytes(network_picture(site.home), drawing(record.genome, site.spec, record.fitness))


def draw_tuning(site: Site, record: TuningRecord) -> None:
    """The trials, where there were some."""
    if record.trials:
        write_bytes(
            trials_picture(site.home), trials(record.trials, record.best or record.settings)
        )
