"""The stages of a run, each resumable: search, tune, train. (The audit is `attacks.audit.run`.)

A stage writes each client's result as it comes and skips the clients that have one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from dprbft import paths
from dprbft.config.schema import RunConfig, participants
from dprbft.engines import verbs
from dprbft.run.bookkeeping import timed
from dprbft.run.directory import OpenRun, missing
from dprbft.run.progress import Progress, watch_logs
from dprbft.server.events import ClientSearched, ClientTuned, Event
from dprbft.server.rounds import train_federation
from dprbft.simulation.federation import load_federation
from dprbft.site.records import SearchRecord, TuningRecord
from dprbft.site.search import search_price
from dprbft.site.site import build_client, spec_of
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.runtime.store import write_bytes
from panas.search_modes.mode import SearchPrice

R = TypeVar("R", SearchRecord, TuningRecord)


@dataclass(frozen=True)
class _ClientStage(Generic[R]):
    """A stage in which every client works for itself."""

    name: str
    work: Callable[[verbs.Task], R]
    file: Callable[[Path, int], Path]  # of a client's record
    log: Callable[[Path, int], Path]  # of its steps
    draw: Callable[[Path, RunConfig, R], None]
    event: Callable[[R], Event]


def _draw_search(run: Path, config: RunConfig, record: SearchRecord) -> None:
    spec, found, size = spec_of(config, load_federation(config)), record.result, config.search.size
    front = found.front if size else None
    picture = history(found.records, found.history, front, size=size or "parameters")
    write_bytes(paths.history_picture(run, record.client), picture)
    network = drawing(record.genome, spec, record.fitness)
    write_bytes(paths.network_picture(run, record.client), network)


def _draw_tuning(run: Path, config: RunConfig, record: TuningRecord) -> None:
    if record.trials:
        write_bytes(
            paths.trials_picture(run, record.client), trials(record.trials, record.settings)
        )


SEARCH = _ClientStage(
    "search", verbs.search, paths.search_file, paths.search_log, _draw_search, ClientSearched
)
TUNE = _ClientStage("tune", verbs.tune, paths.tune_file, paths.tune_log, _draw_tuning, ClientTuned)


def search_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> None:
    """Search the architecture of the clients that have none yet (all, by default).

    `progress` hears of every generation of every client.
    """
    _over_clients(run, SEARCH, clients, progress)


def tune_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> None:
    """Tune the DP-SGD settings of the clients that have none yet (all, by default).

    `progress` hears of every trial of every client.
    """
    for i in missing(run.config, clients, lambda i: paths.tune_file(run.folder, i)):
        SearchRecord.read(run.folder, i)
    _over_clients(run, TUNE, clients, progress)


def train_stage(run: OpenRun) -> None:
    """Train the federation from what search and tuning left."""
    for i in range(run.config.federation.clients):
        SearchRecord.read(run.folder, i)
        TuningRecord.read(run.folder, i)
    with timed(run.folder, "train"):
        train_federation(run.folder, run.config, run.engine, run.device, run.listener)


def search_prices(
    run: Path, config: RunConfig, clients: Sequence[int] | None = None
) -> dict[int, SearchPrice]:
    """What the searches still to come will have cost, by client.

    The ledger will show the same epsilon for the search once it, and tuning, are through.
    """
    todo = missing(config, clients, lambda i: paths.search_file(run, i))
    return {i: search_price(build_client(config, i, run, "cpu"), run) for i in todo}


def event_counts(config: RunConfig, clients: int) -> dict[str, int]:
    """How many events each stage tells for so many clients, for a progress bar."""
    rounds = participants(config)
    return {
        "search": clients,
        "tune": clients,
        "train": config.federation.clients + sum(len(c) + 1 for c in rounds),
    }


def last_generation(config: RunConfig) -> int:
    """Number of the last generation of each search; a random one has the first alone."""
    return config.search.evolution.generations if config.search.algorithm == "genetic" else 0


def _over_clients(
    run: OpenRun, stage: _ClientStage[R], clients: Sequence[int] | None, progress: Progress | None
) -> None:
    """Run a stage for the clients that have no record yet."""
    folder, config = run.folder, run.config

    def left(among: Sequence[int] | None) -> list[int]:
        return missing(config, among, lambda i: stage.file(folder, i))

    todo, text = left(clients), config.model_dump_json()
    with (
        timed(folder, stage.name, lambda: not left(None)),
        watch_logs({i: stage.log(folder, i) for i in todo}, progress) as catch_up,
    ):
        tasks = [verbs.Task(text, folder, i, run.device, run.engine.inner) for i in todo]
        for _, record in run.engine.map(stage.work, tasks):
            catch_up()
            stage.draw(folder, config, record)
            record.write(folder)
            run.listener(stage.event(record))
