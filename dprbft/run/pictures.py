"""Pictures of what a client's search and tuning came to, beside its records."""

from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.paths import history_picture, network_picture, trials_picture
from dprbft.simulation.federation import load_federation
from dprbft.site.records import SearchRecord, TuningRecord
from dprbft.site.site import spec_of
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.runtime.store import write_bytes


def draw_search(run: Path, config: RunConfig, record: SearchRecord) -> None:
    """Draw how a search went, and the network that won it."""
    spec, found = spec_of(config, load_federation(config)), record.result
    network = drawing(record.genome, spec, record.fitness)
    write_bytes(network_picture(run, record.client), network)
    size = config.search.size
    picture = history(
        found.records,
        found.history,
        found.front if size else None,
        size=size or "parameters",
    )
    write_bytes(history_picture(run, record.client), picture)


def draw_tuning(run: Path, config: RunConfig, record: TuningRecord) -> None:
    """Draw the trials of a tuning, if there were any."""
    if record.trials:
        write_bytes(trials_picture(run, record.client), trials(record.trials, record.settings))
