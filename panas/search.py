"""One client's search: first its architecture, then its DP-SGD settings (DPFNAS, algorithm 1).

What the search looks at decides what it costs. `proxy_data` draws everything from public samples,
resampled to the client's own noised label histogram: personal, and paid for by the histogram
alone. `search_without_data` looks at noise only and costs nothing. `private_data` is the paper's
way, on the client's search split: nothing here accounts for it, and the ledger says infinity.
Scores on private samples that are noised and paid for: `panas.selection`.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from panas.data.dataset import Samples, concat
from panas.data.splits import resample_to, split
from panas.errors import BadInput, BudgetExhausted
from panas.evolution import EvolutionConfig, EvolutionResult, GenerationRecord, evolve
from panas.genome import Genome
from panas.network import Blueprint, Bottom, Head
from panas.privacy.accounting import Event
from panas.privacy.budget import Budget
from panas.privacy.plan import Plan, calibrate, cost
from panas.privacy.randomness import ReproducibleNoise
from panas.proxies import score
from panas.seeds import stream, torch_generator
from panas.selection import Algorithm
from panas.space import SearchSpace
from panas.training import Optimisation, accuracy, fit, fit_private
from panas.tuning import Setting, TrialRecord, TuningConfig, TuningResult, TuningSpace, tune


@dataclass(frozen=True)
class SearchData:
    """What a search looks at; the parts are disjoint in their origin.

    `warm` stands for what a network has seen before private training, `train` for the private
    samples, `validation` scores.
    """

    warm: Samples
    train: Samples
    validation: Samples


def proxy_data(
    public: Samples,
    histogram: Float[Tensor, "classes"],
    *,
    samples: int,
    rng: np.random.Generator,
) -> SearchData:
    """Public samples made to look like a client's: its class frequencies, its number of samples.

    Args:
        public: public samples, at least one.
        histogram: the client's noised label counts.
        samples: n, the client's number of training samples (treated as public).
        rng: which samples are drawn.

    Privacy: the outcome depends on private data through `histogram` alone.

    """
    if not len(public):
        raise BadInput(
            "expected public samples to search on, got none; give --public-data, or raise "
            "data.public_fraction"
        )
    s = split(public.y, search=0.4, validation=0.3, test=0.0, rng=rng)
    warm, train, validation = (public.take(part) for part in (s.search, s.train, s.validation))

    def alike(part: Samples, size: int) -> Samples:
        source = part if len(part) else public
        return source.take(resample_to(source.y, histogram, size, rng))

    return SearchData(warm, alike(train, samples), alike(validation, max(200, len(validation))))


def private_data(search: Samples, public: Samples, rng: np.random.Generator) -> SearchData:
    """The paper's way: five sevenths of the private search split train, one seventh validates.

    The remaining seventh is the paper's test part of the search, which nothing may choose by.
    `public` is what a warm start would see; it may be empty.

    Privacy: none; charge `Unprotected()` for the search split first.

    """
    s = split(search.y, search=0.0, validation=1 / 7, test=1 / 7, rng=rng)
    return SearchData(public, search.take(s.train), search.take(s.validation))


def search_architecture(
    data: SearchData,
    *,
    blueprint: Blueprint,
    space: SearchSpace,
    config: EvolutionConfig,
    how: Optimisation,
    seed: int,
    client: int,
    device: torch.device,
    algorithm: Algorithm = "genetic",
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    """Search a client's architecture; fitness is validation accuracy after a short training."""
    train = concat([data.warm, data.train]) if len(data.warm) else data.train

    def fitness(genome: Genome) -> float:
        networks = trained(genome, train, blueprint, how, seed, client, device)
        return accuracy(*networks, data.validation)

    rng = stream(seed, "client", client, "search")
    return explore(space, fitness, config, algorithm, rng, on_generation)


def search_without_data(
    *,
    blueprint: Blueprint,
    space: SearchSpace,
    config: EvolutionConfig,
    seed: int,
    client: int,
    algorithm: Algorithm = "genetic",
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    """Search a client's architecture by `panas.proxies.score`, which looks at noise alone.

    Privacy: reads no sample of anybody's; epsilon 0. A genome scores the same for all clients.
    """

    def fitness(genome: Genome) -> float:
        return score(genome, blueprint, stream(seed, "data-free", str(genome)))

    rng = stream(seed, "client", client, "search")
    return explore(space, fitness, config, algorithm, rng, on_generation)


def explore(
    space: SearchSpace,
    fitness: Callable[[Genome], float],
    config: EvolutionConfig,
    algorithm: Algorithm,
    rng: np.random.Generator,
    on_generation: Callable[[GenerationRecord], None] | None = None,
    map: Callable[[Callable[[Genome], float], list[Genome]], Iterable[float]] = map,
) -> EvolutionResult:
    """The genetic search, or the best of as many random genomes as it would evaluate at most."""
    if algorithm == "random":
        config = replace(
            config, population=config.population * (config.generations + 1), generations=0
        )
    return evolve(space, fitness, config=config, rng=rng, on_generation=on_generation, map=map)


def trained(
    genome: Genome,
    samples: Samples,
    blueprint: Blueprint,
    how: Optimisation,
    seed: int,
    client: int,
    device: torch.device,
) -> tuple[Bottom, Head]:
    """A genome's network after a short training without privacy.

    It is seeded by the genome, so that it comes out the same whenever and wherever it is trained.
    """
    rng = stream(seed, "client", client, "fitness", str(genome))
    generator = torch_generator(rng)
    bottom = blueprint.bottom(genome, generator).to(device)
    head = blueprint.head(generator).to(device)
    fit(bottom, head, samples, how=how, rng=rng, train_head=blueprint.head_moves)
    return bottom, head


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
