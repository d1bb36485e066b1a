"""What a site of DP-FNAS sends in a round: gradients of W, of A (equations 5 to 7), or both.

Charges for several steps of DP-SGD at once, in methods whose rounds are single steps.

The ledger prices all that was charged at every charge, and writes it to the disk: for a thousand
rounds of one step that takes longer than the steps. So a charge pays for a block of steps, before
the first of them; later ones use its receipt. A step that is done again after a death is paid
already: what a site has done is kept before it leaves, so the first outcome never did.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from baselines.common.models import loaded as place
from baselines.common.options import options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.spending import (
    Mechanism,
    Planned,
    Spending,
    after_round,
    begin,
    charged,
    current,
)
from baselines.networks.cnns import initialise
from baselines.networks.darts import (
    NONE,
    OPERATIONS,
    DartsSpace,
    Discrete,
    Genotype,
    Pair,
    SuperNetwork,
    is_alpha,
)
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, named
from panas.architecture.network import NetworkSpec, weights_of
from panas.data.samples import Samples, concat
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.privacy.gradients.private import ClipAndNoise, PrivateGradient
from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise, poisson_batch
from panas.privacy.plan import Plan
from panas.privacy.unit import number_units, rows_of
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream, torch_generator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Options(Section):
    """Settings of the search, of the network that it leads to, and of both networks' sizes."""

    search_share: Share = 0.4  # of all rounds; in the others the last network is trained
    exchange: Literal["alternate", "together"] = "alternate"  # together: one round an iteration
    order: Literal["first", "second"] = "first"  # second: equations 5 and 7
    difference: Positive = 0.01  # length of the step from W to W+ and W- (order = "second")
    strongest: Count = 2  # edges of a node that are kept
    architecture_share: Share = 0.5  # chance of a training sample to be of the validation part
    batch_size: Count = 64  # B, expected, of each part
    clip: Positive = 1.0  # R_G, norm of a sample's gradient of W
    architecture_clip: Positive = 0.1  # R_H, norm of a sample's gradient of A
    noise_multiplier: Positive | None = None  # sigma and tau; None: the least in the budget
    evaluation: Literal["private", "plain"] = "private"  # plain: the last network without noise
    steps_a_charge: Count = 10  # that the ledger notes, and prices, at once
    learning_rate: Positive = 0.3  # xi, of W
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of both descents of weights
    architecture_rate: Positive = 10.0  # eta, of A
    evaluation_rate: Positive = 0.3  # of the last network
    cells: Count = 2  # of the super-network
    channels: Count = 4  # of its first cell
    nodes: Count = 2  # of a cell
    stem: Count = 3  # channels of the first convolution, as a multiple
    operations: tuple[str, ...] = OPERATIONS
    evaluation_cells: Count = 3  # of the last network
    evaluation_channels: Count = 8  # of its first cell
    measure_every: Count = 5  # rounds

    @model_validator(mode="after")
    def _fits(self) -> "Options":
        unknown = [name for name in self.operations if name not in OPERATIONS]
        if unknown or len({*self.operations} - {NONE}) < 1:
            raise ValueError(f"operations among {', '.join(OPERATIONS)}, at least one but none")
        if len({*self.operations}) < len(self.operations):
            raise ValueError("operations that are named once each")
        if self.order == "second" and self.exchange == "together":
            raise ValueError('exchange = "alternate" with order = "second"')
        return self


def least_search(config: RunConfig) -> int:
    """The rounds of one iteration of the search, which has a step of W and one of A."""
    return 1 if options_of(config, Options).exchange == "together" else 2


def search_rounds(config: RunConfig) -> int:
    """How many of the rounds search; in the others the last network is trained."""
    rounds, o = config.federation.rounds, options_of(config, Options)
    return max(least_search(config), min(rounds - 1, round(o.search_share * rounds)))


def asked(config: RunConfig, round: int) -> str:
    """What sites send in a round: gradients of "W", "A", both, or "E" of the last network."""
    if round > search_rounds(config):
        return "E"
    if options_of(config, Options).exchange == "together":
        return "WA"
    return "W" if round % 2 else "A"


def reads(config: RunConfig, round: int) -> list[str]:
    """The part that each batch of a round is drawn from, as the ledger names it."""
    of_alphas = ["search"]
    if options_of(config, Options).order == "second":
        of_alphas = ["search", "search", "train"]
    both = ["train", "search"]
    return {"W": ["train"], "A": of_alphas, "WA": both, "E": both}[asked(config, round)]


def begun(
    spec: NetworkSpec, o: Options, seed: int, genotype: Mapping[str, Any] | None = None
) -> nn.Module:
    """The super-network, or that of a genotype, with weights from the run's seed.

    Args:
        spec: shape of a sample, and the number of classes.
        o: sizes of both networks.
        seed: of the run.
        genotype: untrusted JSON of a `Genotype`; None: the super-network.
    """
    space = DartsSpace(
        shape=spec.shape,
        classes=spec.classes,
        cells=o.cells,
        channels=o.channels,
        nodes=o.nodes,
        operations=o.operations,
        stem=o.stem,
    )
    if genotype is None:
        return initialise(SuperNetwork(space), torch_generator(stream(seed, "dp_fnas", "search")))
    larger = replace(space, cells=o.evaluation_cells, channels=o.evaluation_channels)
    last = Discrete(larger, Genotype.checked(genotype, larger, o.strongest))
    return initialise(last, torch_generator(stream(seed, "dp_fnas", "evaluation")))


def check_network(site: Site, memory: Bundle, order: Order) -> None:
    """An order is the super-network or, once the search is over, that of a genotype.

    Args:
        site: for its settings and facts.
        memory: its network has the expected shapes, while the genotype stays the same.
        order: untrusted.
    """
    record, o = order.bundle.record, options_of(site.config, Options)
    sends = asked(site.config, order.round)
    check_record(record, genotype=dict if sends == "E" else type(None))
    like = dict(memory.arrays)
    if record["genotype"] != memory.record["genotype"]:
        like = weights_of(begun(site.spec, o, site.config.seed, record["genotype"]))
    sent = named("network", like)
    if sends == "A" and o.order == "second":
        sent |= named("before", {n: w for n, w in like.items() if not is_alpha(n)})
    check_weights(order.bundle.arrays, sent)


def loaded(site: Site, bundle: Bundle) -> nn.Module:
    """The network of a message or a memory, on the site's device."""
    o = options_of(site.config, Options)
    network = begun(site.spec, o, site.config.seed, bundle.record["genotype"])
    return place(site, network, bundle.part("network"))


@dataclass(frozen=True)
class Part:
    """Some of a site's samples, and how a batch is drawn from them."""

    samples: Samples
    batch_size: int  # expected; more than there are: all
    plan: Plan | None = None  # None: without protection

    @property
    def rate(self) -> float:
        """Probability that a unit is in a batch."""
        if self.plan is not None:
            return self.plan.rate
        return min(1.0, self.batch_size / max(1, self.samples.units))

    @property
    def expected(self) -> float:
        """Units of a batch: a public number under a plan."""
        return self.rate * (self.samples.units if self.plan is None else self.plan.samples)

    def batch(self, noise: NoiseSource) -> Samples:
        """A Poisson batch; a group comes with all its samples."""
        drawn = poisson_batch(self.samples.units, self.rate, noise)
        groups = self.samples.groups
        return self.samples.take(drawn if groups is None else rows_of(number_units(groups), drawn))


def batch_gradient(
    model: nn.Module,
    parts: Sequence[Part],
    noise: NoiseSource,
    *,
    clip: float | None = None,
    loss: Loss = cross_entropy,
) -> dict[str, Tensor]:
    """The gradient of the trainable parameters by name, of one batch of all parts together.

    Under plans it is clipped a unit at a time, noised and divided by the public expected size;
    without, it is the mean over the batch, and zero for an empty one or where it is not finite:
    what such a batch sends is as large as any other.

    Args:
        model: on its device.
        parts: disjoint samples; all with a plan, or none.
        noise: of batches and mechanism.
        clip: norm of a unit's gradient in the place of the plans'.
        loss: one a sample.

    Privacy: `SampledGaussian(rate, noise_multiplier, 1)` of each part's own plan, on that part.
    """
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    device = next(iter(named.values())).device
    plans = [part.plan for part in parts if part.plan is not None]
    batch = concat([part.batch(noise) for part in parts])
    x, y = batch.inputs().to(device), batch.y.to(device)
    if plans:
        # The most noise of all keeps every part's promise.
        mechanism = ClipAndNoise(
            clip=plans[0].clip if clip is None else clip,
            noise_multiplier=max(plan.noise_multiplier for plan in plans),
            batch_size=sum(part.expected for part in parts),
        )
        PrivateGradient(model, loss).step(x, y, mechanism, noise, batch.groups)
        results = [p.grad for p in named.values()]
        return {n: g.cpu() for n, g in zip(named, results, strict=True) if g is not None}
    zero = {n: torch.zeros_like(p).cpu() for n, p in named.items()}
    if not len(batch):
        return zero
    grads = torch.autograd.grad(
        loss(model(x), y).mean(), list(named.values()), materialize_grads=True
    )
    if not all(bool(torch.isfinite(g).all()) for g in grads):
        return zero
    return {n: g.cpu() for n, g in zip(named, grads, strict=True)}


def gradients_of(
    site: Site, network: nn.Module, order: Order, parts: Mapping[str, Part]
) -> dict[str, Tensor]:
    """What a round sends, by name of the parameter.

    Args:
        site: for its settings, and where nothing is protected the seed of its batches.
        network: of the order; which of its parameters need gradients is changed in place.
        order: for its round, and for equation 7 the weights before their last step.
        parts: "train" and "search", whose next steps are charged already.

    Privacy: that of `batch_gradient`, for each batch that `reads` lists.
    """
    o, sends = options_of(site.config, Options), asked(site.config, order.round)
    noise = _noise(site, order.round, [part.plan for part in parts.values()])
    values = dict[str, Tensor]()
    if sends == "E":
        return batch_gradient(network, [*parts.values()], noise, clip=o.clip)
    if "W" in sends:
        _only(network, alphas=False)
        values |= batch_gradient(network, [parts["train"]], noise, clip=o.clip)
    if "A" in sends:
        _only(network, alphas=True)
        values |= batch_gradient(network, [parts["search"]], noise, clip=o.architecture_clip)
        if o.order == "second":
            for name, extra in _difference(site, network, order, parts, noise).items():
                values[name] -= extra
    return values


def _difference(
    site: Site, network: nn.Module, order: Order, parts: Mapping[str, Part], noise: NoiseSource
) -> dict[str, Tensor]:
    """The second term of equation 7, by a finite difference.

    It is xi / 2 epsilon times the change of the training gradient of A from W- to W+. Both lie on
    the (noised) validation gradient at W', through the W before.
    """
    o = options_of(site.config, Options)
    _only(network, alphas=False)
    direction = batch_gradient(network, [parts["search"]], noise, clip=o.clip)
    length = float(torch.cat([g.double().flatten() for g in direction.values()]).norm())
    step, before = o.difference / max(length, 1e-12), order.bundle.part("before")
    sides = list[SuperNetwork]()
    for sign in (1.0, -1.0):
        moved = {n: w + sign * step * direction[n] for n, w in before.items()}
        side = loaded(site, order.bundle)
        side.load_state_dict({**side.state_dict(), **moved})
        _only(side, alphas=True)
        assert isinstance(side, SuperNetwork)
        sides.append(side)
    scale = o.learning_rate / (2 * step)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        plus, minus = (cross_entropy(outputs[:, i], y) for i in (0, 1))
        return scale * (plus - minus)

    pair = Pair(sides[0], sides[1])
    values = batch_gradient(pair, [parts["train"]], noise, clip=o.architecture_clip, loss=loss)
    return {name.removeprefix("plus."): g for name, g in values.items()}


def _only(network: nn.Module, *, alphas: bool) -> None:
    for name, p in network.named_parameters():
        p.requires_grad_(is_alpha(name) == alphas)


def _noise(site: Site, round: int, plans: Sequence[Plan | None]) -> NoiseSource:
    """Of batches and mechanisms; without protection it repeats."""
    if any(plan is not None for plan in plans):
        return SystemNoise()
    return ReproducibleNoise(stream(site.config.seed, "client", site.id, "round", round))


@dataclass(frozen=True, kw_only=True)
class Prepaid:
    """What a site has planned for one part of its samples, and paid of it; a plan's round is a
    block of steps."""

    spending: Spending
    receipt: str = ""  # of the last charge
    left: int = 0  # steps that it still pays for

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return {"spending": self.spending.to_json(), "receipt": self.receipt, "left": self.left}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Prepaid":
        """Read back `to_json`."""
        return Prepaid(**{**record, "spending": Spending.from_json(record["spending"])})

    @property
    def plan(self) -> Plan | None:
        """None without protection."""
        return self.spending.plan


class Paid(NamedTuple):
    """A step that may be done."""

    account: Prepaid  # as it stands after the step
    receipt: str  # of the charge that covers it


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps on one part of a site's samples."""

    subset: str  # as the ledger names the part
    samples: int  # privacy units of the part
    number: int  # of all rounds, at least 1
    batch_size: int  # expected
    clip: float
    at_once: int = 10  # steps that a charge pays for, at most

    @property
    def blocks(self) -> int:
        """Charges for all of them."""
        return math.ceil(self.number / self.at_once)

    @property
    def block(self) -> int:
        """Steps that a charge pays for: as few as so many charges allow."""
        return math.ceil(self.number / self.blocks)


def plan_steps(site: Site, steps: Steps, noise_multiplier: float | None = None) -> Prepaid:
    """The least noise that the budget allows, or the given one.

    Args:
        site: for its budget, and what its ledger holds; nothing is charged.
        steps: all that the site plans on one part.
        noise_multiplier: the given one, above 0; None: the least.

    Raises:
        BudgetExhausted: if no noise is enough, or the given one is not.
    """
    planned = Planned(
        batch_size=steps.batch_size,
        clip=steps.clip,
        epochs=1,
        steps_a_round=steps.block,
        rounds=steps.blocks,
        subset=steps.subset,
        samples=steps.samples,
    )
    spending = begin(site, planned)
    if noise_multiplier is None:
        return Prepaid(spending=spending)
    if spending.plan is not None and spending.plan.noise_multiplier > noise_multiplier:
        raise BudgetExhausted(
            f"expected noise of at least {spending.plan.noise_multiplier:.3g} times the clip for "
            f"{steps.number} steps on {site.paths.name}, got {noise_multiplier:g}; raise "
            "federation.options.noise_multiplier or privacy.epsilon"
        )
    plan = Plan(
        samples=steps.samples,
        batch_size=steps.batch_size,
        clip=steps.clip,
        noise_multiplier=noise_multiplier,
        epochs=1,
        steps_a_round=steps.block,
        rounds=steps.blocks,
    )
    return Prepaid(spending=replace(spending, plan=plan))


@contextmanager
def paid_step(
    site: Site, account: Prepaid, mechanism: Mechanism, round: int
) -> Iterator[Paid | None]:
    """Within it the part may be read for one step.

    None where the budget pays for no further step: nothing may be read. Without a plan the step is
    charged as unprotected.

    Args:
        site: its ledger and budget.
        account: of the part, before the step.
        mechanism: how the ledger names the charge, and the part.
        round: from 1.
    """
    spending = account.spending
    if spending.plan is None:
        with charged(site, mechanism, None, round) as receipt:
            yield Paid(account, receipt.id)
    elif account.left:
        yield Paid(replace(account, left=account.left - 1), account.receipt)
    else:
        spending = current(site, spending)
        if spending.skips or spending.plan is None:
            yield None
            return
        plan = spending.plan
        with charged(site, mechanism, plan.training_event, round) as receipt:
            after = after_round(site, spending)
            left = Prepaid(spending=after, receipt=receipt.id, left=plan.steps - 1)
            yield Paid(left, receipt.id)
