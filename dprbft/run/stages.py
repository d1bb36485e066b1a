"""The stages of a run, each resumable: search, tune, train. (The audit is `attacks.audit.run`.)

Each asks the sites, which keep what they find in their own folders and skip what they have. A site
that is not there is left out of the stage, which is done for it when the run is resumed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from dprbft import paths
from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Code, Verb
from dprbft.run import events
from dprbft.run.bookkeeping import STAGES, is_done, timed
from dprbft.run.directory import Ground, OpenRun, chosen
from dprbft.run.exchange import exchange, reason, server_files
from dprbft.run.progress import Progress, watch_logs
from dprbft.run.view import has_results
from dprbft.site.predictor.price import JoiningPrice, joining_price
from dprbft.site.predictor.state import has_head
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.results.report import SiteReport
from dprbft.site.search import search_price
from dprbft.site.site import open_client
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive
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


def stages_of(config: RunConfig) -> tuple[str, ...]:
    """The stages of a run, in their order; without samples to learn from there is no search."""
    if config.federation.exchanges_updates:
        return ("train",)
    if not config.federation.joins_first:
        return STAGES[1:]
    return tuple(stage for stage in STAGES if stage != "search" or config.has_inputs)


def exchange_stage(run: OpenRun) -> None:
    """The one round of sites that join before they search, once for all that are there; nothing
    where the method has rounds of networks. A site that comes later gets the head alone."""
    if not run.config.federation.joins_first:
        return
    with exclusive(run.folder / "join"):
        there, files = join_stage(run, stage="join"), server_files(run)
        if not is_done(run.folder, "join"):
            with timed(run.folder, "join"):
                exchange(run, frozenset(there))
        places = run.view.places
        late = [i for i in there if not has_head(places[i].home)]
        answer = files.broadcast(files.latest() or 0).to_bytes()

        def tell(site: int) -> None:
            run.listener(events.SiteReleased(places[site].name, sent=False))

        _ask(run, Verb.FINISH, dict.fromkeys(late, answer), tell)


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
        if run.view.places[i].there and "search" in stages_of(run.config):
            SearchRecord.read(run.view.places[i].home)
    return _own_stage(run, "tune", clients, progress)


def train_stage(run: OpenRun) -> None:
    """Train the federation of those clients that search and tuning have left their records."""
    exchange_stage(run)
    sites = _tuned(run, join_stage(run, stage="train"))
    exported = set[int]()

    def whole() -> bool:
        return len(exported) == run.config.federation.clients

    with timed(run.folder, "train", whole):
        try:
            if run.config.federation.joins_first:
                _ask(run, Verb.TRAIN, dict.fromkeys(sorted(sites), b""), _tell_kept(run))
            else:
                exchange(run, sites)
        finally:
            # Also when the budget ran out or the user stopped: what is whole is kept.
            for site, reply in run.engine.call(Verb.EXPORT, dict.fromkeys(sorted(sites), b"")):
                if reply.code is Code.DONE and has_results(run.view.places[site]):
                    exported.add(site)


def _tuned(run: OpenRun, sites: Sequence[int]) -> frozenset[int]:
    """Those of the sites that went through search and tuning, at least one; the others are told."""
    places = run.view.places
    homes = {i: places[i].home for i in sites}
    before = [stage for stage in stages_of(run.config) if stage in FILES]
    behind = [i for i in sites if not all(_done(stage, homes[i]) for stage in before)]
    for i in [i for i in sites if i not in behind] or sites:  # of them all: says what is missing
        for stage in before:
            (SearchRecord if stage == "search" else TuningRecord).read(homes[i])
    for i in behind:
        run.listener(events.SiteLeftOut(places[i].name, "train", "behind"))
    return frozenset(sites).difference(behind)


def search_prices(run: OpenRun, clients: Sequence[int] | None = None) -> dict[int, SearchPrice]:
    """What the searches still to come will have cost, by client.

    The ledger will show the same epsilon for the search once it, and tuning, are through.
    """
    places = run.view.places
    todo = [i for i in chosen(run.config, clients) if not _done("search", places[i].home)]
    return {i: search_price(open_client(places[i])) for i in todo if places[i].there}


def joining_prices(run: OpenRun, clients: Sequence[int] | None = None) -> dict[int, JoiningPrice]:
    """What joining and a residual will have cost, by client; without those that cannot pay."""
    places, found = run.view.places, dict[int, JoiningPrice]()
    for i in chosen(run.config, clients):
        with suppress(BudgetExhausted):
            if places[i].there:
                found[i] = joining_price(open_client(places[i]))
    return found


def event_counts(config: RunConfig, clients: int) -> dict[str, int]:
    """How many events each stage tells for so many clients, for a progress bar."""
    everyone = config.federation.clients
    rounds = sum(len(c) + 1 for c in participants(config))
    counts = {"search": clients, "tune": clients}
    if config.federation.joins_first:
        return counts | {"join": rounds, "train": everyone}
    return counts | {"train": everyone + rounds}


def last_generation(config: RunConfig) -> int:
    """Number of the last generation of each search; a random one has the first alone."""
    return config.search.evolution.generations if config.search.algorithm == "genetic" else 0


LOGS = {"search": paths.search_log, "tune": paths.tune_log}
FILES = {"search": paths.search_file, "tune": paths.tune_file}


def _done(stage: str, home: Path) -> bool:
    return FILES[stage](home).exists()


def _tell_kept(run: OpenRun) -> Callable[[int], None]:
    """What tells of a site's predictor once it is made."""
    places = run.view.places

    def tell(site: int) -> None:
        if places[site].there:
            report = SiteReport.read(places[site].home)
            kept = events.SiteKept(places[site].name, report.shares, report.steps.joined)
            run.listener(kept)

    return tell


def _own_stage(
    run: OpenRun,
    stage: Literal["search", "tune"],
    clients: Sequence[int] | None,
    progress: Progress | None,
) -> list[int]:
    """A stage in which every site works for itself; returns those that are through."""
    exchange_stage(run)
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
