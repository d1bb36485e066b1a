"""The stages of a run, each resumable: search, tune, train. (The audit is `attacks.audit.run`.)

Each asks the sites, which keep what they find in their own folders and skip what they have.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from dprbft import paths
from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import SiteRefusal, check_reply
from dprbft.heads import to_broadcast
from dprbft.messages import Code, Verb
from dprbft.methods import method_named
from dprbft.run import events
from dprbft.run.bookkeeping import timed
from dprbft.run.directory import OpenRun, chosen
from dprbft.run.progress import Progress, watch_logs
from dprbft.server import events as server_events
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.rounds import Server
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.results.scores import read_scores
from dprbft.site.search import search_price
from dprbft.site.site import open_client, spec_of
from panas.runtime.errors import BadInput, BudgetExhausted, PanasError
from panas.runtime.seeds import stream, torch_generator
from panas.runtime.store import read_json
from panas.search_modes.mode import SearchPrice


def join_stage(run: OpenRun, clients: Sequence[int] | None = None) -> None:
    """Greet the sites: each asks its ledger for the run's share, and checks its data.

    BudgetExhausted or BadInput names the first site that refuses, once all have answered; none has
    been charged anything.
    """
    sites = chosen(run.config, clients)
    _ask(run, Verb.HELLO, {i: run.view.hello(i) for i in sites})


def search_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> None:
    """Search the architecture of the clients that have none yet (all, by default).

    `progress` hears of every generation of every client.
    """
    _own_stage(run, "search", clients, progress)


def tune_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> None:
    """Tune the DP-SGD settings of the clients that have none yet (all, by default).

    `progress` hears of every trial of every client.
    """
    for i in chosen(run.config, clients):
        SearchRecord.read(run.view.places[i].home)
    _own_stage(run, "tune", clients, progress)


def train_stage(run: OpenRun) -> None:
    """Train the federation from what search and tuning left."""
    for place in run.view.places:
        SearchRecord.read(place.home)
        TuningRecord.read(place.home)
    join_stage(run)
    with timed(run.folder, "train"):
        try:
            _server(run).train()
        except SiteRefusal as refusal:
            raise reason(run, refusal) from refusal
        finally:
            # Also when the budget ran out or the user stopped: what is whole is kept.
            everyone = dict.fromkeys(range(run.config.federation.clients), b"")
            for _ in run.engine.call(Verb.EXPORT, everyone):
                pass


def _server(run: OpenRun) -> Server:
    config, facts = run.config, run.view.facts
    spec = spec_of(config, facts)
    head = spec.head(torch_generator(stream(config.seed, "head")))
    return Server(
        files=ServerFiles(paths.server_folder(run.folder), spec.width, facts.classes),
        config=config,
        engine=run.engine,
        answer=method_named(config.federation.method).server_round,
        first=to_broadcast(head, 0),
        listener=lambda event: run.listener(_seen(run, event)),
    )


def _seen(run: OpenRun, event: server_events.Event) -> events.Event:
    """What the server tells, with what a simulator sees besides."""
    places = run.view.places
    match event:
        case server_events.SiteReady(i):
            started = read_scores(places[i].home)[0]
            return events.SiteStarted(places[i].name, started.validation)
        case server_events.SiteTrained(i, round):
            return events.SiteTrained(places[i].name, round)
        case server_events.SiteAbsent(i, round):
            return events.SiteMissed(places[i].name, round)
        case server_events.RoundEnded(round, rounds, sites):
            scores = [read_scores(places[i].home) for i in sites]
            kept = [own[-1].kept for own in scores if own]
            return events.RoundEnded(round, rounds, fmean(kept) if kept else 0.0)


def reason(run: OpenRun, refusal: SiteRefusal) -> PanasError:
    """Why a site on this machine has refused, from its own folder."""
    place = run.view.places[refusal.site]
    if refusal.code is Code.ABSENT:
        return BadInput(
            f"expected site {place.name} at {place.folder}, found none; put it back, and go on "
            "with --resume"
        )
    text = f"{place.name}: {read_json(paths.refusal_file(place.home))['reason']}"
    return BudgetExhausted(text) if refusal.code is Code.NO_BUDGET else BadInput(text)


def search_prices(run: OpenRun, clients: Sequence[int] | None = None) -> dict[int, SearchPrice]:
    """What the searches still to come will have cost, by client.

    The ledger will show the same epsilon for the search once it, and tuning, are through.
    """
    places = run.view.places
    todo = [i for i in chosen(run.config, clients) if not _done("search", places[i].home)]
    return {i: search_price(open_client(places[i])) for i in todo}


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


LOGS = {"search": paths.search_log, "tune": paths.tune_log}
FILES = {"search": paths.search_file, "tune": paths.tune_file}


def _done(stage: str, home: Path) -> bool:
    return FILES[stage](home).exists()


def _own_stage(
    run: OpenRun, stage: str, clients: Sequence[int] | None, progress: Progress | None
) -> None:
    """A stage in which every site works for itself."""
    places, sites = run.view.places, chosen(run.config, clients)
    join_stage(run, sites)
    todo = [i for i in sites if not _done(stage, places[i].home)]
    logs = {i: LOGS[stage](places[i].home) for i in todo}

    def whole() -> bool:
        return all(_done(stage, place.home) for place in places)

    with timed(run.folder, stage, whole), watch_logs(logs, progress) as catch_up:

        def tell(site: int) -> None:
            catch_up()
            name, home = places[site].name, places[site].home
            if stage == "search":
                run.listener(events.SiteSearched(name, SearchRecord.read(home)))
            else:
                run.listener(events.SiteTuned(name, TuningRecord.read(home)))

        _ask(run, Verb(stage), dict.fromkeys(todo, b""), tell)


def _ask(
    run: OpenRun, verb: Verb, messages: dict[int, bytes], tell: Callable[[int], None] | None = None
) -> None:
    """Ask sites; raise for the first that refused once all have answered."""
    refusals = dict[int, SiteRefusal]()
    for site, reply in run.engine.call(verb, messages):
        try:
            check_reply(site, reply)
        except SiteRefusal as refusal:
            refusals[site] = refusal
            continue
        if tell:
            tell(site)
    for site in sorted(refusals):
        raise reason(run, refusals[site])
