"""The server's steps of DecNAS: prune, partition, drop, fuse, choose; algorithm 4.1, lines 2 to 32.

Pure functions of what is given: a run that was killed makes the same search again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from baselines.candidates.groups import SiteFacts, partition
from baselines.candidates.progress import GLOBAL, Point, Progress, Step
from baselines.candidates.schedule import Schedule, dropped
from baselines.candidates.selection import Candidate, fused_accuracy, ranked
from baselines.common.averaging import Mean, number_in
from baselines.networks.cnns import weights_of
from baselines.networks.pruning import (
    Resource,
    Shape,
    candidates,
    macs_by_layer,
    uniform_within,
    widths_of,
    with_widths,
)
from dprbft.updates import Update
from panas.runtime.errors import BadInput

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
        found = fused_accuracy(self.counts.get(id, ()))
        return before if found is None else found


def heard(like: Mapping[str, Weights], updates: Iterable[Update], classes: int) -> Heard:
    """All updates of a round."""
    found = Heard(like)
    for update in updates:
        found.add(update, classes)
    return found


Stand = tuple[Progress, Mapping[str, Weights]]
"""Where a search stands: its record, and the weights of its networks."""


def after_round(p: Progress, told: Heard, s: SearchSettings) -> Stand:
    """What the next round is about."""
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
    """The next iteration, once the first rounds are over; final tuning where there is none."""
    same = {GLOBAL: weights}
    if p.phase == "final" or p.played < s.schedule.start:
        return p, same
    full, t = s.resource(s.whole), p.iteration + 1
    over = replace(p, phase="final", step="both"), same
    if t > len(s.schedule.turns) or p.resource <= s.target * full:
        return over
    budget = max(s.target * full, p.resource - s.reduction * s.decay ** (t - 1) * full)
    found = pruned(with_weights(s.whole, p.widths, weights), budget, s)
    if not found:
        return over
    listed = tuple(
        Candidate(id=f"{t}-{at}", widths=widths_of(model), resource=s.resource(model))
        for at, model in found
    )
    p = replace(
        p,
        phase="search",
        step=_step(len(found), len(found), s),
        iteration=t,
        turn=1,
        turns=s.schedule.turns[t - 1],
        began=len(found),
        candidates=listed,
        groups=grouped(p.sites, min(s.groups, len(found)), s),
    )
    models = {c.id: weights_of(model) for c, (_, model) in zip(listed, found, strict=True)}
    return p, {**same, **models}


def pruned(
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
    """Line 5: sites by group; of one that has told nothing yet, the average is assumed."""
    samples = [site.samples for site in known.values()]
    average = SiteFacts(round(np.mean(samples)) if samples else 1, (1.0,) * s.classes)
    facts = [known.get(i, average) for i in range(s.sites)]
    return tuple(tuple(group) for group in partition(facts, groups, s.balance))


def assigned(
    p: Progress, sites: Sequence[int], rng: np.random.Generator
) -> list[tuple[Sequence[int], list[Candidate]]]:
    """Lines 14 to 16: each candidate goes to a random group; one that finds none free waits, and is
    that group's next. Groups with their candidates in order; outside of a search all `sites`."""
    if p.phase != "search":
        return [(sites, list(p.asked))]
    order = rng.permutation(len(p.groups))
    found: list[tuple[Sequence[int], list[Candidate]]] = [(group, []) for group in p.groups]
    for i, candidate in enumerate(p.candidates):
        found[int(order[i % len(order)])][1].append(candidate)
    return found


def reports(p: Progress, s: SearchSettings) -> bool:
    """Whether anything is decided by accuracies of the next round."""
    if p.phase == "search":
        return p.turn == p.turns or p.step == "train"
    return p.phase == "start" and p.played == s.schedule.start - 1 and bool(s.schedule.turns)


def with_weights(whole: nn.Sequential, widths: Sequence[int], weights: Weights) -> nn.Sequential:
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
