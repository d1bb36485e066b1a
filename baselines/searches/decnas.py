"""A site's part of a round: algorithm 4.1, lines 34 to 38. Charges come before touches.

Sites partitioned into groups of about equal data, each with the labels of all.

| symbol | name |
|---|---|
| d_j | `sizes`: samples of a group |
| r | `most`: largest d_j over smallest |
| v | class frequencies; two of them differ by their Manhattan distance |

Source: DecNAS, section 4.2: min over partitions of the mean distance between the frequencies of a
group and of all sites, subject to max d_j <= r min d_j. Its greedy rule gives the first partition.
Additions: it is tried with a tight balance too, and of up to `MOST_BETTERED` sites moves and swaps
better both, first in balance, then in distance.

What sites report of a candidate, fused; how far that is below before; and who is dropped.

Source: DecNAS, section 4.3.

Where the server's search stands: a record, kept beside the weights of its networks.

Weights of the global network are named `gm.NAME`, those of candidate K `K.NAME`.

What a site keeps between rounds, what it counts for the server, and what a round costs it.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from baselines.common.models import accuracy_at, loaded
from baselines.common.orders import are_whole, check_record, check_rows, check_weights
from baselines.common.spending import Mechanism, Planned, Spending, after_round, begin, charged
from baselines.common.training import LocalTraining, train_locally
from baselines.networks.cnns import macs_of
from baselines.networks.pruning import prunable, with_widths
from dprbft.config.schema import rounds_of
from dprbft.methods.updates.contract import NOTHING, Turn
from dprbft.site.counting import count_units
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update, named
from panas.architecture.network import weights_of
from panas.privacy.accounting.events import Gaussian
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import LABEL_HISTOGRAM, unit_counts
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.training.any_model import logits_of
from panas.training.sgd import OptimizerConfig

BALANCE = 1.1  # r
MOST_PASSES, MOST_BETTERED = 20, 60
AIMS = (0.7, 0.0)  # parts of r - 1 that the greedy rule allows itself: it lands near, not within
EXACTLY = 1e-12  # what is less is rounding
EMPTY = 1e9  # a group with nobody is worse than any imbalance


@dataclass(frozen=True)
class SiteFacts:
    """What a server knows of a site's samples."""

    samples: int  # privacy units to train on; a public fact
    histogram: tuple[float, ...]  # label counts as they left the site, noised or not


def frequencies(histogram: Sequence[float]) -> Float[np.ndarray, "c"]:
    """Class frequencies of noised counts: negative ones are 0; all alike if nothing is left."""
    counts = np.maximum(np.asarray(histogram, dtype=np.float64), 0.0)
    total = counts.sum()
    return counts / total if total > 0 else np.full(len(counts), 1 / max(1, len(counts)))


def partition(sites: Sequence[SiteFacts], groups: int, most: float = BALANCE) -> list[list[int]]:
    """Positions of sites by group.

    Balanced within `most` where moves and swaps of sites reach that; else as near as they come.

    Args:
        sites: their samples and label counts.
        groups: how many; at most one a site is made.
        most: r, 1 or more.
    """
    count = max(1, min(groups, len(sites)))
    samples = np.array([max(1, site.samples) for site in sites], dtype=np.int64)
    labels = np.stack([n * frequencies(s.histogram) for n, s in zip(samples, sites, strict=True)])
    results = []
    for aim in AIMS:
        placed = _greedy(samples, labels, count, 1 + aim * (most - 1))
        if len(sites) <= MOST_BETTERED:
            _better(samples, labels, placed, count, most)
        results.append((_score(samples, labels, placed, count, most), placed))
    placed = min(results, key=lambda pair: pair[0])[1]
    return [[int(i) for i in np.flatnonzero(placed == j)] for j in range(count)]


def _greedy(
    samples: Int[np.ndarray, "n"], labels: Float[np.ndarray, "n c"], count: int, most: float
) -> Int[np.ndarray, "n"]:
    """The largest site first, to the group that keeps the balance and ends nearest to all."""
    fair = samples.sum() / count * 2 * most / (1 + most)  # groups from fair / r to fair are within
    placed, sizes = np.full(len(samples), -1), np.zeros(count)
    sums = np.zeros((count, labels.shape[1]))
    whole, left = labels.sum(0) / labels.sum(), samples.sum()
    for i in np.argsort(-samples, kind="stable"):
        left -= samples[i]
        lacking = np.maximum(0.0, fair / most - sizes)
        spared = np.minimum(lacking, samples[i])  # what the site would fill of each group's lack
        fits = (sizes + samples[i] <= fair) & (lacking.sum() - spared <= left)
        allowed = np.flatnonzero(fits).tolist() or [int(sizes.argmin())]
        distances = []
        for j in allowed:
            after = sums.copy()
            after[j] += labels[i]
            distances.append(_apart(after, whole))
        j = allowed[int(np.argmin(distances))]
        placed[i], sizes[j], sums[j] = j, sizes[j] + samples[i], sums[j] + labels[i]
    return placed


def _better(
    samples: Int[np.ndarray, "n"],
    labels: Float[np.ndarray, "n c"],
    placed: Int[np.ndarray, "n"],
    count: int,
    most: float,
) -> None:
    """Move and swap sites, in place, while that betters the score."""
    score = _score(samples, labels, placed, count, most)
    for _ in range(MOST_PASSES):
        begun = score
        for changed in _neighbours(placed, count):
            new = _score(samples, labels, changed, count, most)
            if new < _just_below(score):
                placed[:], score = changed, new
        if score == begun:
            break


def _neighbours(placed: Int[np.ndarray, "n"], count: int) -> Iterator[Int[np.ndarray, "n"]]:
    """Partitions one move or one swap away from the one that `placed` holds at the time."""
    for i in range(len(placed)):
        for j in range(count):
            if placed[i] != j:
                moved = placed.copy()
                moved[i] = j
                yield moved
        for k in range(i):
            if placed[i] != placed[k]:
                swapped = placed.copy()
                swapped[[i, k]] = swapped[[k, i]]
                yield swapped


def _score(
    samples: Int[np.ndarray, "n"],
    labels: Float[np.ndarray, "n c"],
    placed: Int[np.ndarray, "n"],
    count: int,
    most: float,
) -> tuple[float, float]:
    """How far it is beyond the balance, then how far its labels are from all."""
    sizes = np.bincount(placed, weights=samples, minlength=count)
    empty = int((sizes == 0).sum())
    beyond = EMPTY * empty if empty else max(0.0, float(sizes.max() / sizes.min()) - most)
    return beyond, _distance(labels, placed, count)


def _distance(labels: Float[np.ndarray, "n c"], placed: Int[np.ndarray, "n"], count: int) -> float:
    sums = np.zeros((count, labels.shape[1]))
    np.add.at(sums, placed, labels)
    return _apart(sums, labels.sum(0) / labels.sum())


def _apart(sums: Float[np.ndarray, "k c"], whole: Float[np.ndarray, "c"]) -> float:
    """Mean distance of groups from all; of a group with nobody it is 1."""
    shares = sums / np.maximum(sums.sum(1, keepdims=True), EXACTLY)
    return float(np.abs(shares - whole).sum(1).mean())


def _just_below(score: tuple[float, float]) -> tuple[float, float]:
    beyond, distance = score
    return beyond, distance - EXACTLY


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A pruned network, PM."""

    id: str
    widths: tuple[int, ...]  # filters of each prunable layer
    resource: float  # Res(PM)
    accuracy: float | None = None  # the last that was reported

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "widths": list(self.widths)}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Candidate":
        """Read back `to_json`."""
        return Candidate(**{**record, "widths": tuple(record["widths"])})


def fused_accuracy(counts: Iterable[tuple[float, float]]) -> float | None:
    """The accuracy over all validation samples of a group, of each site's right and wrong answers:
    its sites' accuracies, weighted by their samples. Noised counts do as well. None without any."""
    pairs = list(counts)
    if not pairs:
        return None
    right, wrong = (sum(side) for side in zip(*pairs, strict=True))
    return min(1.0, max(0.0, right / max(1.0, right + wrong)))


def degradation(before: float, after: float, resources: tuple[float, float]) -> float:
    """Accuracy lost over resource saved, from the network before an iteration to a candidate.

    Args:
        before: accuracy of the network before the iteration, in [0, 1].
        after: the candidate's.
        resources: what the network before and the candidate need, in one unit; the second less.
    """
    saved = resources[0] - resources[1]
    if saved <= 0:
        raise BadInput(f"expected a candidate that saves some of the resource, got {saved}")
    return (before - after) / saved


def ranked(
    candidates: Sequence[Candidate], accuracy: float | None, resource: float
) -> list[Candidate]:
    """The least degradation first; those that nobody reported on last.

    Args:
        candidates: of one iteration.
        accuracy: of the network before it; None: the best candidate counts as having lost nothing.
        resource: that the network before it needs.
    """
    known = [c.accuracy for c in candidates if c.accuracy is not None]
    before = max(known, default=0.0) if accuracy is None else accuracy

    def loss(c: Candidate) -> float:
        if c.accuracy is None:
            return math.inf
        return degradation(before, c.accuracy, (resource, c.resource))

    return sorted(candidates, key=loss)


GLOBAL = "gm"
Phase = Literal["start", "search", "final"]
Step = Literal["train", "send", "both"]
"""What a round of a search asks of sites: reports of what they trained, its weights, or both."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A network of the sequence along the frontier, GM_t."""

    iteration: int
    widths: tuple[int, ...]
    resource: float
    macs: int
    accuracy: float | None  # as sites reported it after its last turn of training


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What the next round is part of, and what is known."""

    phase: Phase
    step: Step
    played: int = 0  # rounds of the run
    iteration: int = 0  # from 1
    turn: int = 1  # of the iteration that comes or goes on, from 1
    turns: int = 0  # of the iteration
    began: int = 0  # candidates that the iteration began with
    widths: tuple[int, ...]  # of the global network
    resource: float  # that it needs
    accuracy: float | None = None  # as sites reported it
    candidates: tuple[Candidate, ...] = ()  # that are left
    groups: tuple[tuple[int, ...], ...] = ()  # of sites
    sites: Mapping[int, SiteFacts]  # by number
    frontier: tuple[Point, ...] = ()
    times: tuple[float, ...] = ()  # ms of each layer of the whole network, where latency counts

    @property
    def asked(self) -> tuple[Candidate, ...]:
        """The networks that the next round is about."""
        if self.phase == "search":
            return self.candidates
        return (Candidate(id=GLOBAL, widths=self.widths, resource=self.resource),)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "sites": {str(i): asdict(s) for i, s in self.sites.items()}}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Progress":
        """Read back `to_json`."""
        sites = {
            int(i): SiteFacts(s["samples"], tuple(s["histogram"]))
            for i, s in record["sites"].items()
        }
        points = (Point(**{**p, "widths": tuple(p["widths"])}) for p in record["frontier"])
        known = {
            "widths": tuple(record["widths"]),
            "candidates": tuple(map(Candidate.from_json, record["candidates"])),
            "groups": tuple(tuple(group) for group in record["groups"]),
            "frontier": tuple(points),
            "times": tuple(record["times"]),
            "sites": sites,
        }
        return Progress(**{**record, **known})


HELD_OUT = "search"
"""Validation samples, as the ledger names what is apart from "train": no training reads them."""

NEGLIGIBLE = 0.01
"""Share of delta that may be the chance of both parts to depend on one sample."""

BACKWARD = 3
"""Passes of MACs that training takes for a sample: forward, and twice that backward."""


@dataclass(frozen=True)
class Cost:
    """What a phase has cost a site."""

    macs: float = 0.0  # multiply-accumulates of training and testing
    down: int = 0  # bytes of messages received
    up: int = 0  # bytes of messages sent


@dataclass(frozen=True, kw_only=True)
class Here:
    """A site's record between rounds, beside the weights of its networks."""

    spending: Spending  # of DP-SGD and the label histogram
    counting: float | None  # noise multiplier of what it counts of validation samples; None: none
    widths: tuple[int, ...]  # of the network that it predicts with
    told: bool = False  # whether its label histogram has left
    final: bool = False  # whether it has planned its last rounds
    waiting: Mapping[str, str] = field(default_factory=dict)  # networks not sent yet: receipts
    cost: Mapping[str, Cost] = field(default_factory=dict)  # by phase
    frontier: tuple[Mapping[str, Any], ...] = ()  # what the server says of it at last

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Here":
        """Read back `to_json`."""
        known = {
            "spending": Spending.from_json(record["spending"]),
            "widths": tuple(record["widths"]),
            "cost": {phase: Cost(**cost) for phase, cost in record["cost"].items()},
            "frontier": tuple(record["frontier"]),
        }
        return Here(**{**record, **known})

    def paid(self, phase: str, macs: float, sizes: tuple[int, int]) -> "Here":
        """The same after a round of a phase.

        Args:
            phase: of the search, as the order names it.
            macs: multiply-accumulates of the round's training and testing.
            sizes: bytes that came down, and that went up.
        """
        (down, up), old = sizes, self.cost.get(phase, Cost())
        cost = Cost(old.macs + macs, old.down + down, old.up + up)
        return replace(self, cost={**self.cost, phase: cost})


def counting_noise(site: Site, reports: int) -> float | None:
    """The least noise multiplier at which so many counts of validation samples cost the budget.

    None without a budget; with one, None says that nothing may be counted.
    """
    if not (reports and stand_apart(site)):
        return None
    planned = Planned(
        batch_size=1,
        clip=1.0,
        epochs=1,
        rounds=0,
        releases=reports,
        release_share=0.99,  # nothing else reads these samples
        subset=HELD_OUT,
        samples=1,  # no batch is drawn of them
    )
    plan = begin(site, planned).plan
    return plan.release_noise if plan else None


def stand_apart(site: Site) -> bool:
    """Whether one unit more or less changes validation or training samples, but never both.

    Where no unit's hash is of the validation part, that part takes one from training
    (`panas.data.splits.hashed_split`), and a unit more changes both. Many units rule that out, but
    for a chance far below delta; how many there are at least, the noised count says.
    """
    count_units(site)
    least = 1 - site.config.data.validation_fraction
    return bool(least ** site.least_units() <= NEGLIGIBLE * site.budget.delta)


def label_counts(site: Site, noise: float | None, round: int) -> tuple[list[float], str]:
    """How many training samples there are of each class, and the receipt.

    Args:
        site: its training samples and ledger.
        noise: multiplier of the Gaussian noise; None: exact, and charged as unprotected.
        round: from 1, as the ledger notes it.

    Privacy: charged, then read. A sample (or a whole group) moves the counts by 1 in L2 norm.
    """
    mechanism = Mechanism(LABEL_HISTOGRAM, 1.0, phase="release")
    with charged(site, mechanism, _event(noise), round) as receipt:
        train = site.data.train
        counts = unit_counts(train.y, train.groups, train.classes)
        return _noised(counts, noise), receipt.id


def right_and_wrong(
    site: Site, model: nn.Module, noise: float | None, round: int
) -> tuple[list[float], str]:
    """How many validation samples a network gets right, and how many wrong; and the receipt.

    Args:
        site: its validation samples and ledger.
        model: on the site's device.
        noise: multiplier of the Gaussian noise; None: exact, and charged as unprotected.
        round: from 1, as the ledger notes it.

    Privacy: as `label_counts`. Both counts leave, so that the number of samples does not; one
    sample is in one of the two.
    """
    mechanism = Mechanism("right-answers", 1.0, phase="release", subset=HELD_OUT)
    with charged(site, mechanism, _event(noise), round) as receipt:
        held = site.data.validation
        wrong = (logits_of(model, held).argmax(1) != held.y).long()
        return _noised(unit_counts(wrong, held.groups, 2), noise), receipt.id


def _event(noise: float | None) -> Gaussian | None:
    return None if noise is None else Gaussian(noise)


def _noised(counts: Float[Tensor, "c"], noise: float | None) -> list[float]:
    if noise is not None:
        counts = counts + noise * SystemNoise().normal(*counts.shape)
    return [float(n) for n in counts.to(torch.float32)]


NAME = re.compile(r"gm|[0-9]{1,6}-[0-9]{1,4}")
"""Of the global network, or of a candidate: its iteration and the layer that is pruned."""
STEPS = (
    ("start", "both"),
    ("final", "both"),
    *(("search", step) for step in ("train", "send", "both")),
)
"""Phases with what they ask of sites."""


@dataclass(frozen=True)
class SiteWork:
    """How a site trains, and how it plans."""

    whole: nn.Sequential  # GM_0, whose weights do not matter
    optimizer: OptimizerConfig
    planned: Planned  # of DP-SGD; rounds and releases are set as they are known

    def network(
        self, site: Site, widths: Sequence[int], weights: Mapping[str, Tensor]
    ) -> nn.Sequential:
        """A network of these widths, on the site's device.

        Args:
            site: for its device.
            widths: filters of each prunable layer.
            weights: by name, of these widths.
        """
        return loaded(site, with_widths(self.whole, widths), weights)


def check_networks(site: Site, order: Order, work: SiteWork) -> None:
    """Refuse an order that holds other than pruned networks of the given one, to train or to send,
    or a result that is not one of these.

    Args:
        site: for the run's number of rounds.
        order: untrusted.
        work: with the given network.
    """
    record, arrays, whole = order.bundle.record, order.bundle.arrays, work.whole
    rounds = site.config.federation.planned_rounds
    if order.round > rounds:
        check_record(record, widths=list, frontier=list)
        check_rows(record["frontier"], rounds + 1)  # of each iteration, and of the network before
        jobs = [{"id": GLOBAL, "widths": record["widths"]}]
    elif record.get("step") == "send":
        check_record(record, phase=str, step=str, report=bool, send=list)
        check_weights(arrays, {})
        if not all(isinstance(id, str) for id in record["send"]):
            raise BadInput("expected names of networks to send in an order, got others")
        jobs = []
    else:
        check_record(record, phase=str, step=str, report=bool, jobs=list)
        jobs = record["jobs"]
        check_rows(jobs, len(prunable(whole)))
    if order.round <= rounds and (record["phase"], record["step"]) not in STEPS:
        raise BadInput("expected a step of the search in an order, got another")
    like = dict[str, Tensor]()
    for job in jobs:
        check_record(job, id=str, widths=list)
        if not (NAME.fullmatch(job["id"]) and are_whole(job["widths"])):
            raise BadInput("expected a network's name and widths in an order, got others")
        model = with_widths(whole, job["widths"])  # BadInput for widths beyond the whole network's
        like |= named(job["id"], model.state_dict())
    if len({job["id"] for job in jobs}) < len(jobs):
        raise BadInput("expected each network once in an order, got one again")
    check_weights(arrays, like)


@dataclass
class _Done:
    """What a site has done in a round so far."""

    here: Here
    kept: dict[str, Tensor]  # weights in its memory
    sent: dict[str, Tensor] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    macs: float = 0.0
    local: float | None = None
    shared: float | None = None


def search_round(site: Site, memory: Bundle, order: Order, work: SiteWork) -> Turn:
    """Train and test what was sent, or send what was trained before; counts what that costs.

    Args:
        site: its training and validation samples, ledger and settings.
        memory: the site's network, those that wait to be sent, and the record of a `Here`.
        order: networks to train, or ids of those to send.
        work: how the site trains, and how it plans.
    """
    asked, here = order.bundle.record, Here.from_json(memory.record)
    done = _Done(here=here, kept=named(GLOBAL, memory.part(GLOBAL)))
    if asked["step"] == "send":
        _send(done, memory, asked["send"])
    else:
        if asked["phase"] == "final" and not here.final:
            done.here = _replanned(site, here, order.round, work.planned)
        for job in asked["jobs"]:
            _train(site, done, order, work, job)
    update, up = NOTHING, 0
    if done.receipts:
        update = Bundle(done.sent, {"samples": site.units, **done.told})
        message = Update(site.id, order.round, update, tuple(done.receipts))
        up = len(message.to_bytes())
    here = done.here.paid(asked["phase"], done.macs, (len(order.to_bytes()), up))
    return Turn(
        memory=Bundle(done.kept, here.to_json()),
        update=update,
        receipts=tuple(done.receipts),
        local=done.local,
        shared=done.shared,
    )


def _train(site: Site, done: _Done, order: Order, work: SiteWork, job: Mapping[str, Any]) -> None:
    """Train one network, and test it where that decides something; the first time, the label
    counts leave too. Weights of networks that may be dropped wait for the next order."""
    asked, id, here = order.bundle.record, job["id"], done.here
    model = work.network(site, job["widths"], order.bundle.part(id))
    shared = accuracy_at(site, model)
    how = LocalTraining(optimizer=work.optimizer, round=order.round)
    spending, receipt = train_locally(site, model, site.data.train, here.spending, how)
    if receipt is None:  # the budget pays for no more
        done.here = replace(here, spending=spending)
        return
    if not here.told:
        noise = spending.plan.release_noise if spending.plan else None
        done.told["labels"], charge = label_counts(site, noise, order.round)
        done.receipts.append(charge)
    spending = after_round(site, spending, releases=int(not here.told))
    done.here = replace(here, spending=spending, told=True)
    macs = macs_of(model, site.spec.shape)
    done.macs += BACKWARD * macs * work.optimizer.epochs * len(site.data.train)
    weights = weights_of(model)
    if asked["step"] == "both":
        done.sent |= named(id, weights)
        done.receipts.append(receipt)
    else:
        done.kept |= named(id, weights)
        done.here = replace(done.here, waiting={**done.here.waiting, id: receipt})
    if asked["report"] and (here.counting is not None or not site.budget.private):
        done.macs += macs * len(site.data.validation)
        _report(site, done, order, id, model)
    if done.local is None:
        done.shared = shared
        done.local = accuracy_at(site, model)
        others = {k: a for k, a in done.kept.items() if not k.startswith(f"{GLOBAL}.")}
        done.kept = others | named(GLOBAL, weights)
        done.here = replace(done.here, widths=tuple(job["widths"]))


def _report(site: Site, done: _Done, order: Order, id: str, model: nn.Module) -> None:
    """Right and wrong answers of a network; nothing where processes that died have spent it."""
    try:
        counts, charge = right_and_wrong(site, model, done.here.counting, order.round)
    except BudgetExhausted:
        return
    done.told["counts"] = {**done.told.get("counts", {}), id: counts}
    done.receipts.append(charge)


def _send(done: _Done, memory: Bundle, ids: Sequence[str]) -> None:
    waiting = done.here.waiting
    for id in ids:
        if id in waiting:
            done.sent |= named(id, memory.part(id))
            done.receipts.append(waiting[id])
    done.here = replace(done.here, waiting={})


def _replanned(site: Site, here: Here, round: int, planned: Planned) -> Here:
    left = sum(r >= round for r in rounds_of(site.config, site.id))
    plan, here = here.spending.plan, replace(here, final=True)
    if plan is None or (plan.rounds == left and here.told):
        return here
    try:
        again = replace(planned, rounds=left, releases=int(not here.told))
        return replace(here, spending=begin(site, again))
    except BudgetExhausted:
        return here
