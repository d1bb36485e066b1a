"""A run whose sites are elsewhere: the hub's half of it, and what the hub can tell of the outcome.

A hub has public facts and samples, the names of its sites, their codes and the messages of the
method. Nothing else of a site reaches it, so that its summary has no accuracy but that of the
shared head on public samples.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dprbft.config.hub import HubSettings
from dprbft.config.schema import RunConfig
from dprbft.engines.framed import Carried, Carrier, Framed, Late
from dprbft.engines.frames import OtherWire
from dprbft.engines.watch.hub import RunEvent
from dprbft.messages import MAX_BYTES, Verb, largest_release
from dprbft.paths import refused_file, server_folder, summary_file, traffic_file
from dprbft.run.bookkeeping import is_done, seconds
from dprbft.run.directory import OpenRun
from dprbft.run.events import Listener, OtherVersion
from dprbft.run.exchange import server_files
from dprbft.run.sites.known import Step
from dprbft.run.sites.remote import Remote, Tolerant
from dprbft.run.view import RunView
from dprbft.secure_sum.release import masked_size
from dprbft.server.calls import expected
from dprbft.server.events import RoundBegun, RoundEnded
from dprbft.server.records import RoundRecord, read_rounds
from dprbft.server.sum_checkpoint import SumFiles
from dprbft.server.updates import result_bytes
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger.account import number
from panas.privacy.ledger.charge import assumption
from panas.privacy.release.kind import kind_named
from panas.runtime.errors import BadInput
from panas.runtime.store import append_note, read_json, write_json

LIBRARIES = ("panas", "torch", "numpy")
VIEW = "hub: accuracies and ledgers of sites stay with them, and never cross the wire"


GREETINGS = (Verb.HELLO, Verb.LEAVE)
"""Verbs after which nothing may be left of a run that its sites have refused."""


@dataclass
class Traffic:
    """Adds up the frames of one run, with all that is around a message, over all its processes.

    `traffic.json` has the bytes that its carrier has brought to sites and back, by verb.
    """

    server: Path  # the server's folder
    _waiting: dict[Verb, tuple[int, int]] = field(default_factory=dict)

    def note(self, call: Carried) -> None:
        """Count a call; greetings are written with what comes after them."""
        before = self._waiting.get(call.verb, (0, 0))
        self._waiting[call.verb] = before[0] + call.down_bytes, before[1] + call.up_bytes
        if call.verb in GREETINGS:
            return
        result = carried(self.server)
        for each, (more_down, more_up) in self._waiting.items():
            down, up = result.get(each.value, (0, 0))
            result[each.value] = down + more_down, up + more_up
        record = {v: {"down_bytes": d, "up_bytes": u} for v, (d, u) in result.items()}
        write_json(traffic_file(self.server), {"carried": record})
        self._waiting.clear()


@dataclass(frozen=True)
class Wire:
    """How a hub reaches its sites: what brings frames, the keys that sign answers, who watches."""

    carrier: Carrier
    keys: Mapping[str, bytes] | None = None  # public ones (PEM), by site; None: nothing is signed
    watch: Callable[[RunEvent], None] = lambda event: None  # hears what an operator may count


@dataclass
class Watch:
    """Tells who watches a run what its hub sees: calls, refused answers, rounds and their time."""

    run: str
    tell: Callable[[RunEvent], None]
    _begun: float = 0.0

    def call(self, call: Carried) -> None:
        """Tell of a call, unless it asked nobody."""
        codes = {site: code.name for site, code in call.codes.items()}
        if not codes:
            return
        event = RunEvent(kind="call", run=self.run, verb=call.verb.value, codes=codes)
        self.tell(replace(event, down=call.down_bytes, up=call.up_bytes))

    def refused(self, site: str, verb: Verb, error: BadInput) -> None:
        """Tell of an answer that was refused, and what it should have been.

        Args:
            site: whose it is; empty where that is not known.
            verb: of the request.
            error: why.
        """
        event = RunEvent(kind="refused", run=self.run, site=site, verb=verb.value)
        late = isinstance(error, Late)
        self.tell(replace(event, reason=expected(error), late=late))

    def round(self, event: RoundBegun | RoundEnded) -> None:
        """Tell of a round; once it has ended, how long it took."""
        now = time.monotonic()
        if isinstance(event, RoundBegun):
            self._begun = now
            self.tell(RunEvent(kind="round_begun", run=self.run, round=event.round))
        else:
            seconds, number = now - self._begun, event.round
            self.tell(RunEvent(kind="round_ended", run=self.run, round=number, seconds=seconds))


def carried(server: Path) -> dict[str, tuple[int, int]]:
    """Bytes down and up by verb, as far as noted."""
    path = traffic_file(server)
    record = read_json(path)["carried"] if path.exists() else {}
    return {verb: (int(r["down_bytes"]), int(r["up_bytes"])) for verb, r in record.items()}


def open_hub(
    run: Path,
    config: RunConfig,
    hub: HubSettings,
    wire: Wire,
    *,
    listener: Listener = lambda event: None,
) -> OpenRun:
    """A run over sites that a carrier brings frames to; its directory is made already.

    BadInput if a name cannot cross the wire.

    Args:
        run: the run's directory.
        config: of the run, with sites elsewhere.
        hub: names of the sites, deadlines and limits.
        wire: brings frames to the sites.
        listener: called with each event of the run.
    """
    sites, name = Remote(RunView(run, config), hub.minimum), run.resolve().name
    traffic, watch = Traffic(server_folder(run)), Watch(name, wire.watch)

    def refuse(site: str, verb: Verb, error: BadInput) -> None:
        other = isinstance(error, OtherWire)
        reason = str(error) if other else expected(error)
        append_note(refused_file(server_folder(run)), site=site, verb=verb, reason=reason)
        watch.refused(site, verb, error)
        if other:
            listener(OtherVersion(site, reason))
        if not isinstance(error, Late):
            sites.note_bad(site, "version" if other else "reply")

    def note(call: Carried) -> None:
        traffic.note(call)
        watch.call(call)

    framed = Framed(
        carrier=wire.carrier,
        run=name,
        names=sites.names,
        seconds=hub.deadline,
        keys=wire.keys,
        caps=answer_caps(run, config),
        refused=refuse,
        carried=note,
    )
    engine = Tolerant(framed, sites)
    return OpenRun(run, config, engine, listener, sites, hub.minimum, rounds=watch.round)


def answer_caps(run: Path, config: RunConfig) -> dict[Verb, int]:
    """Bytes of an answer's message at most, by verb, as the run's facts allow them."""
    caps = {"updates": lambda *_: {Verb.ROUND: MAX_BYTES}}.get(
        config.federation.family.sends, _caps_of_releases
    )
    return dict.fromkeys(Verb, 0) | caps(run, config)


def _caps_of_releases(run: Path, config: RunConfig) -> dict[Verb, int]:
    files, sites = server_files(RunView(run, config)), config.federation.clients
    width, classes = files.width, files.classes
    if not config.secure_sum:
        most = largest_release(config.sent, width=width, classes=classes) if config.sent else 0
        return {Verb.ROUND: most}
    return {  # keys, shares and signatures by site, and one vector
        Verb.READY: 1 << 10,
        Verb.KEYS: 1 << 10,
        Verb.SHARE: (1 << 10) + 256 * sites,
        Verb.ROUND: (1 << 12) + 8 * masked_size(width, classes),
        Verb.UNMASK: (1 << 10) + 64 * sites,
    }


def summarise_hub(run: Path, config: RunConfig) -> dict[str, Any]:
    """What a hub knows of its run: written to summary.json, and returned."""
    view, rounds = RunView(run, config), read_rounds(server_folder(run))
    sites = Remote(view, 1)
    finished = [sites.done("train", i) for i in range(len(sites.names))]
    frames = carried(server_folder(run))
    summary = {
        "preset": config.preset,
        "method": config.federation.method,
        "seed": config.seed,
        "view": VIEW,
        "finished": is_done(run, "train"),
        "rounds": len(rounds),
        "public_samples": len(view.public),
        "unlabelled_samples": len(view.unlabelled),
        "sites": sites_of(run, config),
        "absent": [name for name, done in zip(sites.names, finished, strict=True) if not done],
        "head": _head_accuracy(view),
        "communication": {
            "up_bytes": sum(r.up_bytes for r in rounds),
            "down_bytes": sum(r.down_bytes for r in rounds) + result_bytes(server_folder(run)),
            # All frames, public files among them; the two above are what rounds exchange.
            "carried_down_bytes": sum(down for down, _ in frames.values()),
            "carried_up_bytes": sum(up for _, up in frames.values()),
        },
        "trust": trust_of(run),
        "seconds": seconds(run),
        "versions": {name: version(name) for name in LIBRARIES},
    }
    write_json(summary_file(run), summary)
    return summary


def trust_of(run: Path) -> dict[str, Any] | None:
    """What the secure sum of a run rests on; None where there was none."""
    opened = SumFiles(server_folder(run)).opened()
    if opened is None:
        return None
    n, t = len(opened.plan.sites), opened.plan.missing
    return {"sites": n, "missing": t, "assumption": assumption(t, n)}


def sites_of(run: Path, config: RunConfig) -> list[dict[str, Any]]:
    """What a hub knows of each site: what it is through with, and what its releases cost."""
    sites, rounds = Remote(RunView(run, config), 1), read_rounds(server_folder(run))
    return [_site(sites, i, rounds) for i in range(len(sites.names))]


def _site(sites: Remote, i: int, rounds: Sequence[RoundRecord]) -> dict[str, Any]:
    config = sites.view.config
    steps: tuple[Step, ...] = ("join", "search", "tune", "train")
    noise = _noise_of(sites.view, i, [r.round for r in rounds if i in r.releases])
    noised = config.sent is not None and kind_named(config.sent).CHARGED_AS is Gaussian
    events = [Gaussian(m) for m in noise if m is not None]
    known = noised and bool(noise) and len(events) == len(noise)
    budget = config.budget(i)
    return {
        "id": i,
        "name": sites.names[i],
        "through": [step for step in steps if sites.done(step, i)],
        "rounds": [r.round for r in rounds if i in r.sites],
        "releases": len(noise),
        "noise_multipliers": noise,
        # Of the releases alone, by their noise: what else a site has spent its own ledger knows.
        "epsilon_of_releases": number(epsilon(events, budget.delta)) if known else None,
        "delta": budget.delta,
    }


def _noise_of(view: RunView, site: int, rounds: Sequence[int]) -> list[float | None]:
    """Noise multipliers of a site's releases, as they say; none where updates are exchanged, or
    the server learns a sum alone."""
    if view.config.sent is None or view.config.secure_sum:
        return []
    files = server_files(view)
    return [r.noise_multiplier for k in rounds for r in files.releases(k, [site])]


def _head_accuracy(view: RunView) -> dict[str, Any] | None:
    """Accuracy of the shared head on labelled public samples, which it was made with; None where
    there are none, or heads are on networks that stay with their sites."""
    phi, files = view.feature_map, server_files(view)
    if phi is None or not len(view.public) or not files.latest():
        return None
    head = files.broadcast(files.latest() or 0)
    logits = phi.of(view.public) @ head.weight.T + head.bias
    right = torch.eq(logits.argmax(1), view.public.y).double().mean()
    return {"accuracy": float(right), "samples": len(view.public), "of": "labelled public samples"}
