"""What one run of a comparison came to: `outcome.json` in its directory, of the simulator's view.

Accuracy by round is that of what sites hold once a round is through: the model as the next order
brings it, where a method measures that, else their own. Its last point is that of what they keep.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePaths, scores_file, server_folder
from dprbft.run.summary import summarise
from dprbft.run.view import RunView, has_results
from dprbft.server.records import read_rounds
from dprbft.site.results.scores import SiteRound, read_scores
from dprbft.site.site import check_book
from panas.privacy.ledger.account import Account, number
from panas.runtime.store import read_json, write_json

FILE = "outcome.json"
MOST_PRICED = 8
"""Points of a curve, at most, that have their epsilon: each is a composition of its own."""

Spent = float | str
"""Epsilon: a number, or "infinity"."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where all sites stand after a round, on average."""

    round: int
    accuracy: float
    up_bytes: int  # of all sites, up to and with this round
    down_bytes: int
    epsilon: Spent | None = None  # of the site that has spent most; None: not priced


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Figures of a finished run; lists have an entry a site."""

    sites: list[str]
    accuracy: list[float]
    majority: list[float]  # accuracy of the most frequent class of a site's training samples
    metrics: list[dict[str, Any]]
    epsilon: list[Spent]  # of everything that left, as the ledger has it
    parts: list[dict[str, Spent]]  # of it: release, search, training, each by itself
    parameters: list[int | None]
    macs: list[int | None]
    about: list[dict[str, Any]]  # what else methods tell of their cost
    rounds: int
    up_bytes: int
    down_bytes: int
    seconds: dict[str, float]  # by stage
    curve: list[Point]
    stopped: str = ""  # why it ended before its last round, where the budget did not pay for more
    trust: list[str] = field(default_factory=list)  # what epsilon rests on, in words


def read_outcome(run: Path) -> Outcome | None:
    """What a run came to; None where it is not finished."""
    if not (path := run / FILE).exists():
        return None
    record = read_json(path)
    return Outcome(**{**record, "curve": [Point(**point) for point in record["curve"]]})


def note_outcome(run: Path, config: RunConfig, stopped: str = "") -> Outcome:
    """Gather what a trained run came to, and keep it beside the run's summary.

    Args:
        run: directory of the run.
        config: its configuration.
        stopped: why it ended before its last round; "" if it did not.
    """
    summary, view = summarise(run, config), RunView(run, config)
    clients = summary["clients"]
    sites = [paths for paths in view.sites if has_results(paths)]
    sent = summary["communication"]
    outcome = Outcome(
        sites=[c["name"] for c in clients],
        accuracy=[c["accuracy"]["selected"] for c in clients],
        majority=[_majority(view, paths) for paths in sites],
        metrics=[c["metrics"] for c in clients],
        epsilon=[c["epsilon"]["spent"] for c in clients],
        parts=[{k: c["epsilon"][k] for k in ("release", "search", "training")} for c in clients],
        parameters=[c["parameters"] for c in clients],
        macs=[c["macs"] for c in clients],
        about=[c["setting"].get("about") or {} for c in clients],
        rounds=summary["rounds"],
        up_bytes=sent["up_bytes"],
        down_bytes=sent["down_bytes"],
        seconds=summary["seconds"],
        curve=[],
        stopped=stopped,
        trust=list(dict.fromkeys(t["assumption"] for c in clients for t in c.get("trust", ()))),
    )
    outcome = replace(outcome, curve=_curve(view, sites, outcome))
    write_json(run / FILE, asdict(outcome))
    return outcome


def _majority(view: RunView, paths: SitePaths) -> float:
    """What always saying a site's most frequent class would get, on its test samples."""
    data = view.site(paths.index)
    return float((data.test.y == data.train.histogram().argmax()).double().mean())


def _curve(view: RunView, sites: Sequence[SitePaths], outcome: Outcome) -> list[Point]:
    """A point a round; the last is what sites keep, with the bytes of the result."""
    records, config = read_rounds(server_folder(view.run)), view.config
    notes = [read_scores(p.home) if scores_file(p.home).exists() else [] for p in sites]
    priced = {int(r) for r in np.linspace(0, len(records) - 1, MOST_PRICED)} if records else set()
    account = _worst(sites) if records else None
    after = {"updates": _after_updates}.get(config.federation.family.sends, _after_round)
    points, up, down = list[Point](), 0, 0
    for at, record in enumerate(records):
        last = at == len(records) - 1
        up, down = up + record.up_bytes, down + record.down_bytes
        known = [x for own in notes if (x := after(own, record.round)) is not None]
        accuracy = fmean(outcome.accuracy) if last else fmean(known) if known else None
        if accuracy is None:
            continue
        spent = _spent(account, record.round) if account and at in priced and not last else None
        sums = (outcome.up_bytes, outcome.down_bytes) if last else (up, down)
        points.append(
            Point(
                round=record.round,
                accuracy=accuracy,
                up_bytes=sums[0],
                down_bytes=sums[1],
                epsilon=max(outcome.epsilon, key=float) if last else spent,
            )
        )
    return points


def _after_round(notes: Sequence[SiteRound], round: int) -> float | None:
    """Accuracy of what a site keeps once a round is through; None before its first."""
    own = [note for note in notes if note.round <= round]
    return own[-1].kept if own else None


def _after_updates(notes: Sequence[SiteRound], round: int) -> float | None:
    """The same of a method of updates: of the model that the site was sent next, else its own."""
    own = [note for note in notes if note.round <= round]
    if not own:
        return None
    later = [note for note in notes if note.round > round]
    if later and later[0].shared is not None:
        return later[0].shared
    return own[-1].local if own[-1].local is not None else own[-1].kept


def _worst(sites: Sequence[SitePaths]) -> Account | None:
    """The charges of the site that has spent most."""
    accounts = [check_book(paths).account().of_run(paths.run) for paths in sites]
    return max(accounts, key=lambda account: account.spent(), default=None)


def _spent(account: Account, round: int) -> Spent:
    """Epsilon of what was charged up to a round."""
    entries = tuple(e for e in account.entries if (e.charge.round or 0) <= round)
    return number(replace(account, entries=entries).spent())
