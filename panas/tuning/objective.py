"""DP-SGD settings of one client, by rehearsing its training on data that may be looked at.

A rehearsal starts from the network that the deployment will start from (`warm_started`) and trains
it with the noise, clip, rate and number of steps that the deployment will have. It computes on one
thread, so that a trial comes to the same value in any worker process.

Source: DPFNAS, section III-A3.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch

from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.data.search_split import SearchData
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, epsilon_of
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.errors import BudgetExhausted
from panas.runtime.journal import Journal
from panas.runtime.seeds import one_thread, stream, torch_generator
from panas.training.dp_sgd import fit_private
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig, fit
from panas.tuning.bayesian import tune
from panas.tuning.space import DPSGDSettings, TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig, TuningResult


@dataclass(frozen=True)
class TrainingObjective:
    """The validation accuracy of a setting, by a whole training on data that may be looked at.

    Attributes:
        data: `train` is trained on, `validation` scores.
        bottom, head: the networks that every trial starts from.
        schedule: of the deployment.
        momentum: of SGD, in [0, 1).
        train_head: whether the head moves.
        seed, client: name the noise; it repeats, since the ledger claims no protection here.

    """

    data: SearchData
    bottom: Bottom
    head: Head
    schedule: TrainingSchedule
    momentum: float
    train_head: bool
    seed: int
    client: int

    def __call__(self, setting: DPSGDSettings) -> float:
        """Train with a setting, and score."""
        bottom, head = copy.deepcopy(self.bottom), copy.deepcopy(self.head)
        noise = ReproducibleNoise(stream(self.seed, "client", self.client, "trial", repr(setting)))
        # It sees data.train, at the rate, steps and noise of the client's n samples.
        n, rate = len(self.data.train), min(1.0, setting.batch_size / self.schedule.samples)
        plan = Plan(
            samples=n,
            batch_size=max(1, round(rate * n)),
            clip=setting.clip,
            noise_multiplier=setting.noise_multiplier,
            epochs=setting.epochs or self.schedule.epochs,
            rounds=self.schedule.rounds,
        )
        config = OptimizerConfig(
            learning_rate=setting.learning_rate,
            momentum=self.momentum,
            train_head=self.train_head,
        )
        with one_thread():
            for _ in range(plan.rounds):
                fit_private(
                    bottom,
                    head,
                    self.data.train,
                    plan=plan,
                    config=config,
                    noise=noise,
                )
            return accuracy(bottom, head, self.data.validation)


def tune_settings(
    data: SearchData,
    genome: Genome,
    *,
    spec: NetworkSpec,
    space: TuningSpace,
    config: TuningConfig,
    budget: Budget,
    schedule: TrainingSchedule,
    warm: OptimizerConfig | None,
    momentum: float,
    train_head: bool,
    seed: int,
    client: int,
    device: torch.device,
    on_trial: Callable[[TrialRecord], None] | None = None,
    journal: Journal | None = None,
    workers: int = 1,
) -> TuningResult:
    """Tune a client's DP-SGD settings by rehearsing its whole training on `data.train`.

    Each trial starts from the same network (warm-started on `data.warm` if `warm` is given),
    trains with the noise, clip, rate and number of steps that the deployment will have, and is
    scored on `data.validation`.

    Args:
        data: what may be looked at.
        genome: the architecture.
        spec: what all networks share.
        space: where to look.
        config: number of trials, and how many are proposed at once.
        budget: finite; what the deployment may cost.
        schedule: the deployment's.
        warm: how networks are warm-started; None not at all.
        momentum: of SGD, in [0, 1).
        train_head: whether the head moves.
        seed: of the run.
        client: its id.
        device: where to compute.
        on_trial: called after each new trial.
        journal: where trials are stored; those that it holds are not trained again.
        workers: processes that train the trials that are proposed at once.

    Raises:
        BudgetExhausted: if no batch size fits the budget with any noise.

    """
    rng = stream(seed, "client", client, "rehearsal")
    generator = torch_generator(rng)
    bottom = spec.bottom(genome, generator).to(device)
    head = spec.head(generator).to(device)
    if warm and len(data.warm):
        with one_thread():
            fit(bottom, head, data.warm, config=replace(warm, train_head=train_head), rng=rng)
    refusals: list[BudgetExhausted] = []

    @cache
    def base(batch_size: int, epochs: int | None) -> Plan | None:
        try:
            return calibrate(budget, schedule, batch_size=batch_size, clip=1.0, epochs=epochs)
        except BudgetExhausted as e:
            refusals.append(e)
            return None

    def least_noise(batch_size: int, epochs: int | None) -> float | None:
        plan = base(batch_size, epochs)
        return plan.noise_multiplier if plan else None

    def affordable(setting: DPSGDSettings) -> bool:
        plan = base(setting.batch_size, setting.epochs)
        if plan is None:
            return False
        plan = replace(plan, noise_multiplier=setting.noise_multiplier, clip=setting.clip)
        events = [*schedule.spent, *plan.events()]
        return epsilon_of(events, budget) <= budget.epsilon

    try:
        return tune(
            TrainingObjective(data, bottom, head, schedule, momentum, train_head, seed, client),
            space=space,
            config=config,
            minimum_noise=least_noise,
            is_affordable=affordable,
            rng=stream(seed, "client", client, "tune"),
            validation_samples=len(data.validation),
            on_trial=on_trial,
            journal=journal,
            workers=workers,
        )
    except BudgetExhausted as e:
        raise (refusals or [e])[0] from e


def warm_started(
    genome: Genome,
    *,
    spec: NetworkSpec,
    public: Samples,
    warm: OptimizerConfig | None,
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
    bottom = spec.bottom(genome, torch_generator(rng)).to(device)
    head = spec.head(torch_generator(stream(seed, "head"))).to(device)
    if warm and len(public):
        fit(bottom, head, public, config=replace(warm, train_head=train_head), rng=rng)
    return bottom, head
