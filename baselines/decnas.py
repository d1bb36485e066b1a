"""DecNAS: a network shrunk layer by layer; groups of sites try a candidate each, side by side.

Algorithm 4.1, in its order; what is pruned: `networks.pruning`; a site's part: `searches.decnas`.

1. sites train the given network, GM_0, by FedAvg: the "start" ("actively trained", section 4)
2. of an iteration: the next budget; one pruned network a layer (lines 3, 6)
3. sites in groups, balanced in samples within r and alike in labels (line 5)
4. a turn: each candidate goes to a random group, whose sites train and test it (lines 14 to 24)
5. accuracies fused by samples; those of most accuracy lost a resource saved drop (lines 22 to 26)
6. weights of the rest fused by samples (lines 27 to 32); after all turns the best is GM_t
7. final tuning of GM_T by FedAvg (line 12)

Where sites are fewer than candidates, a candidate that finds no free group waits for one: the group
trains it next, in the same round (line 15). With grouping off all sites train all candidates.

Deviations: a turn that drops takes two rounds of the run, as accuracies go up before weights do
(section 4.3). Accuracies go up only where they decide something. Line 25's maximum is a minimum,
and 33 % are of an iteration's first candidates (`Schedule`). The last layer is not
pruned: its outputs are the classes. Filters that share a group norm go together. Latency is
estimated from times measured at the server. With no reports on GM_0 (no start) the best candidate
counts as having lost nothing.

Privacy, "sound": weights by DP-SGD; label counts of training samples by a Gaussian, charged on
"train"; right and wrong answers of validation samples, which no training reads, by Gaussians on
"search". A site with too few samples for that (`stand_apart`) reports no answers.
Groups, candidates and choices follow from those. "paper": all of it leaves as it is.
Numbers of training samples are public.

Source: Yuan et al. 2022, "Federated Neural Architecture Search" (DecNAS).

Which round of a run does what, and how much of a site it asks at most.

A run begins with rounds of FedAvg of the whole network, then makes iterations, and ends with rounds
of FedAvg of what they chose. A turn of an iteration (a round of the publication) trains all
candidates that are left. Where some are dropped after it, it takes two rounds of the run: sites
first report accuracies, and then send the weights of those that stay. Else it takes one.

Source: DecNAS, algorithm 4.1, lines 2 to 12, and section 5.3.

The server's steps of DecNAS: prune, partition, drop, fuse, choose; algorithm 4.1, lines 2 to 32.

Pure functions of what is given: a run that was killed makes the same search again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor, nn

from baselines.common.averaging import Mean, number_in
from baselines.common.models import predictor_of, size_of
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.spending import Planned, begin
from baselines.networks.cnns import initialise
from baselines.networks.pruning import (
    Kind,
    Resource,
    Shape,
    candidates,
    check_prunable,
    layer_times,
    macs_by_layer,
    plain_network,
    prunable,
    resource_of,
    uniform_within,
    widths_of,
    with_widths,
)
from baselines.searches.decnas import (
    GLOBAL,
    Candidate,
    Here,
    Point,
    Progress,
    SiteFacts,
    SiteWork,
    Step,
    check_networks,
    counting_noise,
    fused_accuracy,
    partition,
    ranked,
    search_round,
)
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig, rounds_of
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update, named
from panas.architecture.network import NetworkSpec, weights_of
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream, torch_generator
from panas.training.sgd import OptimizerConfig


@dataclass(frozen=True)
class Load:
    """What a round asks of a site, at most."""

    trainings: int  # of one network each
    reports: int  # accuracies

    def __add__(self, other: "Load") -> "Load":
        return Load(self.trainings + other.trainings, self.reports + other.reports)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The rounds of a run; a pure function of its settings."""

    rounds: int  # of the run
    start: int  # of FedAvg before the search
    turns: tuple[int, ...]  # of each iteration that is planned
    drop: float  # share of an iteration's first candidates that each turn drops; 0: none

    def loads(self, candidates: int, groups: int) -> list[Load]:
        """Of each round, where an iteration has so many candidates and sites so many groups."""
        result = [Load(1, 0)] * self.start
        if self.start and self.turns:
            result[-1] = Load(1, 1)  # the accuracy before anything is pruned
        for turns in self.turns:
            alive = candidates
            for turn in range(1, turns + 1):
                gone = dropped(candidates, alive, self.drop)
                jobs = math.ceil(alive / groups)
                result.append(Load(jobs, jobs if gone or turn == turns else 0))
                result += [Load(0, 0)] * (gone > 0)
                alive -= gone
        return result + [Load(1, 0)] * (self.rounds - len(result))


def planned(
    rounds: int, ends: tuple[float, float], turns: Sequence[int], candidates: int, drop: float
) -> Schedule:
    """As many of the iterations as fit between the first and the last rounds.

    Args:
        rounds: of the run.
        ends: shares of the rounds before and after the search, in [0, 1], together 1 at most.
        turns: of each iteration, in order.
        candidates: with which an iteration begins, at most.
        drop: share of these that each turn drops, in [0, 1].
    """
    start, last = round(ends[0] * rounds), round(ends[1] * rounds)
    left, fitting = rounds - start - last, list[int]()
    for number in turns:
        left -= rounds_of_iteration(candidates, number, drop)
        if left < 0:
            break
        fitting.append(number)
    return Schedule(rounds=rounds, start=start, turns=tuple(fitting), drop=drop)


def turns_of(iteration: int, numbers: Sequence[int], every: int, dynamic: bool) -> int:
    """Turns of an iteration.

    Args:
        iteration: from 1.
        numbers: of turns, one after the other.
        every: iterations after which the next of `numbers` holds.
        dynamic: False: the last of `numbers` always holds.
    """
    step = (iteration - 1) // every if dynamic else len(numbers)
    return numbers[min(step, len(numbers) - 1)]


def dropped(candidates: int, alive: int, drop: float) -> int:
    """How many candidates a turn drops, rounded up; one stays.

    Line 25 prints the maximum of both, which would always leave one; the text and Table 3 need the
    minimum. It is of the first ones: 33 % drop all but one in 3 turns.

    Args:
        candidates: with which the iteration began.
        alive: those that are left before the turn.
        drop: share of `candidates` to drop, in [0, 1].
    """
    return min(math.ceil(drop * candidates - 1e-9), alive - 1)


def rounds_of_iteration(candidates: int, turns: int, drop: float) -> int:
    """Rounds of the run that an iteration takes.

    Args:
        candidates: with which it begins.
        turns: of the iteration, at least 1.
        drop: share of `candidates` that each turn drops, in [0, 1].
    """
    alive, result = candidates, 0
    for _ in range(turns):
        gone = dropped(candidates, alive, drop)
        result, alive = result + 1 + (gone > 0), alive - gone
    return result


Weights = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What a search is of, and how it goes."""

    schedule: Schedule
    whole: nn.Sequential  # GM_0, whose weights do not matter
    shape: Shape  # of a sample
    resource: Resource
    reduction: float  # of the budget in the first iteration, as a share of Res(GM_0)
    decay: float  # of the reduction, an iteration
    target: float  # where the search ends, as a share of Res(GM_0)
    pruning: Literal["layers", "uniform"]
    groups: int  # of sites, at most
    sites: int  # of the run
    classes: int
    balance: float  # r


@dataclass
class Heard:
    """What sites sent in a round, fused one site at a time."""

    like: Mapping[str, Weights]  # the networks that were asked for
    means: dict[str, Mean] = field(default_factory=dict)
    counts: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    facts: dict[int, SiteFacts] = field(default_factory=dict)

    def add(self, update: Update, classes: int) -> None:
        """One site's update; BadInput if it does not fit."""
        record, bundle = update.bundle.record, update.bundle
        samples = number_in(record, "samples")
        if "labels" in record:
            histogram = tuple(_numbers(record["labels"], classes))
            self.facts[update.site] = SiteFacts(max(1, int(samples)), histogram)
        if not {name.partition(".")[0] for name in bundle.arrays} <= {*self.like}:
            raise BadInput("expected weights of networks that were asked for, got others")
        for id, like in self.like.items():
            if weights := bundle.part(id):
                self.means.setdefault(id, Mean(like)).add(weights, samples)
            if id in record.get("counts", {}):
                right, wrong = _numbers(record["counts"][id], 2)
                self.counts.setdefault(id, []).append((right, wrong))

    def fused(self, id: str) -> Weights:
        """A network after its group's training: PM + sum n_s g_s / sum n_s, which is the weighted
        mean of the sites' weights; as it was, where nobody trained it."""
        return self.means[id].result() if id in self.means else self.like[id]

    def accuracy(self, id: str, before: float | None) -> float | None:
        """A network's accuracy over its group; as it was, where nobody tested it."""
        result = fused_accuracy(self.counts.get(id, ()))
        return before if result is None else result


def heard(like: Mapping[str, Weights], updates: Iterable[Update], classes: int) -> Heard:
    """All updates of a round.

    Args:
        like: weights of the networks that were sent, by id.
        updates: of the sites; read one at a time.
        classes: length of a label histogram.
    """
    result = Heard(like)
    for update in updates:
        result.add(update, classes)
    return result


Stand = tuple[Progress, Mapping[str, Weights]]
"""Where a search stands: its record, and the weights of its networks."""


def after_round(p: Progress, told: Heard, s: SearchSettings) -> Stand:
    """What the next round is about.

    Args:
        p: where the search stood before the round.
        told: what sites sent in it.
        s: what the search is of.
    """
    p = replace(p, played=p.played + 1, sites={**p.sites, **told.facts})
    models = {c.id: told.like[c.id] for c in p.asked}
    whole = told.like[GLOBAL]
    if p.phase != "search":
        p = replace(p, accuracy=told.accuracy(GLOBAL, p.accuracy))
        return begun(p, told.fused(GLOBAL), s)
    if p.step != "send":
        reported = [replace(c, accuracy=told.accuracy(c.id, c.accuracy)) for c in p.candidates]
        gone = dropped(p.began, len(reported), s.schedule.drop)
        left = ranked(reported, p.accuracy, p.resource)[: len(reported) - gone]
        p = replace(p, candidates=tuple(left))
        if gone:
            kept = {c.id: models[c.id] for c in left}
            return replace(p, step="send"), {GLOBAL: whole, **kept}
    fused = {c.id: told.fused(c.id) for c in p.candidates}
    if p.turn < p.turns:
        p = replace(p, turn=p.turn + 1, step=_step(p.began, len(fused), s))
        return p, {GLOBAL: whole, **fused}
    best = ranked(p.candidates, p.accuracy, p.resource)[0]
    point = Point(
        iteration=p.iteration,
        widths=best.widths,
        resource=best.resource,
        macs=sum(macs_by_layer(with_widths(s.whole, best.widths), s.shape)),
        accuracy=best.accuracy,
    )
    p = replace(p, widths=best.widths, resource=best.resource, accuracy=best.accuracy)
    p = replace(p, candidates=(), groups=(), frontier=(*p.frontier, point))
    return begun(p, fused[best.id], s)


def begun(p: Progress, weights: Weights, s: SearchSettings) -> Stand:
    """The next iteration, once the first rounds are over; final tuning where there is none.

    Args:
        p: where the search stands, its last iteration over.
        weights: of the global network.
        s: what the search is of.
    """
    same = {GLOBAL: weights}
    if p.phase == "final" or p.played < s.schedule.start:
        return p, same
    full, t = s.resource(s.whole), p.iteration + 1
    over = replace(p, phase="final", step="both"), same
    if t > len(s.schedule.turns) or p.resource <= s.target * full:
        return over
    budget = max(s.target * full, p.resource - s.reduction * s.decay ** (t - 1) * full)
    result = _pruned(_with_weights(s.whole, p.widths, weights), budget, s)
    if not result:
        return over
    listed = tuple(
        Candidate(id=f"{t}-{at}", widths=widths_of(model), resource=s.resource(model))
        for at, model in result
    )
    p = replace(
        p,
        phase="search",
        step=_step(len(result), len(result), s),
        iteration=t,
        turn=1,
        turns=s.schedule.turns[t - 1],
        began=len(result),
        candidates=listed,
        groups=grouped(p.sites, min(s.groups, len(result)), s),
    )
    models = {c.id: weights_of(model) for c, (_, model) in zip(listed, result, strict=True)}
    return p, {**same, **models}


def _pruned(
    model: nn.Sequential, budget: float, s: SearchSettings
) -> list[tuple[int, nn.Sequential]]:
    """Line 6: the candidates within a budget, or the rival's one."""
    if s.pruning == "layers":
        return candidates(model, budget, s.resource)
    smaller = uniform_within(model, budget, s.resource)
    return [] if smaller is None else [(0, smaller)]


def grouped(
    known: Mapping[int, SiteFacts], groups: int, s: SearchSettings
) -> tuple[tuple[int, ...], ...]:
    """Line 5: sites by group.

    Args:
        known: what sites have sent, by number; of the others the average is assumed.
        groups: how many, at most one a site.
        s: for the number of sites, the classes and the balance.
    """
    samples = [site.samples for site in known.values()]
    average = SiteFacts(round(np.mean(samples)) if samples else 1, (1.0,) * s.classes)
    facts = [known.get(i, average) for i in range(s.sites)]
    return tuple(tuple(group) for group in partition(facts, groups, s.balance))


def assigned(
    p: Progress, sites: Sequence[int], rng: np.random.Generator
) -> list[tuple[Sequence[int], list[Candidate]]]:
    """Lines 14 to 16: each candidate goes to a random group; one that finds none free waits, and is
    that group's next. Returns groups, each with its candidates in order.

    Args:
        p: where the search stands; outside of a search `sites` are the one group.
        sites: numbers of those that take part.
        rng: draws the groups.
    """
    if p.phase != "search":
        return [(sites, list(p.asked))]
    order = rng.permutation(len(p.groups))
    result: list[tuple[Sequence[int], list[Candidate]]] = [(group, []) for group in p.groups]
    for i, candidate in enumerate(p.candidates):
        result[int(order[i % len(order)])][1].append(candidate)
    return result


def reports(p: Progress, s: SearchSettings) -> bool:
    """Whether anything is decided by accuracies of the next round."""
    if p.phase == "search":
        return p.turn == p.turns or p.step == "train"
    return p.phase == "start" and p.played == s.schedule.start - 1 and bool(s.schedule.turns)


def _with_weights(whole: nn.Sequential, widths: Sequence[int], weights: Weights) -> nn.Sequential:
    """The network of these widths, with its weights."""
    model = with_widths(whole, widths)
    model.load_state_dict(dict(weights))
    return model


def _step(began: int, alive: int, s: SearchSettings) -> Step:
    return "train" if dropped(began, alive, s.schedule.drop) else "both"


def _numbers(values: Any, count: int) -> list[float]:
    if not isinstance(values, list) or len(values) != count:
        raise BadInput(f"expected {count} numbers in an update, got others")
    return [number_in({"it": v}, "it") for v in values]


COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"privacy": UNPROTECTED},
    "sound": {},
}
SMOKE: Mapping[str, Any] = {
    "federation": {
        "rounds": 14,
        "options": {
            **{"batch_size": 1000, "epochs": 4, "learning_rate": 0.5, "momentum": 0.8},
            **{"reduction": 0.15, "turns": [1, 2], "every": 1},
        },
    }
}
CPU: Mapping[str, Any] = {
    "federation": {
        "rounds": 20,
        "options": {
            **{"widths": [8, 16], "hidden": [32], "batch_size": 256, "epochs": 1},
            **{"learning_rate": 0.5, "momentum": 0.5},
            **{"reduction": 0.1, "turns": [1, 2], "every": 2},
        },
    }
}

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Part = Annotated[float, Field(ge=0, le=1)]


class Options(Section):
    """Settings of the search, of local training, and of the network that is shrunk."""

    widths: tuple[Count, ...] = (16, 32)  # filters of the convolutions of GM_0
    hidden: tuple[Count, ...] = (64,)  # of its layers behind them, but for the last
    together: Count = 2  # filters that share a group norm, and go together
    resource: Kind = "macs"  # what is limited: MACs, bytes of weights, or latency
    target: Share = 0.5  # of what GM_0 needs: the budget R of the search
    reduction: Share = 0.05  # of what GM_0 needs: the first step of the budget
    decay: Annotated[float, Field(gt=0, le=1)] = 0.98  # of that step, an iteration
    iterations: Annotated[int, Field(ge=0)] = 100  # T, at most; as many as fit in the rounds
    pruning: Literal["layers", "uniform"] = "layers"  # uniform: the rival, width multipliers
    start_share: Part = 0.3  # of the rounds: FedAvg of GM_0
    final_share: Part = 0.3  # of the rounds, at least: FedAvg of GM_T
    turns: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 3, 4)  # R, round numbers
    every: Count = 5  # iterations after which the next of `turns` holds
    dynamic_rounds: bool = True  # False: always the last of `turns`
    early_dropping: bool = True  # False: all candidates stay to an iteration's end
    drop_ratio: Part = 0.33  # alpha, dropped after each turn, of an iteration's first candidates
    grouping: bool = True  # False: all sites train every candidate
    groups: Count | None = None  # K; None: as many as candidates; never more than sites
    balance: Annotated[float, Field(ge=1)] = 1.1  # r: largest group over smallest, in samples
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    batch_size: Count = 64  # under DP an expected one
    epochs: Count = 2  # E, passes a turn
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP
    histogram_share: Share = 0.05  # of epsilon, sizes the noise of the label counts

    @model_validator(mode="after")
    def _leaves_rounds(self) -> "Options":
        if self.start_share + self.final_share > 1:
            raise ValueError("start_share + final_share to be at most 1")
        return self

    @property
    def drop(self) -> float:
        """alpha, or 0 without early dropping."""
        return self.drop_ratio if self.early_dropping else 0.0


def check(side: Side) -> None:
    """Serves any data; refuses a network with nothing to prune."""
    check_prunable(_whole(side.config, spec_of(side.config, side.facts)))


def site_start(site: Site) -> Bundle:
    """The plan of all rounds; the network comes with the first order."""
    work = _work(site)
    schedule, o = _schedule(site.config, work.whole), options_of(site.config, Options)
    loads = schedule.loads(*_counts(o, work.whole, site.config.federation.clients))
    mine = [loads[r - 1] for r in rounds_of(site.config, site.id)]
    rounds = sum(load.trainings for load in mine)
    spending = begin(site, replace(work.planned, rounds=rounds))
    here = Here(
        spending=spending,
        counting=counting_noise(site, sum(load.reports for load in mine)),
        widths=widths_of(work.whole),
    )
    return Bundle(named(GLOBAL, weights_of(work.whole)), here.to_json())


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is networks to train, or names of those to send; the result is one network.

    Args:
        site: for its settings and facts.
        memory: unused.
        order: untrusted.
    """
    check_networks(site, order, _work(site))


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 1, 4 and 7 at a site: train and test what was sent, or send what was trained.

    Args:
        site: its training and validation samples, ledger and settings.
        memory: networks that wait to be sent, and the record of a `Here`.
        order: networks to train, or ids of those to send.
    """
    return search_round(site, memory, order, _work(site))


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep GM_T.

    Args:
        site: unused.
        memory: the record of a `Here`.
        order: GM_T, its widths, and the sequence of networks.
    """
    here, told = Here.from_json(memory.record), order.bundle.record
    here = replace(here, widths=tuple(told["widths"]), frontier=tuple(told["frontier"]))
    return Bundle(order.bundle.arrays, here.to_json())


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The network that it trained last, or the result."""
    widths = Here.from_json(memory.record).widths
    return predictor_of(_work(site).network(site, widths, memory.part(GLOBAL)))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and MACs; what each phase has cost the site, and the sequence of networks."""
    here = Here.from_json(memory.record)
    model = _work(site).network(site, here.widths, memory.part(GLOBAL))
    about = {
        "widths": list(here.widths),
        "cost": {phase: asdict(cost) for phase, cost in here.cost.items()},
        "frontier": [dict(point) for point in here.frontier],
    }
    return size_of(site, model, about)


def server_start(side: Side) -> Bundle:
    """GM_0, with weights from the run's seed; without a start the first iteration begins."""
    o, spec = options_of(side.config, Options), spec_of(side.config, side.facts)
    whole = _whole(side.config, spec)
    times = tuple(layer_times(whole, spec.shape)) if o.resource == "latency" else ()
    p = Progress(
        phase="start",
        step="both",
        widths=widths_of(whole),
        resource=resource_of(o.resource, spec.shape, times, whole)(whole),
        sites={},
        times=times,
    )
    return _kept(begun(p, weights_of(whole), _settings(side, p)))


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Each group's candidates, the network that all train, or the result.

    Args:
        side: configuration and facts.
        memory: networks by id, and the record of a `Progress`.
        sites: numbers of those that take part.
        round: from 1; one past the last asks for the result.
    """
    p = Progress.from_json(memory.record)
    if round > side.config.federation.planned_rounds:
        record = {"widths": p.widths, "frontier": [asdict(point) for point in p.frontier]}
        return dict.fromkeys(sites, Bundle(named(GLOBAL, memory.part(GLOBAL)), record))
    settings = _settings(side, p)
    about = {"phase": p.phase, "step": p.step, "report": reports(p, settings)}
    if p.phase == "search" and p.step == "send":
        stay = [c.id for c in p.candidates]
        return dict.fromkeys(sites, Bundle({}, {**about, "send": stay}))
    rng = stream(side.config.seed, "method", "decnas", "groups", round)
    bundles = dict[int, Bundle]()
    for group, jobs in assigned(p, sites, rng):
        arrays = {k: a for c in jobs for k, a in named(c.id, memory.part(c.id)).items()}
        listed = [{"id": c.id, "widths": list(c.widths)} for c in jobs]
        bundles |= dict.fromkeys(group, Bundle(arrays, {**about, "jobs": listed}))
    return {site: bundles[site] for site in sites}


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Steps 2 to 6, as the search stands.

    Args:
        side: configuration and facts.
        memory: networks by id, and the record of a `Progress`, before the round.
        updates: networks, accuracies or label counts of the sites.
        rng: unused.
    """
    p = Progress.from_json(memory.record)
    like = {c.id: memory.part(c.id) for c in p.asked} | {GLOBAL: memory.part(GLOBAL)}
    told = heard(like, updates, side.facts.classes)
    return _kept(after_round(p, told, _settings(side, p)))


def _kept(stand: Stand) -> Bundle:
    p, models = stand
    arrays = {k: a for id, weights in models.items() for k, a in named(id, weights).items()}
    return Bundle(arrays, p.to_json())


def _whole(config: RunConfig, spec: NetworkSpec) -> nn.Sequential:
    """GM_0, with weights from the run's seed."""
    o = options_of(config, Options)
    model = plain_network(spec.shape, spec.classes, o.widths, o.hidden, spec.norm, o.together)
    initialise(model, torch_generator(stream(config.seed, "decnas")))
    return model


def _counts(o: Options, whole: nn.Sequential, sites: int) -> tuple[int, int]:
    """Candidates of an iteration, and groups of sites, both at most."""
    candidates = len(prunable(whole)) if o.pruning == "layers" else 1
    groups = min(candidates if o.groups is None else o.groups, sites) if o.grouping else 1
    return candidates, max(1, groups)


def _schedule(config: RunConfig, whole: nn.Sequential) -> Schedule:
    o, f = options_of(config, Options), config.federation
    numbers = (turns_of(t, o.turns, o.every, o.dynamic_rounds) for t in range(1, o.iterations + 1))
    candidates, _ = _counts(o, whole, f.clients)
    ends = (o.start_share, o.final_share)
    return planned(f.planned_rounds, ends, list(numbers), candidates, o.drop)


def _settings(side: Side, p: Progress) -> SearchSettings:
    o, spec = options_of(side.config, Options), spec_of(side.config, side.facts)
    whole = _whole(side.config, spec)
    return SearchSettings(
        schedule=_schedule(side.config, whole),
        whole=whole,
        shape=spec.shape,
        resource=resource_of(o.resource, spec.shape, p.times, whole),
        reduction=o.reduction,
        decay=o.decay,
        target=o.target,
        pruning=o.pruning,
        groups=_counts(o, whole, side.config.federation.clients)[1],
        sites=side.config.federation.clients,
        classes=spec.classes,
        balance=o.balance,
    )


def _work(site: Site) -> SiteWork:
    o = options_of(site.config, Options)
    sizes: dict[str, Any] = {"batch_size": o.batch_size, "epochs": o.epochs}
    optimizer = OptimizerConfig(learning_rate=o.learning_rate, momentum=o.momentum, **sizes)
    planned = Planned(clip=o.clip, releases=1, release_share=o.histogram_share, **sizes)
    return SiteWork(_whole(site.config, site.spec), optimizer, planned)
