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

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
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
from baselines.common.spending import Planned, begin, spending_for
from baselines.common.training import LocalTraining, weights_round
from baselines.networks.cnns import convolutional, initialise
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from dprbft.methods import update_method
from dprbft.methods.price import PlannedSpending
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update
from panas.architecture.network import NetworkSpec, weights_of
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import CROSS_ENTROPY, Objective, Penalty

MakePenalty = Callable[[nn.Module], Penalty]
"""A penalty, from the network as it was sent."""

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
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (16, 32)  # channels of the convolutions
    hidden: Annotated[int, Field(ge=1)] = 64  # of the last layer but one
    weighting: Literal["samples", "equal"] = "samples"


def check(side: Side) -> None:
    """Serves any data."""
    _options(side.config)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds; the network comes with the first order."""
    o = _options(site.config)
    weights = weights_of(_network(site.spec, o, site.config.seed))
    return kept(weights, begin(site, _planned(o)))  # of a network that can be had


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon of all rounds."""
    return spending_for(site, _planned(_options(site.config)))


def _planned(o: Options) -> Planned:
    return Planned(batch_size=o.batch_size, clip=o.clip, epochs=o.epochs)


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a network like the site's.

    Args:
        site: unused.
        memory: its network has the expected names, shapes and types.
        order: untrusted.
    """
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, memory.arrays)


def site_round(
    site: Site, memory: Bundle, order: Order, penalty: MakePenalty | None = None
) -> Turn:
    """Step 2: train what was sent.

    Args:
        site: its training samples, ledger and settings.
        memory: what the site still plans to spend; its weights are not read.
        order: the network to train.
        penalty: makes a further term of the loss of the network as sent (`baselines.fedprox`).
    """
    model = _loaded(site, order.bundle.arrays)
    objective = Objective(penalty=penalty(model)) if penalty else CROSS_ENTROPY
    optimizer = optimizer_of(_options(site.config))
    how = LocalTraining(optimizer=optimizer, round=order.round, objective=objective)
    sent = Bundle(order.bundle.arrays, memory.record)
    return weights_round(site, model, sent, how, {"samples": site.units})


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last average.

    Args:
        site: unused.
        memory: its plan is kept.
        order: the last average.
    """
    return Bundle(order.bundle.arrays, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The network."""
    return predictor_of(_loaded(site, memory.arrays))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and multiply-accumulates."""
    return size_of(site, _loaded(site, memory.arrays))


def server_start(side: Side) -> Bundle:
    """A network with weights from the run's seed."""
    spec, o = spec_of(side.config, side.facts), _options(side.config)
    return Bundle(weights_of(_network(spec, o, side.config.seed)))


orders = orders_for_all


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 3: the weighted mean; the old weights if nobody sent any.

    Args:
        side: for the option `weighting`.
        memory: the network before the round.
        updates: trained networks, each with the site's number of training samples.
        rng: unused.
    """
    equal = _options(side.config).weighting == "equal"
    mean = Mean(memory.arrays)
    for update in updates:
        mean.add(update.bundle.arrays, 1.0 if equal else number_in(update.bundle.record, "samples"))
    return Bundle(mean.result() or memory.arrays)


def _options(config: RunConfig) -> Options:
    """As the running method reads them: `baselines.fedprox` has one more."""
    kind = update_method(config.federation.method).Options
    assert issubclass(kind, Options)
    return options_of(config, kind)


def _network(spec: NetworkSpec, o: Options, seed: int) -> nn.Module:
    model = convolutional(spec.shape, spec.classes, o.widths, o.hidden, spec.norm)
    return initialise(model, torch_generator(stream(seed, "fedavg")))


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> nn.Module:
    model = _network(site.spec, _options(site.config), site.config.seed)
    return loaded(site, model, arrays)
