"""DecNAS: a network shrunk layer by layer; groups of sites try a candidate each, side by side.

Algorithm 4.1, in its order; what is pruned, grouped and dropped: `networks.pruning`, `candidates`.

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
and 33 % are of an iteration's first candidates (`candidates.schedule`). The last layer is not
pruned: its outputs are the classes. Filters that share a group norm go together. Latency is
estimated from times measured at the server. With no reports on GM_0 (no start) the best candidate
counts as having lost nothing.

Privacy, "sound": weights by DP-SGD; label counts of training samples by a Gaussian, charged on
"train"; right and wrong answers of validation samples, which no training reads, by Gaussians on
"search". A site with too few samples for that (`candidates.site.stand_apart`) reports no answers.
Groups, candidates and choices follow from those. "paper": all of it leaves as it is.
Numbers of training samples are public.

Source: Yuan et al. 2022, "Federated Neural Architecture Search" (DecNAS).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator
from torch import nn

from baselines.candidates import search
from baselines.candidates.progress import GLOBAL, Progress
from baselines.candidates.schedule import Schedule, planned, turns_of
from baselines.candidates.site import Here, counting_noise
from baselines.candidates.turn import SiteWork, check_networks, site_round
from baselines.common.options import options_of
from baselines.common.spending import Planned, begin
from baselines.networks.cnns import initialise, macs_of, parameters_of, weights_of
from baselines.networks.pruning import (
    Kind,
    check_prunable,
    layer_times,
    plain_network,
    prunable,
    resource_of,
    widths_of,
)
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig, rounds_of
from dprbft.methods.updates.contract import Predictor, Side, Size, Turn
from dprbft.site.site import Client, spec_of
from dprbft.updates import Bundle, Order, Update, named
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import logits_of
from panas.training.sgd import OptimizerConfig

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"privacy": {"epsilon": float("inf"), "allow_unprotected": True}},
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


def client_start(client: Client) -> Bundle:
    """The plan of all rounds; the network comes with the first order."""
    work = _work(client)
    schedule, o = _schedule(client.config, work.whole), options_of(client.config, Options)
    loads = schedule.loads(*_counts(o, work.whole, client.config.federation.clients))
    mine = [loads[r - 1] for r in rounds_of(client.config, client.id)]
    rounds = sum(load.trainings for load in mine)
    spending = begin(client, replace(work.planned, rounds=rounds))
    here = Here(
        spending=spending,
        counting=counting_noise(client, sum(load.reports for load in mine)),
        widths=widths_of(work.whole),
    )
    return Bundle(named(GLOBAL, weights_of(work.whole)), here.to_json())


def check_order(client: Client, memory: Bundle, order: Order) -> None:
    """An order is networks to train, or names of those to send; the result is one network."""
    check_networks(client, order, _work(client))


def client_round(client: Client, memory: Bundle, order: Order) -> Turn:
    """Steps 1, 4 and 7 at a site: train and test what was sent, or send what was trained."""
    return site_round(client, memory, order, _work(client))


def client_finish(client: Client, memory: Bundle, order: Order) -> Bundle:
    """Keep GM_T."""
    here, told = Here.from_json(memory.record), order.bundle.record
    here = replace(here, widths=tuple(told["widths"]), frontier=tuple(told["frontier"]))
    return Bundle(order.bundle.arrays, here.to_json())


def predictor(client: Client, memory: Bundle) -> Predictor:
    """The network that it trained last, or the result."""
    model = _work(client).network(client, Here.from_json(memory.record).widths, memory.part(GLOBAL))
    return lambda samples: logits_of(model, samples)


def size(client: Client, memory: Bundle) -> Size:
    """Its parameters and MACs; what each phase has cost the site, and the sequence of networks."""
    here = Here.from_json(memory.record)
    model = _work(client).network(client, here.widths, memory.part(GLOBAL))
    about = {
        "widths": list(here.widths),
        "cost": {phase: asdict(cost) for phase, cost in here.cost.items()},
        "frontier": [dict(point) for point in here.frontier],
    }
    macs = macs_of(model, client.spec.shape)
    return Size(parameters=parameters_of(model), macs=macs, about=about)


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
    return _kept(search.begun(p, weights_of(whole), _settings(side, p)))


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Each group's candidates, the network that all train, or the result."""
    p = Progress.from_json(memory.record)
    if round > side.config.federation.planned_rounds:
        record = {"widths": p.widths, "frontier": [asdict(point) for point in p.frontier]}
        return dict.fromkeys(sites, Bundle(named(GLOBAL, memory.part(GLOBAL)), record))
    settings = _settings(side, p)
    about = {"phase": p.phase, "step": p.step, "report": search.reports(p, settings)}
    if p.phase == "search" and p.step == "send":
        stay = [c.id for c in p.candidates]
        return dict.fromkeys(sites, Bundle({}, {**about, "send": stay}))
    rng = stream(side.config.seed, "method", "decnas", "groups", round)
    found = dict[int, Bundle]()
    for group, jobs in search.assigned(p, sites, rng):
        arrays = {k: a for c in jobs for k, a in named(c.id, memory.part(c.id)).items()}
        listed = [{"id": c.id, "widths": list(c.widths)} for c in jobs]
        found |= dict.fromkeys(group, Bundle(arrays, {**about, "jobs": listed}))
    return {site: found[site] for site in sites}


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Steps 2 to 6, as the search stands."""
    p = Progress.from_json(memory.record)
    like = {c.id: memory.part(c.id) for c in p.asked} | {GLOBAL: memory.part(GLOBAL)}
    told = search.heard(like, updates, side.facts.classes)
    return _kept(search.after_round(p, told, _settings(side, p)))


def _kept(stand: search.Stand) -> Bundle:
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


def _settings(side: Side, p: Progress) -> search.SearchSettings:
    o, spec = options_of(side.config, Options), spec_of(side.config, side.facts)
    whole = _whole(side.config, spec)
    return search.SearchSettings(
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


def _work(client: Client) -> SiteWork:
    o = options_of(client.config, Options)
    sizes: dict[str, Any] = {"batch_size": o.batch_size, "epochs": o.epochs}
    optimizer = OptimizerConfig(learning_rate=o.learning_rate, momentum=o.momentum, **sizes)
    planned = Planned(clip=o.clip, releases=1, release_share=o.histogram_share, **sizes)
    return SiteWork(_whole(client.config, client.spec), optimizer, planned)
