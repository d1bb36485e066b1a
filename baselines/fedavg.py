"""FedAvg: one network for all sites, averaged after each round of local DP-SGD. The yardstick.

A round, in its source's order:

1. the server sends the network
2. each participant trains it on its own samples for some epochs
3. the server averages their weights, each by its number of training samples (a
   noised one, or declared public)

Source: McMahan et al. 2017, algorithm 1. Deviation: under DP, batches are Poisson and the network
has no BatchNorm.

Privacy: step 2 is DP-SGD, charged before it reads a sample; what is sent are its weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from baselines.common.averaging import Mean, number_in
from baselines.common.options import options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.spending import Planned, Spending, after_round, begin
from baselines.common.training import LocalTraining, train_locally
from baselines.networks.cnns import (
    convolutional,
    initialise,
    macs_of,
    parameters_of,
    weights_of,
)
from dprbft.config.flat import Section
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import accuracy_of, logits_of
from panas.training.sgd import OptimizerConfig

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"privacy": {"epsilon": float("inf"), "allow_unprotected": True}},
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
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (16, 32)  # channels of the convolutions
    hidden: Annotated[int, Field(ge=1)] = 64  # of the last layer but one
    weighting: Literal["samples", "equal"] = "samples"


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds; the network comes with the first order."""
    o = options_of(site.config, Options)
    planned = Planned(batch_size=o.batch_size, clip=o.clip, epochs=o.epochs)
    weights = weights_of(_network(site.spec, o, site.config.seed))
    spending = begin(site, planned)  # of a network that can be had
    return Bundle(weights, {"spending": spending.to_json()})


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a network like the site's."""
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, memory.arrays)


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Step 2: train what was sent."""
    o = options_of(site.config, Options)
    model = _loaded(site, order.bundle.arrays)
    shared = accuracy_of(logits_of(model, site.data.test), site.data.test)
    optimizer = OptimizerConfig(
        learning_rate=o.learning_rate,
        batch_size=o.batch_size,
        epochs=o.epochs,
        momentum=o.momentum,
    )
    how = LocalTraining(optimizer=optimizer, round=order.round)
    spending = Spending.from_json(memory.record["spending"])
    spending, receipt = train_locally(site, model, site.data.train, spending, how)
    if receipt is None:
        kept = Bundle(order.bundle.arrays, {"spending": spending.to_json()})
        return Turn(memory=kept, shared=shared)
    spending, weights = after_round(site, spending), weights_of(model)
    return Turn(
        memory=Bundle(weights, {"spending": spending.to_json()}),
        update=Bundle(weights, {"samples": site.units}),
        receipts=(receipt,),
        local=accuracy_of(logits_of(model, site.data.test), site.data.test),
        shared=shared,
    )


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last average."""
    return Bundle(order.bundle.arrays, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The network."""
    model = _loaded(site, memory.arrays)
    return lambda samples: logits_of(model, samples)


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and multiply-accumulates."""
    model = _loaded(site, memory.arrays)
    return Size(parameters=parameters_of(model), macs=macs_of(model, site.spec.shape))


def server_start(side: Side) -> Bundle:
    """A network with weights from the run's seed."""
    spec, o = spec_of(side.config, side.facts), options_of(side.config, Options)
    return Bundle(weights_of(_network(spec, o, side.config.seed)))


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Step 1: the same for all."""
    return dict.fromkeys(sites, Bundle(memory.arrays))


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 3: the weighted mean; the old weights if nobody sent any."""
    equal = options_of(side.config, Options).weighting == "equal"
    mean = Mean(memory.arrays)
    for update in updates:
        mean.add(update.bundle.arrays, 1.0 if equal else number_in(update.bundle.record, "samples"))
    return Bundle(mean.result() or memory.arrays)


def _network(spec: NetworkSpec, o: Options, seed: int) -> nn.Module:
    model = convolutional(spec.shape, spec.classes, o.widths, o.hidden, spec.norm)
    return initialise(model, torch_generator(stream(seed, "fedavg")))


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> nn.Module:
    model = _network(site.spec, options_of(site.config, Options), site.config.seed)
    model.load_state_dict(dict(arrays))
    return model.to(site.device)
