"""The stages of a run, each resumable: join, search, tune, train; not all methods have all.
(The audit is `attacks.audit.run`.)

Each asks the sites, which keep what they find in their own folders and skip what they have. A site
that is not there is left out of the stage, which is done for it when the run is resumed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

from dprbft import paths
from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Code, Verb
from dprbft.methods import spending_planner
from dprbft.methods.joined.residual import JoiningPrice, joining_price
from dprbft.methods.price import PlannedSpending
from dprbft.run import events
from dprbft.run.bookkeeping import is_done, timed
from dprbft.run.directory import Ground, OpenRun, chosen
from dprbft.run.exchange import exchange, server_files
from dprbft.run.progress.logs import Progress, watch_logs
from dprbft.run.sites.known import Step
from dprbft.site.search import search_price
from dprbft.site.site import open_site
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive
from panas.search_modes.mode import SearchPrice


def join_stage(
    run: OpenRun, clients: Sequence[int] | None = None, stage: events.StageName = "start"
) -> list[int]:
    """Greet the sites: each asks its ledger for the run's share, and checks its data.

    Returns those that are there. BudgetExhausted or BadInput names the first site that refuses,
    once all have answered; none has been charged anything.

    Args:
        run: that is open.
        clients: numbers of the sites to greet; None: all.
        stage: that begins with this, for what is reported of absent sites.
    """
    sites = chosen(run.config, clients)
    known = run.sites
    present = _ask(run, Verb.HELLO, {i: known.hello(i) for i in sites})
    return _go_on(run, stage, sites, present)


def begin(run: OpenRun, ground: Ground) -> list[int]:
    """Greet the sites of a run, which leaves nothing behind where one refuses and it is new."""
    try:
        return join_stage(run)
    except (BadInput, BudgetExhausted):
        if ground.new:
            everyone = range(run.config.federation.clients)
            for _ in run.engine.call(Verb.LEAVE, {i: run.sites.hello(i) for i in everyone}):
                pass
            sites = () if run.elsewhere else run.view.sites
            inside = [p for p in sites if p.folder.is_relative_to(run.folder)]
            if not any(paths.hello_file(site_paths.home).exists() for site_paths in inside):
                ground.restore()
        raise


def stages_of(config: RunConfig) -> tuple[str, ...]:
    """The stages of a run, in their order.

    Without samples that networks may learn from there is no search, and where sites are elsewhere
    no audit, which needs the truth.
    """
    f = config.federation
    without = {
        "search": not (f.family.must_search or config.has_networks),
        "audit": bool(f.remote),
    }
    return tuple(stage for stage in f.family.stages if not without.get(stage))


def all_stages(run: OpenRun) -> None:
    """All stages of a run that have not run to their end, without the audit."""
    stages = stages_of(run.config)
    if "search" in stages:
        search_stage(run)
    if "tune" in stages:
        tune_stage(run)
    train_stage(run)


def exchange_stage(run: OpenRun) -> None:
    """The one round of sites that join before they search, once for all that are there; nothing
    where the method has rounds of networks. A site that comes later gets the head alone."""
    if "join" not in stages_of(run.config):
        return
    with exclusive(run.folder / "join"):
        present, files = join_stage(run, stage="join"), server_files(run.view)
        if not is_done(run.folder, "join"):
            with timed(run.folder, "join"):
                exchange(run, frozenset(present))
        known = run.sites
        late = [i for i in present if not known.done("join", i)]
        answer = files.broadcast(files.latest() or 0).to_bytes()

        def tell(site: int) -> None:
            run.listener(events.SiteReleased(known.names[site], sent=False))

        _ask(run, Verb.FINISH, dict.fromkeys(late, answer), tell)


def search_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> list[int]:
    """Search the architecture of the sites that have none yet; returns those that have one now.

    Args:
        run: a run that is open for work.
        clients: numbers of the sites that search, from 0; None: all.
        progress: hears of every generation of every site.

    """
    return _own_stage(run, "search", clients, progress)


def tune_stage(
    run: OpenRun, clients: Sequence[int] | None = None, progress: Progress | None = None
) -> list[int]:
    """Tune the DP-SGD settings of the sites that have none yet, as `search_stage`.

    Returns the sites that have settings now.

    Args:
        run: that is open.
        clients: numbers of the sites; None: all.
        progress: hears of every trial.
    """
    for i in chosen(run.config, clients):
        if "search" in stages_of(run.config):
            run.sites.check("search", i)
    return _own_stage(run, "tune", clients, progress)


def train_stage(run: OpenRun) -> None:
    """Train the federation of those sites that search and tuning have left their records."""
    exchange_stage(run)
    sites = _tuned(run, join_stage(run, stage="train"))
    exported, everyone = set[int](), run.config.federation.clients
    with timed(run.folder, "train", lambda: len(exported) == everyone):
        try:
            TRAINING[run.config.federation.family.exchange](run, sites)
        finally:
            # Also when the budget ran out or the user stopped: what is whole is kept.
            for site, reply in run.engine.call(Verb.EXPORT, dict.fromkeys(sorted(sites), b"")):
                if reply.code is Code.DONE and run.sites.done("train", site):
                    exported.add(site)


def _adapt(run: OpenRun, sites: frozenset[int]) -> None:
    """Have sites that have joined adapt what they share, each by itself."""
    _ask(run, Verb.TRAIN, dict.fromkeys(sorted(sites), b""), _teller(run, "train"))


TRAINING = {"join": _adapt, "train": exchange}
"""What is left for stage `train`, by the stage in which sites and server exchange."""


def _tuned(run: OpenRun, sites: Sequence[int]) -> frozenset[int]:
    """Those of the sites that went through search and tuning, at least one; the others are told."""
    known = run.sites
    before = [step for step in OWN if step in stages_of(run.config)]
    behind = [i for i in sites if not all(known.done(step, i) for step in before)]
    for i in [i for i in sites if i not in behind] or sites:  # of them all: says what is missing
        for step in before:
            known.check(step, i)
    for i in behind:
        run.listener(events.SiteLeftOut(known.names[i], "train", "behind"))
    return frozenset(sites).difference(behind)


def search_prices(run: OpenRun, clients: Sequence[int] | None = None) -> dict[int, SearchPrice]:
    """What the searches still to come will have cost, by site.

    The ledger will show the same epsilon for the search once it, and tuning, are through.
    """
    sites = run.view.sites
    todo = [i for i in chosen(run.config, clients) if not run.sites.done("search", i)]
    return {i: search_price(open_site(sites[i])) for i in todo if sites[i].is_present}


def joining_prices(run: OpenRun, clients: Sequence[int] | None = None) -> dict[int, JoiningPrice]:
    """What joining and a residual will have cost, by site; without those that cannot pay."""
    sites, prices = run.view.sites, dict[int, JoiningPrice]()
    for i in chosen(run.config, clients):
        with suppress(BudgetExhausted):
            if sites[i].is_present:
                prices[i] = joining_price(open_site(sites[i]))
    return prices


def planned_spending(
    run: OpenRun, clients: Sequence[int] | None = None
) -> dict[int, PlannedSpending]:
    """What ledgers will show once the run is through, by site; without those that cannot pay, and
    without any where the method does not say."""
    config, sites, results = run.config, run.view.sites, dict[int, PlannedSpending]()
    if (plan := spending_planner(config.federation.method)) is None:
        return results
    for i in chosen(config, clients):
        with suppress(BudgetExhausted):
            if sites[i].is_present:
                results[i] = plan(open_site(sites[i]))
    return results


def event_counts(config: RunConfig, clients: int) -> dict[str, int]:
    """How many events each stage tells for so many sites, for a progress bar."""
    everyone = config.federation.clients
    rounds = sum(len(c) + 1 for c in participants(config))
    counts = {"join": 0, "search": clients, "tune": clients, "train": everyone}
    counts[config.federation.family.exchange] += rounds
    return counts


def last_generation(config: RunConfig) -> int:
    """Number of the last generation of each search; a random one has the first alone."""
    return config.search.evolution.generations if config.search.algorithm == "genetic" else 0


OWN: tuple[Literal["search", "tune"], ...] = ("search", "tune")
"""Stages in which every site works for itself."""


def _teller(run: OpenRun, step: Step) -> Callable[[int], None]:
    """What tells of a site once it is through with a step."""

    def tell(site: int) -> None:
        if event := run.sites.outcome(step, site):
            run.listener(event)

    return tell


def _own_stage(
    run: OpenRun,
    stage: Literal["search", "tune"],
    clients: Sequence[int] | None,
    progress: Progress | None,
) -> list[int]:
    """A stage in which every site works for itself; returns those that are through."""
    exchange_stage(run)
    known, sites = run.sites, join_stage(run, clients, stage)
    todo = [i for i in sites if not known.done(stage, i)]
    logs = {known.names[i]: path for i in todo if (path := known.log(stage, i))}
    everyone = range(run.config.federation.clients)
    with (
        timed(run.folder, stage, lambda: all(known.done(stage, i) for i in everyone)),
        watch_logs(logs, progress) as catch_up,
    ):
        outcome = _teller(run, stage)

        def tell(site: int) -> None:
            catch_up()
            outcome(site)

        present = _ask(run, Verb(stage), dict.fromkeys(todo, b""), tell)
        return _go_on(run, stage, sites, sorted({*sites} - {*todo} | {*present}))


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
    present = sorted(site for site, code in codes.items() if code is not Code.ABSENT)
    for site in present:
        if codes[site] is not Code.DONE:
            raise run.sites.error(SiteRefusal(site, codes[site]))
    return present


def _go_on(
    run: OpenRun, stage: events.StageName, sites: Sequence[int], present: list[int]
) -> list[int]:
    """Tell of the sites that a stage goes on without; BadInput if too few are left: a run needs its
    minimum until all is exchanged, and any from then on."""
    known, absent = run.sites, [site for site in sites if site not in present]
    exchanged = run.config.federation.family.exchange
    least = run.minimum if stage == "start" and not is_done(run.folder, exchanged) else 1
    if len(present) < min(least, len(sites)):
        raise known.error(SiteRefusal(absent[0], Code.ABSENT))
    for site in absent:
        run.listener(events.SiteLeftOut(known.names[site], stage, known.why(site)))
    return present
