"""FedProx: FedAvg whose sites are pulled back to the weights that they were sent.

| symbol | name |
|---|---|
| w^t | weights of the order |
| mu | `proximal`, weight of the proximal term mu / 2 ||w - w^t||^2 |

A round, in its source's order:

1. the server sends w^t
2. each participant minimises its own loss plus the proximal term for some epochs
3. the server averages their weights, each by its number of training samples (a noised one, or
   declared public)

Source: Li et al. 2020, algorithm 2 and equation 2. Deviations: there, participants are drawn by
their numbers of samples and averaged alike; here they are drawn alike and averaged by samples, so
that mu = 0 is `baselines.fedavg`. All participants make as many epochs. Under DP, batches are
Poisson and the network has no BatchNorm.

Privacy: step 2 is DP-SGD, charged before it reads a sample. The gradient of the proximal term,
mu (w - w^t), reads no sample: it is added after noise, and costs nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from baselines.common.averaging import Mean, number_in
from baselines.common.models import (
    kept,
    loaded,
    optimizer_of,
    orders_for_all,
    predictor_of,
    size_of,
)
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.spending import Planned, begin
from baselines.common.training import LocalTraining, weights_round
from baselines.networks.cnns import (
    convolutional,
    initialise,
    weights_of,
)
from dprbft.config.flat import Section
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import Objective, Penalty

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"privacy": UNPROTECTED},
    "sound": {},
}

SMOKE: Mapping[str, Any] = {
    "federation": {"rounds": 4, "options": {"learning_rate": 0.3, "epochs": 3}},
}
"""Settings that take seconds on small images."""

CPU: Mapping[str, Any] = {
    "federation": {"rounds": 10, "options": {"learning_rate": 0.3, "epochs": 2}},
}
"""Settings that take minutes with ten sites on one core."""


class Options(Section):
    """Settings of local training, and the network's size."""

    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    batch_size: Annotated[int, Field(ge=1)] = 64  # under DP an expected one
    epochs: Annotated[int, Field(ge=1)] = 1  # passes a round
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP
    proximal: Annotated[float, Field(ge=0)] = 0.01  # mu; the paper tries 0.001 to 1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (16, 32)  # channels of the convolutions
    hidden: Annotated[int, Field(ge=1)] = 64  # of the last layer but one


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds; the network comes with the first order."""
    o = options_of(site.config, Options)
    planned = Planned(batch_size=o.batch_size, clip=o.clip, epochs=o.epochs)
    weights = weights_of(_network(site.spec, o, site.config.seed))
    return kept(weights, begin(site, planned))  # of a network that can be had


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a network like the site's."""
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, memory.arrays)


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Step 2: train what was sent, and stay near it."""
    o, model = options_of(site.config, Options), _loaded(site, order.bundle.arrays)
    objective = Objective(penalty=distance(model, o.proximal))
    how = LocalTraining(optimizer=optimizer_of(o), round=order.round, objective=objective)
    sized = {"samples": site.units}
    return weights_round(site, model, Bundle(order.bundle.arrays, memory.record), how, sized)


def distance(model: nn.Module, mu: float) -> Penalty:
    """mu / 2 ||w - w^t||^2, equation 2's proximal term, where w^t are the model's weights now."""
    sent = [p.detach().clone() for p in model.parameters()]

    def penalty(parameters: Sequence[nn.Parameter]) -> Tensor:
        squares = [(p - w).square().sum() for p, w in zip(parameters, sent, strict=True)]
        return mu / 2 * torch.stack(squares).sum()

    return penalty


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last average."""
    return Bundle(order.bundle.arrays, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The network."""
    return predictor_of(_loaded(site, memory.arrays))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and multiply-accumulates."""
    return size_of(site, _loaded(site, memory.arrays))


def server_start(side: Side) -> Bundle:
    """A network with weights from the run's seed."""
    spec, o = spec_of(side.config, side.facts), options_of(side.config, Options)
    return Bundle(weights_of(_network(spec, o, side.config.seed)))


orders = orders_for_all


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 3: the weighted mean; the old weights if nobody sent any."""
    mean = Mean(memory.arrays)
    for update in updates:
        mean.add(update.bundle.arrays, number_in(update.bundle.record, "samples"))
    return Bundle(mean.result() or memory.arrays)


def _network(spec: NetworkSpec, o: Options, seed: int) -> nn.Module:
    model = convolutional(spec.shape, spec.classes, o.widths, o.hidden, spec.norm)
    return initialise(model, torch_generator(stream(seed, "fedprox")))


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> nn.Module:
    model = _network(site.spec, options_of(site.config, Options), site.config.seed)
    return loaded(site, model, arrays)
