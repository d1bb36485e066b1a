"""The exchange between sites and server, and what a simulator tells of it."""

from functools import partial
from typing import Any

import torch

from dprbft import paths
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Broadcast, Verb
from dprbft.methods import module_of, update_method
from dprbft.methods.joined.state import ROUND
from dprbft.methods.rounds.heads import to_broadcast
from dprbft.methods.side import Side
from dprbft.run import events
from dprbft.run.directory import OpenRun
from dprbft.run.view import RunView
from dprbft.server import events as server_events
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.rounds import Server
from dprbft.server.secure_sum import SumServer
from dprbft.server.updates import ServerHalf, UpdateServer
from dprbft.site.site import spec_of
from panas.runtime.seeds import stream, torch_generator
from panas.runtime.store import append_note


def exchange(run: OpenRun, sites: frozenset[int]) -> None:
    """All rounds between the server and these sites, from the last whole one on.

    BudgetExhausted or BadInput, with its reason, if a site refuses.
    """
    server = {"updates": _update_server}.get(run.config.federation.family.sends, _server)
    try:
        server(run, sites).train()
    except SiteRefusal as refusal:
        raise run.sites.error(refusal) from refusal


def server_files(view: RunView) -> ServerFiles:
    """What the server of a run keeps."""
    width, config = _first(view).weight.shape[1], view.config
    folder, classes = paths.server_folder(view.run), view.facts.classes
    return ServerFiles(folder, width, classes, config.sent, config.federation.compression)


def _first(view: RunView) -> Broadcast:
    """The head before round 1; on a common map nobody knows anything yet."""
    config, facts, common = view.config, view.facts, view.feature_map
    if common is None:
        generator = torch_generator(stream(config.seed, "head"))
        return to_broadcast(spec_of(config, facts).head(generator), 0)
    return Broadcast(0, torch.zeros(facts.classes, common.width), torch.zeros(facts.classes))


def _server(run: OpenRun, sites: frozenset[int]) -> Server | SumServer:
    config, view = run.config, run.view
    side = Side(config, view.facts, view.public, view.feature_map, view.unlabelled)
    method, common = config.federation.method, _common(run, sites)
    common |= {"files": server_files(view), "first": _first(view)}
    if config.secure_sum:
        return SumServer(answer=partial(module_of(method).sum_round, side), **common)
    answer = partial(module_of(method).server_round, side)
    return Server(answer=answer, minimum=run.minimum, **common)


def _common(run: OpenRun, sites: frozenset[int]) -> dict[str, Any]:
    """What all servers take."""
    listener = partial(_tell, run)
    return {"config": run.config, "sites": sites, "engine": run.engine, "listener": listener}


def _update_server(run: OpenRun, sites: frozenset[int]) -> UpdateServer:
    view, method = run.view, update_method(run.config.federation.method)
    side = Side(run.config, view.facts, view.public)
    half = ServerHalf(
        start=partial(method.server_start, side),
        orders=partial(method.orders, side),
        round=partial(method.server_round, side),
    )
    return UpdateServer(
        folder=paths.server_folder(run.folder),
        half=half,
        minimum=run.minimum,
        **_common(run, sites),
    )


def _tell(run: OpenRun, event: server_events.Event) -> None:
    if isinstance(event, server_events.SiteAbsent) and event.refused:
        name = run.sites.names[event.site]
        path = paths.refused_file(paths.server_folder(run.folder))
        append_note(path, site=name, verb=Verb.ROUND, reason=event.refused)
    if isinstance(event, server_events.RoundBegun | server_events.RoundEnded):
        run.rounds(event)
    described = {"join": _joined, "train": _seen}[run.config.federation.family.exchange]
    if seen := described(run, event):
        run.listener(seen)


def _joined(run: OpenRun, event: server_events.Event) -> events.Event | None:
    """The same of the one round before networks are searched."""
    names = run.sites.names
    match event:
        case server_events.SiteTrained(i, _):
            return _released(run, i)
        case server_events.SiteAbsent(i, _, refused):
            return events.SiteLeftOut(names[i], "join", "reply" if refused else run.sites.why(i))
        case server_events.RoundEnded(_, _, sites):
            return events.HeadShared(len(sites))
    return None


def _released(run: OpenRun, site: int) -> events.SiteReleased:
    """What a site has sent in the one round."""
    if paths.arrived_file(paths.server_folder(run.folder), ROUND, site).exists():
        return events.SiteReleased(run.sites.names[site], True, masked=True)
    for release in server_files(run.view).releases(ROUND, [site]):
        return events.SiteReleased(run.sites.names[site], True, release.noise_multiplier)
    return events.SiteReleased(run.sites.names[site], sent=False)


def _seen(run: OpenRun, event: server_events.Event) -> events.Event | None:
    """What the server tells, with what a simulator sees besides."""
    names = run.sites.names
    match event:
        case server_events.SiteReady(i):
            return run.sites.outcome("start", i)
        case server_events.SiteTrained(i, round):
            return events.SiteTrained(names[i], round)
        case server_events.SiteAbsent(i, 0):
            return events.SiteLeftOut(names[i], "train", run.sites.why(i))
        case server_events.SiteAbsent(i, round, refused):
            return events.SiteMissed(names[i], round, "reply" if refused else run.sites.why(i))
        case server_events.RoundEnded(round, rounds, sites):
            return events.RoundEnded(round, rounds, run.sites.accuracy(sites))
        case server_events.RoundBegun():
            return None
