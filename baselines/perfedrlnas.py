"""PerFedRLNAS: a policy for each site learns which sub-network of a shared super-network suits it.

A round, in its source's order:

1. the server draws a sub-network for each participant from the site's policy, and sends it with the
   weights that it has in the super-network
2. the site trains it on its own samples, and sends it back with its accuracy on its validation
   samples, the reward
3. the server averages each entry of the super-network over the sites that held it, by their
   numbers of training samples (public facts)
4. the server moves each policy along the policy gradient (`baselines.common.policy`)

After the last round each site gets the likeliest sub-network of its policy, trains it once more
(`adapt`), as all that was ever measured had been, and keeps it. Its accuracy is reported as it is:
the publication's code reports the mean, over sites, of the best test accuracy of any round.

Source: Yao et al. 2024 ("PerFedRLNAS: One-for-All Personalized Federated Neural Architecture
Search") and its code. Deviations: the super-network is smaller, and its maps are those of small
images (`baselines.networks.mobilenet`); the reward is accuracy on validation, not on test
samples, without terms for time; what few sites hold moves as far as what all hold; under DP,
batches are Poisson and norms are of groups; there is no dropout, label smoothing or drop path.

Privacy: step 2 makes two releases, charged before what they read is touched. The weights are
DP-SGD's. The reward is computed of two noised counts, of right and of wrong answers to validation
samples, whose number nobody is told. One sample more or less moves one of them by 1, and a group,
whose samples share a weight, moves both by a length of 1. Where a site has so few samples that one
is moved into validation, one may take another's place: sqrt(2). It is charged on "train", beside
DP-SGD, as one more sample can then change both parts; else each one's own total is less than the
ledger says.

Weights that networks of different size share: what a smaller one holds of a larger one's.

Of an array with n entries along an axis the smaller network holds k <= n: the first k along the
axes of channels (0 and 1), the middle k along those of a kernel (2 and beyond).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from baselines.common.averaging import check_arrays, number_in, weight_in
from baselines.common.models import (
    accuracy_at,
    loaded,
    optimizer_of,
    predictor_of,
    size_of,
    spending_in,
)
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.policy import Baseline, Choice, Policies, drawn, learnt, likeliest
from baselines.common.spending import (
    Mechanism,
    Planned,
    Spending,
    after_round,
    begin,
    charged,
)
from baselines.common.training import LocalTraining, train_locally
from baselines.networks.cnns import initialise
from baselines.networks.mobilenet import Space, mobilenet, scaled
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig, rounds_of
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update, named
from panas.architecture.network import NetworkSpec, weights_of
from panas.data.samples import Samples
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import unit_counts
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import logits_of


def window(whole: Sequence[int], part: Sequence[int]) -> tuple[slice, ...]:
    """Where in an array of one shape an array of another lies."""
    starts = [
        0 if axis < 2 else (n - k) // 2 for axis, (n, k) in enumerate(zip(whole, part, strict=True))
    ]
    return tuple(slice(start, start + k) for start, k in zip(starts, part, strict=True))


def cut(whole: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of the weights that a network of the names and shapes of `like` holds of `whole`."""
    return {
        name: whole[name][window(whole[name].shape, part.shape)].contiguous().clone()
        for name, part in like.items()
    }


class OverlapMean:
    """The weighted mean of each entry of `whole` over the networks that hold it, in 64 bits."""

    def __init__(self, whole: Mapping[str, Tensor]) -> None:
        self._whole = whole
        self._sums = {k: torch.zeros(t.shape, dtype=torch.float64) for k, t in whole.items()}
        self._weights = {k: torch.zeros_like(t) for k, t in self._sums.items()}

    def add(self, arrays: Mapping[str, Tensor], like: Mapping[str, Tensor], weight: float) -> None:
        """Add a network; BadInput if it is not of the shapes of `like`.

        Args:
            arrays: its weights by name.
            like: arrays of the names and shapes that it should have.
            weight: above 0.
        """
        check_arrays(arrays, like)
        for name, array in arrays.items():
            place = window(self._whole[name].shape, array.shape)
            self._sums[name][place] += weight * array.double()
            self._weights[name][place] += weight

    def result(self) -> dict[str, Tensor]:
        """The means; entries that no network held are as they were."""
        values = dict[str, Tensor]()
        for name, old in self._whole.items():
            weight = self._weights[name]
            mean = self._sums[name] / weight.clamp(min=torch.finfo(torch.float64).tiny)
            new = torch.where(weight > 0, mean, old.double())
            values[name] = (new if old.is_floating_point() else new.round()).to(old.dtype)
        return values


ADAMW = {"optimiser": "adam", "learning_rate": 5e-4, "weight_decay": 0.05}
PUBLISHED = {**ADAMW, "batch_size": 32, "epochs": 5, "baseline": "best"}
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": UNPROTECTED,
        "federation": {"options": PUBLISHED},
    },
    "sound": {},
}
SMOKE: Mapping[str, Any] = {"federation": {"clients": 2, "rounds": 5}}
CPU: Mapping[str, Any] = {"federation": {"clients": 10, "rounds": 10}}

NAMES = ("channels", "depth", "kernel", "expansion")  # of a stage's choices
SENSITIVITY = math.sqrt(2.0)
"""Of the counts of right and wrong answers, where one sample may take another's place."""


class Options(Section):
    """Settings of local training, of the policies, and the super-network's size."""

    stages: Annotated[int, Field(ge=1, le=6)] = 3  # of the published six, the first ones
    scale: Annotated[float, Field(gt=0, le=1)] = 0.5  # channels, as a share of the published
    most_blocks: Annotated[int, Field(ge=1, le=4)] = 2  # of a stage; published: 2 and 4
    last: Annotated[int, Field(ge=2)] = 64  # channels before the logits; published: 1280
    optimiser: Literal["sgd", "adam"] = "sgd"  # published: adam, with decoupled weight decay
    learning_rate: Annotated[float, Field(gt=0)] = 0.5
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Annotated[int, Field(ge=1)] = 128  # under DP an expected one
    epochs: Annotated[int, Field(ge=1)] = 3  # passes a round
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP
    architecture_rate: Annotated[float, Field(gt=0)] = 0.5  # step of a policy's logits
    baseline: Baseline = "mean"  # of a reward; published: best
    reward_share: Annotated[float, Field(gt=0, lt=1)] = 0.1  # of epsilon, for all rewards
    adapt: bool = True  # whether the last sub-network is trained once more


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds and rewards, and the sub-network that is likeliest at first."""
    o, rounds = options_of(site.config, Options), len(rounds_of(site.config, site.id))
    often: dict[str, Any] = {"rounds": rounds + o.adapt, "epochs": o.epochs}
    rewards: dict[str, Any] = {"releases": rounds, "release_share": o.reward_share}
    planned = Planned(batch_size=o.batch_size, clip=o.clip, **often, **rewards)
    spending, space = begin(site, planned), _space(site.config)
    choice = (0,) * len(space.menus)
    whole = _first_weights(site.config, site.spec)
    first = cut(whole, _like(site.config, site.spec, choice))
    return _kept(first, choice, spending)


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a choice from the menus, and the sub-network's weights.

    Args:
        site: for its settings and facts.
        memory: unused.
        order: untrusted.
    """
    check_record(order.bundle.record, choice=list)
    choice = _space(site.config).checked(order.bundle.record["choice"])
    check_weights(order.bundle.arrays, _like(site.config, site.spec, choice))


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Step 2: train the sub-network that was sent, and measure it.

    Args:
        site: its training and validation samples, ledger and settings.
        memory: what the site still plans to spend; its weights are not read.
        order: a sub-network and its weights.
    """
    choice, arrays = _choice_in(order.bundle), order.bundle.arrays
    model = _loaded(site, choice, arrays)
    shared = accuracy_at(site, model)
    spending, receipt = _trained(site, memory, model, order.round)
    if receipt is None:
        return Turn(memory=_kept(arrays, choice, spending), shared=shared)
    reward, paid = _reward(site, model, spending, order.round)
    spending, weights = after_round(site, spending, releases=len(paid)), weights_of(model)
    return Turn(
        memory=_kept(weights, choice, spending),
        update=Bundle(weights, {"samples": site.units, **reward}),
        receipts=(receipt, *paid),
        local=accuracy_at(site, model),
        shared=shared,
    )


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Take the likeliest sub-network, and train it once more if the budget pays for it.

    Args:
        site: its training samples, ledger and settings.
        memory: what the site still plans to spend; its weights are not read.
        order: the likeliest sub-network and its weights.
    """
    choice, weights = _choice_in(order.bundle), dict(order.bundle.arrays)
    spending = spending_in(memory)
    if options_of(site.config, Options).adapt:
        model = _loaded(site, choice, weights)
        spending, _ = _trained(site, memory, model, order.round)
        weights = weights_of(model)
    return _kept(weights, choice, spending)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The site's sub-network."""
    return predictor_of(_loaded(site, _choice_in(memory), memory.arrays))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and multiply-accumulates, and what was chosen for it."""
    choice, space = _choice_in(memory), _space(site.config)
    model = _loaded(site, choice, memory.arrays)
    stages = [dict(zip(NAMES, stage, strict=True)) for stage in space.picked(choice)]
    return size_of(site, model, {"stages": stages})


def server_start(side: Side) -> Bundle:
    """The super-network with weights from the run's seed, and policies without a preference."""
    config, spec = side.config, spec_of(side.config, side.facts)
    policies = Policies.fresh(config.federation.clients, _space(config).menus)
    weights = _first_weights(config, spec)
    return Bundle(named("network", weights) | named("policies", policies.arrays()))


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Step 1: a drawn sub-network for each; after the last round, the likeliest.

    Args:
        side: for the settings and the run's seed.
        memory: the super-network and the policies.
        sites: numbers of those that take part.
        round: from 1; seeds the draw.
    """
    whole, spec = memory.part("network"), spec_of(side.config, side.facts)
    bundles = dict[int, Bundle]()
    for site in sites:
        choice = choice_of(side.config, memory, site, round)
        weights = cut(whole, _like(side.config, spec, choice))
        bundles[site] = Bundle(weights, {"choice": list(choice)})
    return bundles


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Steps 3 and 4: the masked means, and what the policies learn of the rewards.

    Args:
        side: for the settings and the run's seed.
        memory: the super-network and the policies before the round.
        updates: trained sub-networks, each with its number of samples and perhaps a reward.
        rng: unused.
    """
    config, spec = side.config, spec_of(side.config, side.facts)
    o, mean = options_of(config, Options), OverlapMean(memory.part("network"))
    rewards = dict[int, tuple[Choice, float]]()
    for update in updates:
        choice, record = choice_of(config, memory, update.site, update.round), update.bundle.record
        mean.add(update.bundle.arrays, _like(config, spec, choice), weight_in(record, "samples"))
        if "reward" in record:
            rewards[update.site] = choice, number_in(record, "reward")
    known, menus = Policies.of(memory.part("policies")), _space(config).menus
    how: dict[str, Any] = {"rate": o.architecture_rate, "baseline": o.baseline}
    policies = learnt(known, menus, rewards, **how)
    return Bundle(named("network", mean.result()) | named("policies", policies.arrays()))


def choice_of(config: RunConfig, memory: Bundle, site: int, round: int) -> Choice:
    """The sub-network of a site in a round, as its policy stands before it.

    Args:
        config: for the space and the run's seed.
        memory: the server's, with the policies before the round.
        site: number of the site.
        round: from 1; past the last one the likeliest is chosen.
    """
    logits, menus = Policies.of(memory.part("policies")).logits[site], _space(config).menus
    if round > config.federation.rounds:
        return likeliest(logits, menus)
    return drawn(logits, menus, stream(config.seed, "perfedrlnas", "choice", round, site))


def answers(logits: Float[Tensor, "n classes"], samples: Samples) -> Float[Tensor, "2"]:
    """How many samples are classified right, and how many wrong; a privacy unit of several adds a
    length of 1 at most."""
    return unit_counts((logits.argmax(1) != samples.y).long(), samples.groups, 2)


def _reward(
    site: Site, model: nn.Module, spending: Spending, round: int
) -> tuple[dict[str, float], tuple[str, ...]]:
    """The accuracy on validation samples, noised, and its receipt; none where no budget is left."""
    plan, samples = spending.plan, site.data.validation
    event = plan.release_event if plan else None
    mechanism = Mechanism("right-answers", SENSITIVITY, phase="release")
    try:
        with charged(site, mechanism, event, round) as receipt:
            counts = answers(logits_of(model, samples), samples)
            if event is not None:
                scale = SENSITIVITY * event.noise_multiplier
                counts = counts + scale * SystemNoise().normal(2)
    except BudgetExhausted:  # a process that died has charged it, and left no room for another
        return {}, ()
    right, wrong = counts.tolist()
    return {"reward": min(1.0, max(0.0, right / max(1.0, right + wrong)))}, (receipt.id,)


def _trained(
    site: Site, memory: Bundle, model: nn.Module, round: int
) -> tuple[Spending, str | None]:
    how = LocalTraining(optimizer=optimizer_of(options_of(site.config, Options)), round=round)
    return train_locally(site, model, site.data.train, spending_in(memory), how)


def _kept(weights: Mapping[str, Tensor], choice: Choice, spending: Spending) -> Bundle:
    return Bundle(weights, {"choice": list(choice), "spending": spending.to_json()})


def _choice_in(bundle: Bundle) -> Choice:
    return tuple(bundle.record["choice"])


def _space(config: RunConfig) -> Space:
    o = options_of(config, Options)
    return scaled(o.scale, o.stages, o.most_blocks, o.last)


def _like(config: RunConfig, spec: NetworkSpec, choice: Choice) -> dict[str, Tensor]:
    """Names, shapes and types of a sub-network's weights."""
    with torch.device("meta"):
        return mobilenet(_space(config), choice, spec.shape, spec.classes, spec.norm).state_dict()


def _first_weights(config: RunConfig, spec: NetworkSpec) -> dict[str, Tensor]:
    space = _space(config)
    whole = mobilenet(space, space.largest, spec.shape, spec.classes, spec.norm)
    return weights_of(initialise(whole, torch_generator(stream(config.seed, "perfedrlnas"))))


def _loaded(site: Site, choice: Choice, arrays: Mapping[str, Tensor]) -> nn.Module:
    spec = site.spec
    model = mobilenet(_space(site.config), choice, spec.shape, spec.classes, spec.norm)
    return loaded(site, model, arrays)
