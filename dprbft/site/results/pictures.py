"""Pictures of a site's search and tuning, drawn from their records."""

from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.paths import history_picture, network_picture, search_file, trials_picture, tune_file
from dprbft.site.results.records import SearchRecord, TuningRecord
from panas.architecture.network import NetworkSpec
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.runtime.store import write_bytes


def draw_search(home: Path, record: SearchRecord, config: RunConfig, spec: NetworkSpec) -> None:
    """Draw the search's history and the winner's network.

    Args:
        home: the site's folder for the run.
        record: of the search.
        config: of the run.
        spec: what all its networks share.
    """
    evolution, size = record.result, config.search.size
    picture = history(
        evolution.records,
        evolution.history,
        evolution.front if size else None,
        size=size or "parameters",
        taken=(record.genome, record.fitness) if config.serves_all("search") else None,
    )
    write_bytes(history_picture(home), picture)
    own = record.spec_from(spec)
    network = drawing(record.genome, own, record.fitness, record.trunk)
    write_bytes(network_picture(home), network)


def draw_tuning(home: Path, record: TuningRecord) -> None:
    """Draw the trials, if any."""
    if record.trials:
        picture = trials(record.trials, record.best or record.settings)
        write_bytes(trials_picture(home), picture)


def draw_missing(home: Path, config: RunConfig, spec: NetworkSpec) -> list[Path]:
    """Draw what a site has a record and no picture of; returns all pictures that it has.

    Args:
        home: the site's folder for the run.
        config: of the run.
        spec: what all its networks share.
    """
    if search_file(home).exists() and not network_picture(home).exists():
        draw_search(home, SearchRecord.read(home), config, spec)
    if tune_file(home).exists() and not trials_picture(home).exists():
        draw_tuning(home, TuningRecord.read(home))
    pictures = (history_picture(home), network_picture(home), trials_picture(home))
    return [picture for picture in pictures if picture.exists()]
