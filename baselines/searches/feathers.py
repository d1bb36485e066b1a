"""A site's round in FEATHERS: what it keeps, charges, trains and measures (algorithms 2 to 5).

The bandit that chooses hyperparameters in FEATHERS, and its phases: Eq. 5 to 7 and Algorithm 1.

An HO phase measures settings one by one, each a round from the same network; a training phase then
trains with the best one for some rounds. A stage ends with a round of training.

| symbol | name |
|---|---|
| H | the settings to choose from, numbered 0, 1, ... (`settings_of`) |
| r | `estimates`, one a setting |
| alpha | `rate`: step of an estimate that was measured, and discount of one that was not |
| beta | `exploration`: HO rounds for a unit of entropy |
| pi | `policy`, the chances of the settings |
| kappa | `phase_length`, HO rounds of a phase |

Where the paper is silent or wrong:

- Eq. 7 lacks its minus: the entropy here is not negative.
- A phase with rnd(beta H) = 0 would measure nothing: it measures one setting at least, two or more
  settings given, and none where there is nothing to choose.
- A phase draws different settings: a round that measures one again, on the same weights, tells its
  noise alone.
- The setting to train with is the best of those that were measured. The arg max of line 15 takes
  one that nobody has tried (estimate 0) as soon as all measured ones lost.
- Theorem 2 says that a first estimate is within 3 alpha sigma of the mean mu. It is of alpha mu,
  because the estimate begins at 0. Tests hold it to that.
- Its softmax has no temperature, and of loss changes far below 1 it is near uniform; `temperature`
  is 1 as published, and lower to explore less.

Source: FEATHERS, section 3.2 and 3.4. Privacy: all of it is of the rewards that sites released.

Local rounds that move weights and architecture in turn, each on samples of its own.

    a <- a - eta_a grad_a L_architecture(w*, a)
    w <- w - eta_w grad_w L_weights(w, a)

step by step, where w* is w (first order) or, with a look ahead, w after a step of its own on
samples for the weights. Under DP every gradient is clipped by sample and noised. Privacy: that of
the plans' training events, which the caller has charged; a look ahead is an event by itself.

Source: DARTS (Liu et al. 2018), algorithm 1; FEATHERS, algorithms 2 and 4.

What a site tells of a trial: by how much its loss fell. Clipped by sample, averaged, noised.

    r = (sum_i clip(l_i(before) - l_i(after), -c, c) + m c N(0, 1)) / n

i goes over the privacy units, of which one counts c at most; n is a public number near theirs. The
event is `Gaussian(m)` at sensitivity c. A group's change is the mean of its samples'. The losses
may depend on classes that count differently, by a noised histogram.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from baselines.common.halves import Halves, halves
from baselines.common.options import options_of
from baselines.common.orders import check_record, check_rows, check_weights
from baselines.common.spending import Mechanism, Spending, after_round, charged
from baselines.networks.cnns import initialise
from baselines.networks.darts import DartsSpace
from baselines.networks.mlp_space import MLPSpace
from baselines.networks.searched import SearchedNetworks, alphas_of, weights_but_alphas
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order
from panas.architecture.network import weights_of
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.privacy.accounting.events import Gaussian
from panas.privacy.calibration import release_multiplier
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.ledger.charge import Receipt
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.plan import Plan
from panas.privacy.release.histogram import unit_counts
from panas.privacy.unit import number_units
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import logits_of
from panas.training.sgd import OptimizerConfig, make_optimizer

Setting = Mapping[str, float]
"""Hyperparameters by name."""

Phase = Literal["ho", "train"]
"""Of measuring settings, or of training with the best."""


def settings_of(menus: Mapping[str, Sequence[float]]) -> tuple[Setting, ...]:
    """All combinations of what menus of hyperparameters offer; BadInput if there is none."""
    for name, menu in menus.items():
        if not menu:
            raise BadInput(f"expected hyperparameters to choose from in {name}, got none; give one")
    if not menus:
        raise BadInput("expected hyperparameters to choose from, got none; name one")
    rows = itertools.product(*(dict.fromkeys(menu) for menu in menus.values()))
    return tuple(dict(zip(menus, row, strict=True)) for row in rows)


@dataclass(frozen=True, kw_only=True)
class Bandit:
    """What is known of each setting, and how it is learnt."""

    estimates: tuple[float, ...]
    measured: tuple[bool, ...]  # whether the setting was ever tried
    rate: float  # alpha, in (0, 1)
    exploration: float  # beta, 0 or more
    temperature: float = 1.0  # of the softmax, above 0

    @staticmethod
    def fresh(settings: int, *, rate: float, exploration: float, temperature: float) -> "Bandit":
        """Line 3: no setting is known.

        Args:
            settings: how many there are, at least 1.
            rate: alpha, in (0, 1).
            exploration: beta, 0 or more.
            temperature: of the softmax, above 0.
        """
        return Bandit(
            estimates=(0.0,) * settings,
            measured=(False,) * settings,
            rate=rate,
            exploration=exploration,
            temperature=temperature,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Bandit":
        """Read back `to_json`."""
        rows = {name: tuple(record[name]) for name in ("estimates", "measured")}
        return Bandit(**{**record, **rows})

    @property
    def policy(self) -> Float64[np.ndarray, "settings"]:
        """Chances pi of the settings: the softmax of their estimates."""
        scaled = np.array(self.estimates) / self.temperature
        weights = np.exp(scaled - scaled.max())
        return np.asarray(weights / weights.sum())

    @property
    def entropy(self) -> float:
        """H of Eq. 7 with its minus, in nats: ln of their number while no setting is known."""
        chances = self.policy
        known = chances[chances > 0]
        return float(-(known * np.log(known)).sum())

    @property
    def phase_length(self) -> int:
        """Settings that the next HO phase measures, kappa = rnd(beta H), halves rounded up."""
        settings = len(self.estimates)
        wanted = _length(self.exploration * self.entropy, settings)
        return min(wanted, longest_phase(settings, self.exploration))  # also where rounding errs

    @property
    def best(self) -> int:
        """Line 15: the setting with the highest estimate of those measured; 0 before any is."""
        tried = [i for i, known in enumerate(self.measured) if known]
        return max(tried, key=lambda i: self.estimates[i], default=0)


def longest_phase(settings: int, exploration: float) -> int:
    """The most that a phase measures: what the first one does, whose entropy is the largest."""
    return _length(exploration * math.log(settings), settings)


def draw(bandit: Bandit, rng: np.random.Generator) -> tuple[int, ...]:
    """Line 7: the different settings that an HO phase measures, by the policy."""
    chances = np.maximum(bandit.policy, np.finfo(float).tiny)  # what underflows can still be drawn
    size = bandit.phase_length
    drawn = rng.choice(len(chances), size, replace=False, p=chances / chances.sum())
    return tuple(int(i) for i in drawn)


def updated(bandit: Bandit, rewards: Mapping[int, float]) -> Bandit:
    """Eq. 6: estimates go towards the rewards of a phase; those not measured shrink."""
    alpha = bandit.rate
    estimates = (
        r + alpha * (rewards[i] - r) if i in rewards else alpha * r
        for i, r in enumerate(bandit.estimates)
    )
    measured = (known or i in rewards for i, known in enumerate(bandit.measured))
    return replace(bandit, estimates=tuple(estimates), measured=tuple(measured))


@dataclass(frozen=True, kw_only=True)
class Course:
    """Where a stage stands: a state that moves by one round (lines 5 to 17)."""

    bandit: Bandit
    waiting: tuple[int, ...]  # settings that this HO phase still measures, in order
    rewards: Mapping[int, float]  # of those that it has measured
    left: int  # rounds of the training phase that goes on, or comes next

    @property
    def phase(self) -> Phase:
        """Whether the next round measures or trains."""
        return "ho" if self.waiting else "train"

    @property
    def setting(self) -> int:
        """The setting of the next round: that to be measured, or the best."""
        return self.waiting[0] if self.waiting else self.bandit.best

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "bandit": self.bandit.to_json(),
            "waiting": list(self.waiting),
            "rewards": {str(i): r for i, r in self.rewards.items()},
            "left": self.left,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Course":
        """Read back `to_json`."""
        return Course(
            bandit=Bandit.from_json(record["bandit"]),
            waiting=tuple(record["waiting"]),
            rewards={int(i): r for i, r in record["rewards"].items()},
            left=record["left"],
        )


def begin_phases(bandit: Bandit, rounds: int, length: int, rng: np.random.Generator) -> Course:
    """Lines 5 to 8: an HO phase, then rounds of training.

    Args:
        bandit: chooses what the HO phase measures.
        rounds: of the stage that are to come; the last of them trains.
        length: rounds of the training phase.
        rng: draws the settings.
    """
    waiting = draw(bandit, rng)[: max(0, rounds - 1)]
    return Course(bandit=bandit, waiting=waiting, rewards={}, left=length)


def most_measured(rounds: int, longest: int, length: int) -> int:
    """The most rounds that can measure: where every HO phase is the longest.

    Args:
        rounds: of a stage.
        longest: rounds of an HO phase, at most (`longest_phase`).
        length: rounds of a training phase, at least 1.
    """
    whole, rest = divmod(rounds, longest + length)
    return whole * longest + min(rest, longest)


def _length(wanted: float, settings: int) -> int:
    return 0 if settings == 1 else min(settings, max(1, math.floor(wanted + 0.5)))


Stage = Literal["search", "evaluation"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]


class Options(Section):
    """Hyperparameters to choose from, phases, local training, and the sizes of networks."""

    learning_rates: tuple[Positive, ...] = (1.0, 0.5, 0.2)  # of weights
    momenta: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.0,)  # of weights
    architecture_rates: tuple[Positive, ...] = (0.5,)  # learning rates of alphas
    search_share: Share = 0.5  # of the rounds, for the search stage
    phase_rounds: Count = 3  # rounds of a training phase
    estimate_rate: Share = 0.5  # alpha of Eq. 6
    exploration: Annotated[float, Field(ge=0)] = 1.5  # beta: HO rounds for a nat of entropy
    temperature: Positive = 1.0  # of the softmax over estimates
    batch_size: Count = 32  # under DP an expected one
    epochs: Count = 1  # passes a round
    clip: Positive = 1.0  # norm of a sample's gradient under DP, of weights or of alphas
    reward_clip: Positive = 1.0  # of a sample's change of loss under DP
    reward_share: Share = 0.2  # of epsilon on "search", sizes the noise of rewards
    architecture_share: Share = 0.5  # of training samples, for architecture and rewards
    lookahead: bool = False  # alphas see the weights a step ahead; costs another round
    balance: bool = False  # classes count alike in the loss
    balance_share: Share = 0.05  # of epsilon on "train", sizes the noise of its histogram
    cells: Count = 3  # of images' super-network
    channels: Count = 4  # of its first cell
    nodes: Count = 2  # of a cell
    evaluation_cells: Count = 3  # of the chosen network
    evaluation_channels: Count = 8
    blocks: Count = 3  # of tables' networks
    width: Count = 32  # numbers between their blocks

    @field_validator("learning_rates", "momenta", "architecture_rates")
    @classmethod
    def _some(cls, menu: tuple[float, ...]) -> tuple[float, ...]:
        if not menu:
            raise ValueError("to hold a hyperparameter to choose")
        return menu

    def settings(self, stage: Stage) -> tuple[Setting, ...]:
        """The set H of a stage."""
        menus = {"learning_rate": self.learning_rates, "momentum": self.momenta}
        if stage == "search":
            menus["architecture_rate"] = self.architecture_rates
        return settings_of(menus)


def search_rounds(config: RunConfig) -> int:
    """Rounds of the search stage; at least one, and one is left for the evaluation."""
    rounds, o = config.federation.rounds, options_of(config, Options)
    return min(rounds - 1, max(1, round(o.search_share * rounds)))


def most_trials(config: RunConfig) -> int:
    """Rounds that measure, at most: what rewards are planned for."""
    o, last = options_of(config, Options), search_rounds(config)
    stages: tuple[tuple[Stage, int], ...] = (
        ("search", last),
        ("evaluation", config.federation.rounds - last),
    )
    return sum(
        most_measured(n, longest_phase(len(o.settings(s)), o.exploration), o.phase_rounds)
        for s, n in stages
    )


def stage_begun(config: RunConfig, stage: Stage) -> Course:
    """The phases of a stage, from its first HO phase on; no setting is known."""
    o, last = options_of(config, Options), search_rounds(config)
    fresh = Bandit.fresh(
        len(o.settings(stage)),
        rate=o.estimate_rate,
        exploration=o.exploration,
        temperature=o.temperature,
    )
    rounds = last if stage == "search" else config.federation.rounds - last
    return begin_phases(fresh, rounds, o.phase_rounds, stream(config.seed, "feathers", stage))


def space_of(config: RunConfig, facts: Facts) -> SearchedNetworks:
    """The space for images, or for tables."""
    o, shape, classes = options_of(config, Options), facts.shape, facts.classes
    if facts.columns:
        inputs = shape[0] * shape[1] * shape[2]
        table = MLPSpace(inputs=inputs, classes=classes, blocks=o.blocks, width=o.width)
        return SearchedNetworks(search=table, evaluation=table)
    small = DartsSpace(
        shape=shape, classes=classes, cells=o.cells, channels=o.channels, nodes=o.nodes
    )
    large = replace(small, cells=o.evaluation_cells, channels=o.evaluation_channels)
    return SearchedNetworks(search=small, evaluation=large)


def network_of(
    config: RunConfig, facts: Facts, architecture: Mapping[str, Any] | None
) -> nn.Module:
    """The super-network, or that of an architecture, with weights from the run's seed.

    Args:
        config: for the options and the seed.
        facts: shape, classes and columns of the data.
        architecture: as the space writes it; None: the super-network.
    """
    space = space_of(config, facts)
    model = space.super_network() if architecture is None else space.network(architecture)
    purpose = "super-network" if architecture is None else "network"
    return initialise(model, torch_generator(stream(config.seed, "feathers", purpose)))


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How some parameters move in a round."""

    samples: Samples
    plan: Plan | None  # None: without privacy
    optimizer: OptimizerConfig  # without privacy also batches and epochs
    loss: Loss
    rng: np.random.Generator  # orders the samples where there is no privacy


class Steps:
    """The steps of a round for some parameters of a model; all others stay.

    Args:
        model: moved in place, on its device.
        moving: the parameters that move.
        how: samples, plan, optimiser and loss.
    """

    def __init__(self, model: nn.Module, moving: Sequence[nn.Parameter], how: Descent) -> None:
        self._model, self._moving, self._how = model, list(moving), how
        self._optimizer = make_optimizer(self._moving, how.optimizer)
        self._noise, self._gradient = SystemNoise(), None
        if how.plan is not None:
            with _only(model, self._moving):
                self._gradient = PrivateGradient(model, how.loss)
            self.left = how.plan.steps
            self._batches = how.plan.batches(self._noise, len(how.samples), how.samples.groups)
        else:
            o = how.optimizer
            self.left = o.epochs * math.ceil(len(how.samples) / o.batch_size)
            self._batches = _shuffled(len(how.samples), o, how.rng)

    def take(self) -> None:
        """The next step, of the `left` ones."""
        self.left -= 1
        how, batch, device = self._how, next(self._batches), self._moving[0].device
        x, y = how.samples.inputs(batch).to(device), how.samples.y[batch].to(device)
        with _only(self._model, self._moving):
            if self._gradient is None or how.plan is None:
                self._optimizer.zero_grad(set_to_none=True)
                how.loss(self._model(x), y).mean().backward()
            else:
                groups = None if how.samples.groups is None else how.samples.groups[batch]
                self._gradient.step(x, y, how.plan.clip_and_noise, self._noise, groups)
            self._optimizer.step()


def alternate(weights: Steps, alphas: Steps | None = None, ahead: Steps | None = None) -> None:
    """All steps of a round; a step of `alphas` comes before one of `weights`.

    Args:
        weights: steps of the weights.
        alphas: steps of the architecture; None: it stays.
        ahead: steps of the weights that each step of `alphas` looks ahead by, undone after it.
    """
    while weights.left or (alphas and alphas.left):
        if alphas and alphas.left:
            with _back(ahead):
                if ahead and ahead.left:
                    ahead.take()
                alphas.take()
        if weights.left:
            weights.take()


@contextmanager
def _back(ahead: Steps | None) -> Iterator[None]:
    """Undo what moves within it by a look ahead."""
    kept = [p.detach().clone() for p in ahead._moving] if ahead else []
    yield
    with torch.no_grad():
        for p, old in zip(ahead._moving if ahead else [], kept, strict=True):
            p.copy_(old)


@contextmanager
def _only(model: nn.Module, moving: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within it, no other parameter of a model has a gradient."""
    before = [(p, p.requires_grad) for p in model.parameters()]
    try:
        model.requires_grad_(False)
        for p in moving:
            p.requires_grad_(True)
        yield
    finally:
        for p, moves in before:
            p.requires_grad_(moves)


def _shuffled(samples: int, o: OptimizerConfig, rng: np.random.Generator) -> Iterator[Tensor]:
    for _ in range(o.epochs):
        yield from torch.from_numpy(rng.permutation(samples)).split(o.batch_size)


def loss_change(
    before: Float[Tensor, "n"],
    after: Float[Tensor, "n"],
    samples: Samples,
    clip: float,
    noise: tuple[float, NoiseSource] | None,
    n: int | None = None,
) -> float:
    """Mean fall of the loss over the privacy units of samples.

    What is not a number counts as a loss of `clip`: a setting under which training blows up.

    Args:
        before: losses of the samples before training.
        after: the same after training.
        samples: they tell the units.
        clip: c, above 0.
        noise: m and where the noise comes from; None: nothing is clipped nor noised, and without
            samples nothing changes.
        n: the divisor, a public number; None: as many units as there are.

    Privacy: `Gaussian(m)` at sensitivity c, charged before the losses are computed.
    """
    changes = (before - after).double()
    if samples.groups is not None:
        units = number_units(samples.groups)
        sums = torch.zeros(samples.units, dtype=torch.float64).index_add_(0, units, changes)
        changes = sums / units.bincount()
    changes = torch.where(changes.isfinite(), changes, -clip)
    if noise is None:
        return float(changes.mean()) if len(changes) else 0.0
    multiplier, source = noise
    total = changes.clamp(-clip, clip).sum() + multiplier * clip * source.normal(1)[0]
    return float(total / (max(1, samples.units) if n is None else n))


def balancing(histogram: Sequence[float], noise: float = 1.0) -> tuple[float, ...]:
    """Weights of the classes under which all count alike; no count is taken for less than its
    noise's standard deviation, nor for less than 1."""
    counts = [max(1.0, noise, count) for count in histogram]
    return tuple(sum(counts) / (len(counts) * count) for count in counts)


def weighted_loss(weights: Sequence[float]) -> Loss:
    """Cross-entropy, times the weight of a sample's class; plain without weights."""
    if not weights:
        return cross_entropy
    by_class = torch.tensor(list(weights), dtype=torch.float32)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return by_class.to(outputs)[y] * F.cross_entropy(outputs, y, reduction="none")

    return loss


@dataclass(frozen=True, kw_only=True)
class SiteState:
    """What a site keeps beside the network."""

    weights: Spending  # on "train"
    alphas: Spending  # on "search", of the architecture and of rewards
    class_weights: tuple[float, ...]  # of the loss; () for a plain one
    architecture: Mapping[str, Any] | None = None  # that the network is of; None: of all
    trace: Sequence[Mapping[str, Any]] = ()  # of the server, at the end
    passes: int = 0  # samples that the search stage went through, forward and backward

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        spent = {"weights": self.weights.to_json(), "alphas": self.alphas.to_json()}
        return {**asdict(self), **spent}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "SiteState":
        """Read back `to_json`."""
        spent = {name: Spending.from_json(record[name]) for name in ("weights", "alphas")}
        return SiteState(**{**record, **spent, "class_weights": tuple(record["class_weights"])})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a site is to do in a round."""

    stage: Stage
    phase: Phase
    setting: Setting
    architecture: Mapping[str, Any] | None


def check_trial(site: Site, memory: Bundle, order: Order) -> None:
    """Refuse an order that is no setting of its stage, and the network to try it on; and a result
    that is no network with the trace of the settings.

    Args:
        site: for its settings and facts.
        memory: its network has the expected shapes, while the architecture stays the same.
        order: untrusted.
    """
    record, c = order.bundle.record, site.config
    searches = order.round <= search_rounds(c)
    architecture = type(None) if searches else dict
    if order.round > c.federation.rounds:
        check_record(record, architecture=architecture, trace=list)
        check_rows(record["trace"], c.federation.rounds)
    else:
        check_record(record, architecture=architecture, stage=str, phase=str, setting=dict)
        stage: Stage = "search" if searches else "evaluation"
        known = record["setting"] in options_of(c, Options).settings(stage)
        if record["stage"] != stage or record["phase"] not in ("ho", "train") or not known:
            raise BadInput(f"expected a setting of the {stage} stage in an order, got another")
    like = dict(memory.arrays)
    if record["architecture"] != memory.record["architecture"]:
        like = weights_of(network_of(c, site.facts, record["architecture"]))
    check_weights(order.bundle.arrays, like)


def parts_of(site: Site) -> Halves:
    """A site's training samples, for weights and for the architecture."""
    return halves(site, options_of(site.config, Options).architecture_share)


def balanced(site: Site, o: Options, parts: Halves) -> tuple[float, ...]:
    """Weights of the classes in the loss, by public labels; without any, by noised counts.

    No weights, and nothing is read, where that share of the budget is too small for any noise.

    Args:
        site: its public samples, budget and ledger.
        o: for `balance_share`.
        parts: the labels of those for weights are counted.

    Privacy: a `Gaussian` at sensitivity 1, charged on "train" before labels are read.
    """
    if len(site.public):
        return balancing(site.public.histogram().double().tolist())
    event = None
    if site.budget.private:
        try:
            event = Gaussian(release_multiplier(site.budget, 1, o.balance_share))
        except BudgetExhausted:
            return ()
    with charged(site, Mechanism("label-histogram", 1.0, phase="search"), event, 0):
        counts = unit_counts(parts.weights.y, parts.weights.groups, site.spec.classes)
        if event is None:
            return balancing(counts.tolist())
        counts = counts + event.noise_multiplier * SystemNoise().normal(len(counts))
    return balancing(counts.tolist(), event.noise_multiplier)


def charge_round(site: Site, state: SiteState, trial: Trial, round: int) -> list[Receipt] | None:
    """Charge all that a round reads; None, and nothing is charged, where a plan is used up.

    Args:
        site: its ledger and settings.
        state: the site's plans before the round.
        trial: what the round does.
        round: from 1.
    """
    weights, alphas = state.weights, state.alphas
    searches, measures = trial.stage == "search", trial.phase == "ho"
    if weights.skips or (searches and alphas.skips):
        return None
    if measures and alphas.plan is not None and not alphas.plan.releases:
        return None
    o = options_of(site.config, Options)
    name, clip = ("dp-sgd", o.clip) if site.budget.private else ("sgd", None)
    plans = [weights] * (2 if searches and o.lookahead else 1) + [alphas] * searches
    receipts = [
        charged(
            site,
            Mechanism(name, clip, subset=s.subset),
            s.plan.training_event if s.plan else None,
            round,
        )
        for s in plans
    ]
    if measures:
        event = alphas.plan.release_event if alphas.plan else None
        mechanism = Mechanism("reward", o.reward_clip, phase="release", subset="search")
        receipts.append(charged(site, mechanism, event, round))
    return receipts


def after_charges(site: Site, state: SiteState, trial: Trial) -> SiteState:
    """The plans after a round's charges, and the samples that it went through.

    Args:
        site: its ledger, settings and numbers of samples.
        state: before the round.
        trial: what the round did.
    """
    o, parts = options_of(site.config, Options), parts_of(site)
    times = 2 if trial.stage == "search" and o.lookahead else 1
    weights, passes = state.weights, times * len(parts.weights) + len(parts.architecture)
    for _ in range(times):
        weights = after_round(site, weights)
    alphas = after_round(site, state.alphas, releases=int(trial.phase == "ho"))
    passes = o.epochs * passes if trial.stage == "search" else 0
    return replace(state, weights=weights, alphas=alphas, passes=state.passes + passes)


def train(site: Site, model: nn.Module, state: SiteState, trial: Trial, round: int) -> float | None:
    """Train a model in place, and measure how its loss changed in an HO phase.

    Args:
        site: its training samples and settings.
        model: on the site's device.
        state: plans, which are charged already, and weights of the classes.
        trial: what the round does.
        round: from 1; it seeds the order of samples without protection.
    """
    o, parts, loss = (
        options_of(site.config, Options),
        parts_of(site),
        weighted_loss(state.class_weights),
    )

    def steps(purpose: str, moving: list[nn.Parameter], rate: str, spending: Spending) -> Steps:
        momentum = trial.setting["momentum"] if purpose == "weights" else 0.0
        how = Descent(
            samples=parts.architecture if purpose == "alphas" else parts.weights,
            plan=spending.plan,
            optimizer=OptimizerConfig(
                learning_rate=trial.setting[rate],
                momentum=momentum,
                batch_size=o.batch_size,
                epochs=o.epochs,
            ),
            loss=loss,
            rng=stream(site.config.seed, "client", site.id, "round", round, purpose),
        )
        return Steps(model, moving, how)

    def losses() -> Tensor:
        with torch.no_grad():
            return loss(logits_of(model, parts.architecture), parts.architecture.y)

    before = losses() if trial.phase == "ho" else None
    own, alphas, ahead = weights_but_alphas(model), None, None
    if trial.stage == "search":
        alphas = steps("alphas", alphas_of(model), "architecture_rate", state.alphas)
        ahead = steps("ahead", own, "learning_rate", state.weights) if o.lookahead else None
    alternate(steps("weights", own, "learning_rate", state.weights), alphas, ahead)
    if before is None:
        return None
    plan = state.alphas.plan
    noise = (plan.release_event.noise_multiplier, SystemNoise()) if plan else None
    n = plan.samples if plan else None
    return loss_change(before, losses(), parts.architecture, o.reward_clip, noise, n)
