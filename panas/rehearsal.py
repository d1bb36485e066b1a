"""DP-SGD settings of one client, by rehearsing its training on data that may be looked at.

A rehearsal starts from the network that the deployment will start from (`deployable`) and trains
it with the noise, clip, rate and number of steps that the deployment will have.

Source: DPFNAS, section III-A3.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from panas.data.dataset import Samples
from panas.errors import BudgetExhausted
from panas.genome import Genome
from panas.network import Blueprint, Bottom, Head
from panas.privacy.accounting import Event
from panas.privacy.budget import Budget
from panas.privacy.plan import Plan, calibrate, cost
from panas.privacy.randomness import ReproducibleNoise
from panas.search_data import SearchData
from panas.seeds import stream, torch_generator
from panas.training import Optimisation, accuracy, fit, fit_private
from panas.tuning import Setting, TrialRecord, TuningConfig, TuningResult, TuningSpace, tune


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A client's part in the federation, as far as its budget is concerned.

    Attributes:
        samples: n, its training samples.
        epochs: local passes a round.
        rounds: rounds it trains in.
        releases: releases it makes.
        release_share: share of epsilon that sizes release noise.
        spent: what it was charged before.
        flip: of the labels of noisy rows; None for other releases.
        classes: number of classes, if `flip` is given.

    """

    samples: int
    epochs: int
    rounds: int
    releases: int
    release_share: float
    spent: Sequence[Event] = ()
    flip: float | None = None
    classes: int = 0

    def plan(self, budget: Budget, batch_size: int, clip: float) -> Plan:
        """The plan with the least noise; raises BudgetExhausted if there is none."""
        return calibrate(
            budget,
            samples=self.samples,
            batch_size=batch_size,
            clip=clip,
            epochs=self.epochs,
            rounds=self.rounds,
            releases=self.releases,
            release_share=self.release_share,
            flip=self.flip,
            classes=self.classes,
            spent=self.spent,
        )


def tune_settings(
    data: SearchData,
    genome: Genome,
    *,
    blueprint: Blueprint,
    space: TuningSpace,
    config: TuningConfig,
    budget: Budget,
    schedule: Schedule,
    warm: Optimisation | None,
    momentum: float,
    train_head: bool,
    seed: int,
    client: int,
    device: torch.device,
    on_trial: Callable[[TrialRecord], None] | None = None,
    judge: Callable[[Bottom, Head], float] | None = None,
) -> TuningResult:
    """Tune a client's DP-SGD settings by rehearsing its whole training on `data.train`.

    Each trial starts from the same network (warm-started on `data.warm` if `warm` is given),
    trains with the noise, clip, rate and number of steps that the deployment will have, and is
    scored on `data.validation`, or by `judge`, which answers for what it looks at.

    Raises:
        BudgetExhausted: if no batch size fits the budget with any noise.

    """
    rng = stream(seed, "client", client, "rehearsal")
    generator = torch_generator(rng)
    bottom = blueprint.bottom(genome, generator).to(device)
    head = blueprint.head(generator).to(device)
    if warm and len(data.warm):
        fit(bottom, head, data.warm, how=warm, rng=rng, train_head=train_head)
    base: dict[int, Plan] = {}
    refusals: list[BudgetExhausted] = []

    def least_noise(batch_size: int) -> float | None:
        try:
            base[batch_size] = schedule.plan(budget, batch_size, clip=1.0)
        except BudgetExhausted as e:
            refusals.append(e)
            return None
        return base[batch_size].noise_multiplier

    def plan_of(setting: Setting) -> Plan:
        return replace(
            base[setting.batch_size],
            noise_multiplier=setting.noise_multiplier,
            clip=setting.clip,
        )

    def affordable(setting: Setting) -> bool:
        plan = plan_of(setting)
        events = [*schedule.spent, *plan.events()]
        return cost(events, budget, relation=plan.relation) <= budget.epsilon

    def objective(setting: Setting) -> float:
        trial = copy.deepcopy(bottom), copy.deepcopy(head)
        noise = ReproducibleNoise(stream(seed, "client", client, "trial", repr(setting)))
        # A rehearsal sees data.train, at the rate, steps and noise of the client's n samples.
        plan, n = plan_of(setting), len(data.train)
        plan = replace(plan, samples=n, batch_size=max(1, round(plan.rate * n)))
        how = Optimisation(learning_rate=setting.learning_rate, momentum=momentum)
        for _ in range(schedule.rounds):
            fit_private(*trial, data.train, plan=plan, how=how, noise=noise, train_head=train_head)
        return judge(*trial) if judge else accuracy(*trial, data.validation)

    try:
        return tune(
            objective,
            space=space,
            config=config,
            minimum_noise=least_noise,
            is_affordable=affordable,
            rng=stream(seed, "client", client, "tune"),
            on_trial=on_trial,
        )
    except BudgetExhausted as e:
        raise (refusals or [e])[0] from e


def deployable(
    genome: Genome,
    *,
    blueprint: Blueprint,
    public: Samples,
    warm: Optimisation | None,
    train_head: bool,
    seed: int,
    client: int,
    device: torch.device,
) -> tuple[Bottom, Head]:
    """The network with which a client enters the federation, warm-started on public samples.

    The head's draw is the same for all clients (it is the server's first broadcast).

    Privacy: no private sample is read.
    """
    rng = stream(seed, "client", client, "deploy")
    bottom = blueprint.bottom(genome, torch_generator(rng)).to(device)
    head = blueprint.head(torch_generator(stream(seed, "head"))).to(device)
    if warm and len(public):
        fit(bottom, head, public, how=warm, rng=rng, train_head=train_head)
    return bottom, head
