"""FEATHERS: architecture and hyperparameters searched together, for one network for all sites.

A run has two stages of `federation.rounds`, search and evaluation. Each alternates phases
(`baselines.searches.feathers`); a round, in its source's order:

1. the server sends the network and a setting of hyperparameters: in an HO phase one that it drew
   (algorithm 1, lines 7 to 9), in a training phase the best (lines 15 to 17)
2. a site measures its loss on its samples for the architecture (algorithms 2 to 5, line 1)
3. it trains: in the search stage architecture and weights in turn, each on samples of its own
   (lines 2 to 4), in the evaluation stage weights alone
4. in an HO phase it measures the loss again and sends the change (lines 5 and 6), in a training
   phase it sends the network
5. the server averages networks, or the changes (Eq. 5), and updates its estimates (Eq. 6)

After the search stage the super-network is made discrete, two edges a node, and the chosen network
begins anew, at its own size, with estimates of its own.

Deviations: an HO round sends no network, which the server would not use, and a training round no
loss. Sites are weighted by samples for the architecture throughout (v of Eq. 3). Steps of weights
and architecture alternate within a round. Oversampling, which would let a sample count many times,
is a loss weighted by class instead (`balance`), by public labels or by noised counts. The batch
size is in no setting: it would change the price. Hyperparameter spaces are not in the publication
that we have.

Privacy: step 3 is DP-SGD, of weights on "train", of the architecture on "search" in the ledger. The
change of loss is clipped by sample, averaged and noised, on "search" too. Both halves are disjoint:
the total is the larger. The publication leaves rewards unclipped, and the look ahead (line 2) not
noised: so its epsilon is infinite. Here a look ahead is DP-SGD and charged as another round.

Source: "FEATHERS: Federated Architecture and Hyperparameter Search", sections 3.2 and 3.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from baselines.common.averaging import Mean, number_in, weight_in
from baselines.common.halves import planned_halves
from baselines.common.models import accuracy_at, loaded, predictor_of, size_of
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.orders import are_bounded
from baselines.common.spending import Planned, begin, current
from baselines.searches.feathers import (
    Course,
    Options,
    Phase,
    SiteState,
    Stage,
    Trial,
    after_charges,
    balanced,
    begin_phases,
    charge_round,
    check_trial,
    most_trials,
    network_of,
    parts_of,
    search_rounds,
    space_of,
    stage_begun,
    train,
    updated,
)
from dprbft.config.schema import rounds_of
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.counting import counting_event
from dprbft.site.site import Site
from dprbft.site.training import restore_unsound
from dprbft.updates import Bundle, Order, Update
from panas.architecture.network import weights_of
from panas.runtime.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """Where the search stands after a round."""

    round: int  # the last whole one
    stage: Stage
    course: Course
    architecture: Mapping[str, Any] | None
    trace: Sequence[Sequence[Any]]  # round, stage, phase, setting's number, reward or None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "course": self.course.to_json()}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "ServerState":
        """Read back `to_json`."""
        return ServerState(**{**record, "course": Course.from_json(record["course"])})


COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": UNPROTECTED,
        "federation": {"options": {"lookahead": True}},
    },
    "sound": {},
}

SMOKE: Mapping[str, Any] = {
    "federation": {
        "clients": 2,
        "rounds": 14,
        "options": {
            "learning_rates": [1.5, 0.7],
            "search_share": 0.15,
            "phase_rounds": 5,
            "exploration": 1.0,
            "batch_size": 1000,
            "epochs": 4,
            "cells": 2,
            "nodes": 1,
            "evaluation_cells": 2,
        },
    },
}
CPU: Mapping[str, Any] = {
    "federation": {
        "clients": 10,
        "rounds": 15,
        "options": {
            "learning_rates": [1.0, 0.5],
            "search_share": 0.2,
            "phase_rounds": 5,
            "exploration": 1.0,
            "batch_size": 1000,
            "epochs": 3,
            "cells": 2,
            "nodes": 1,
        },
    },
}

check_order = check_trial


def check(side: Side) -> None:
    """Serves images and tables, in two rounds or more."""
    o = options_of(side.config, Options)
    o.settings("search"), o.settings("evaluation")
    if side.config.federation.rounds < 2:
        raise BadInput(
            "expected federation.rounds of at least 2, to search and to evaluate, got 1; raise it"
        )


def site_start(site: Site) -> Bundle:
    """The plans of all rounds, on both halves; the noised histogram where classes are balanced."""
    o, parts = options_of(site.config, Options), parts_of(site)
    by_class = balanced(site, o, parts) if o.balance else ()  # before plans that count its price
    joined, last = rounds_of(site.config, site.id), search_rounds(site.config)
    searched = sum(r <= last for r in joined)
    common = Planned(batch_size=o.batch_size, clip=o.clip, epochs=o.epochs)
    rounds = len(joined) + (searched if o.lookahead else 0)
    if counting_event(site) is not None:  # a plan that cannot be is refused before it is charged
        usual = max(1, round(site.units * (1 - o.architecture_share)))
        begin(site, replace(common, rounds=rounds, samples=usual))
    first, second = planned_halves(site, o.architecture_share)
    weights = begin(site, replace(common, rounds=rounds, samples=first))
    alphas = begin(
        site,
        replace(
            common,
            rounds=searched,
            releases=min(len(joined), most_trials(site.config)),
            release_share=o.reward_share,
            subset="search",
            samples=second,
        ),
    )
    state = SiteState(weights=weights, alphas=alphas, class_weights=by_class)
    return Bundle(weights_of(network_of(site.config, site.facts, None)), state.to_json())


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 2 to 4; a site whose budget does not pay for that sits out.

    Args:
        site: its training samples, ledger and settings.
        memory: the record of a `SiteState`; its weights are not read.
        order: the network, and the `Trial` of the round.
    """
    state, trial = SiteState.from_json(memory.record), Trial(**order.bundle.record)
    state = replace(state, architecture=trial.architecture, weights=current(site, state.weights))
    state = replace(state, alphas=current(site, state.alphas))
    model = _loaded(site, order.bundle.arrays, trial.architecture)
    shared, measures = accuracy_at(site, model), trial.phase == "ho"
    with ExitStack() as stack:
        charges = charge_round(site, state, trial, order.round)
        if charges is None:
            return Turn(memory=Bundle(order.bundle.arrays, state.to_json()), shared=shared)
        receipts = tuple(stack.enter_context(receipt).id for receipt in charges)
        change = train(site, model, state, trial, order.round)
    state = after_charges(site, state, trial)
    units = planned_halves(site, options_of(site.config, Options).architecture_share)[1]
    if measures:
        kept, update = order.bundle.arrays, Bundle({}, {"reward": change, "samples": units})
    else:
        restore_unsound(model, order.bundle.arrays, are_bounded)
        kept = weights_of(model)
        update = Bundle(kept, {"samples": units})
    return Turn(
        memory=Bundle(kept, state.to_json()),
        update=update,
        receipts=receipts,
        local=None if measures else accuracy_at(site, model),
        shared=shared,
    )


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last average, and how hyperparameters were chosen.

    Args:
        site: unused.
        memory: the record of a `SiteState`.
        order: the last average, its architecture, and the trace of the settings.
    """
    state, record = SiteState.from_json(memory.record), order.bundle.record
    state = replace(state, architecture=record["architecture"], trace=record["trace"])
    return Bundle(order.bundle.arrays, state.to_json())


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The network: the super-network until the search stage ends."""
    return predictor_of(_loaded(site, memory.arrays, memory.record["architecture"]))


def size(site: Site, memory: Bundle) -> Size:
    """Parameters and multiply-accumulates of the network; what was chosen, and what that took."""
    state = SiteState.from_json(memory.record)
    model = _loaded(site, memory.arrays, state.architecture)
    about = {
        "architecture": state.architecture,
        "hyperparameters": state.trace,
        "search_passes": state.passes,
        "search_rounds": search_rounds(site.config),
    }
    return size_of(site, model, about)


def server_start(side: Side) -> Bundle:
    """The super-network with weights from the run's seed, and no setting known."""
    state = ServerState(
        round=0,
        stage="search",
        course=stage_begun(side.config, "search"),
        architecture=None,
        trace=(),
    )
    return Bundle(weights_of(network_of(side.config, side.facts, None)), state.to_json())


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Step 1: the same for all; at the end also the trace of the hyperparameters.

    Args:
        side: for the settings to choose from.
        memory: the network, and the record of a `ServerState`.
        sites: numbers of those that take part.
        round: from 1; one past the last asks for the result.
    """
    state, o = ServerState.from_json(memory.record), options_of(side.config, Options)
    record: dict[str, Any] = {"architecture": state.architecture}
    if round > side.config.federation.rounds:
        record["trace"] = [_row(o, *row) for row in state.trace]
    else:
        setting = o.settings(state.stage)[state.course.setting]
        record |= {"stage": state.stage, "phase": state.course.phase, "setting": setting}
    return dict.fromkeys(sites, Bundle(memory.arrays, record))


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 5; after the last round of the search stage, the chosen network from scratch.

    Args:
        side: configuration and facts.
        memory: the network, and the record of a `ServerState`, before the round.
        updates: rewards in an HO phase, else networks, each with its number of samples.
        rng: draws the settings of the next HO phase.
    """
    state, o = ServerState.from_json(memory.record), options_of(side.config, Options)
    mean, changes = Mean(), []
    for update in updates:
        weight = weight_in(update.bundle.record, "samples")
        if state.course.phase == "ho":
            changes.append((number_in(update.bundle.record, "reward"), weight))
        else:
            mean.add(update.bundle.arrays, weight)
    arrays, result = mean.result() or memory.arrays, reward(changes) if changes else None
    row = (state.round + 1, state.stage, state.course.phase, state.course.setting, result)
    state = replace(state, round=state.round + 1, trace=(*state.trace, row))
    last, rounds = search_rounds(side.config), side.config.federation.rounds
    if state.round == last:
        network = network_of(side.config, side.facts, None)
        network.load_state_dict(dict(arrays))
        architecture = space_of(side.config, side.facts).chosen(network)
        course = stage_begun(side.config, "evaluation")
        state = replace(state, stage="evaluation", course=course, architecture=architecture)
        arrays = weights_of(network_of(side.config, side.facts, architecture))
    else:
        left = (last if state.stage == "search" else rounds) - state.round
        course = after(state.course, result, left, o.phase_rounds, rng)
        state = replace(state, course=course)
    return Bundle(arrays, state.to_json())


def _loaded(
    site: Site, arrays: Mapping[str, Tensor], architecture: Mapping[str, Any] | None
) -> nn.Module:
    return loaded(site, network_of(site.config, site.facts, architecture), arrays)


def _row(
    o: Options, round: int, stage: Stage, phase: Phase, setting: int, found: float | None
) -> dict[str, Any]:
    known = {"round": round, "stage": stage, "phase": phase, "reward": found}
    return {**known, "setting": o.settings(stage)[setting]}


def reward(changes: Iterable[tuple[float, float]]) -> float:
    """Eq. 5: the mean of sites' loss changes (before less after), each with its weight above 0."""
    pairs = list(changes)
    total = sum(weight for _, weight in pairs)
    return sum(change * weight / total for change, weight in pairs)


def after(
    course: Course, reward: float | None, rounds: int, length: int, rng: np.random.Generator
) -> Course:
    """The state after a round.

    Args:
        course: before the round.
        reward: of the setting that was measured; None, where no site measured it, leaves it out.
        rounds: still to come in the stage.
        length: rounds of a training phase.
        rng: draws the settings of the next HO phase.
    """
    if not course.waiting:
        if course.left > 1:
            return replace(course, left=course.left - 1)
        return begin_phases(course.bandit, rounds, length, rng)
    known = {} if reward is None else {course.setting: reward}
    course = replace(course, waiting=course.waiting[1:], rewards={**course.rewards, **known})
    if course.waiting:
        return course
    return replace(course, bandit=updated(course.bandit, course.rewards), rewards={})
