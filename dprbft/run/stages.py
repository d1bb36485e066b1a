"""The stages of a run, each resumable: search, tune, train. (The audit is `attacks.audit.run`.)

Each asks the sites, which keep what they find in their own folders and skip what they have. A site
that is not there is left out of the stage, which is done for it when the run is resumed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from dprbft import paths
from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import SiteRefusal
from dprbft.heads import to_broadcast
from dprbft.messages import Code, Verb
from dprbft.methods import method_named
from dprbft.run import events
from dprbft.run.bookkeeping import timed
from dprbft.run.directory import Ground, OpenRun, chosen
from dprbft.run.progress import Progress, watch_logs
from dprbft.run.view import has_results
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


def join_stage(
    run: OpenRun, clients: Sequence[int] | None = None, stage: events.StageName = "start"
) -> list[int]:
    """Greet the sites: each asks its ledger for the run's share, and checks its data.

    Returns those that are there, for the stage that begins. BudgetExhausted or BadInput names the
    first site that refuses, once all have answered; none has been charged anything.
    """
    sites = chosen(run.config, clients)
    there = _ask(run, Verb.HELLO, {i: run.view.hello(i) for i in sites})
    return _go_on(run, stage, sites, there)


def begin(run: OpenRun, ground: Ground) -> list[int]:
    """Greet the sites of a run, which leaves nothing behind where one refuses and it is new."""
    try:
        return join_stage(run)
    except (BadInput, BudgetExhausted):
        if ground.new:
            everyone = range(run.config.federation.clients)
            for _ in run.engine.call(Verb.LEAVE, {i: run.view.hello(i) for i in everyone}):
                pass
            inside = [p for p in run.view.places if p.folder.is_relative_to(run.folder)]
            if not any(paths.hello_file(place.home).exists() for place in inside):
                ground.restore()
        raise


def search_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> list[int]:
    """Search the architecture of the clients that have none yet (all, by default).

    `progress` hears of every generation of every client. Returns the clients that have one now.
    """
    return _own_stage(run, "search", clients, progress)


def tune_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> list[int]:
    """Tune the DP-SGD settings of the clients that have none yet (all, by default).

    `progress` hears of every trial of every client. Returns the clients that have some now.
    """
    for i in chosen(run.config, clients):
        if run.view.places[i].there:
            SearchRecord.read(run.view.places[i].home)
    return _own_stage(run, "tune", clients, progress)


def train_stage(run: OpenRun) -> None:
    """Train the federation of those clients that search and tuning have left their records."""
    sites = _tuned(run, join_stage(run, stage="train"))
    exported = set[int]()

    def whole() -> bool:
        return len(exported) == run.config.federation.clients

    with timed(run.folder, "train", whole):
        try:
            _server(run, sites).train()
        except SiteRefusal as refusal:
            raise reason(run, refusal) from refusal
        finally:
            # Also when the budget ran out or the user stopped: what is whole is kept.
            for site, reply in run.engine.call(Verb.EXPORT, dict.fromkeys(sorted(sites), b"")):
                if reply.code is Code.DONE and has_results(run.view.places[site]):
                    exported.add(site)


def _tuned(run: OpenRun, sites: Sequence[int]) -> frozenset[int]:
    """Those of the sites that went through search and tuning, at least one; the others are told."""
    places = run.view.places
    homes = {i: places[i].home for i in sites}
    behind = [i for i in sites if not (_done("search", homes[i]) and _done("tune", homes[i]))]
    for i in [i for i in sites if i not in behind] or sites:  # of them all: says what is missing
        SearchRecord.read(homes[i])
        TuningRecord.read(homes[i])
    for i in behind:
        run.listener(events.SiteLeftOut(places[i].name, "train", behind=True))
    return frozenset(sites).difference(behind)


def _server(run: OpenRun, sites: frozenset[int]) -> Server:
    config, facts = run.config, run.view.facts
    spec = spec_of(config, facts)
    head = spec.head(torch_generator(stream(config.seed, "head")))
    return Server(
        files=ServerFiles(paths.server_folder(run.folder), spec.width, facts.classes),
        config=config,
        sites=sites,
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
            for started in read_scores(places[i].home)[:1]:
                return events.SiteStarted(places[i].name, started.validation)
            return events.SiteLeftOut(places[i].name, "train")  # it has gone meanwhile
        case server_events.SiteTrained(i, round):
            return events.SiteTrained(places[i].name, round)
        case server_events.SiteAbsent(i, 0):
            return events.SiteLeftOut(places[i].name, "train")
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
    return {i: search_price(open_client(places[i])) for i in todo if places[i].there}


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
    run: OpenRun,
    stage: Literal["search", "tune"],
    clients: Sequence[int] | None,
    progress: Progress | None,
) -> list[int]:
    """A stage in which every site works for itself; returns those that are through."""
    places, sites = run.view.places, join_stage(run, clients, stage)
    todo = [i for i in sites if not _done(stage, places[i].home)]
    logs = {places[i].name: LOGS[stage](places[i].home) for i in todo}

    def whole() -> bool:
        return all(_done(stage, place.home) for place in places)

    with timed(run.folder, stage, whole), watch_logs(logs, progress) as catch_up:

        def tell(site: int) -> None:
            catch_up()
            name, home = places[site].name, places[site].home
            if not places[site].there:  # it has gone meanwhile
                return
            if stage == "search":
                run.listener(events.SiteSearched(name, SearchRecord.read(home)))
            else:
                run.listener(events.SiteTuned(name, TuningRecord.read(home)))

        there = _ask(run, Verb(stage), dict.fromkeys(todo, b""), tell)
        return _go_on(run, stage, sites, sorted({*sites} - {*todo} | {*there}))


def _ask(
    run: OpenRun,
    verb: Verb,
    messages: dict[int, bytes],
    tell: Callable[[int], None] = lambda site: None,
) -> list[int]:
    """Ask sites; returns those that are there. Raises for the first that refused once all have
    answered."""
    codes = dict[int, Code]()
    for site, reply in run.engine.call(verb, messages):
        codes[site] = reply.code
        if reply.code is Code.DONE:
            tell(site)
    there = sorted(site for site, code in codes.items() if code is not Code.ABSENT)
    for site in there:
        if codes[site] is not Code.DONE:
            raise reason(run, SiteRefusal(site, codes[site]))
    return there


def _go_on(
    run: OpenRun, stage: events.StageName, sites: Sequence[int], there: list[int]
) -> list[int]:
    """Tell of the sites that a stage goes on without; BadInput if that is all of them."""
    if sites and not there:
        raise reason(run, SiteRefusal(sites[0], Code.ABSENT))
    for site in sites:
        if site not in there:
            run.listener(events.SiteLeftOut(run.view.places[site].name, stage))
    return there
