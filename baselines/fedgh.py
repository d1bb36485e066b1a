"""FedGH: sites with networks of their own share a header, which a server trains on class means.

A round, in its source's order:

1. the server sends the header
2. each participant puts it on its own bottom, and trains both on its own samples
3. it sends the mean representation of each of its classes, with the class
4. the server trains the header: one step of SGD a class mean, site by site

Site i has network i mod 5 of five (`networks.cnns.one_of_five`). Source: Yi et al. 2023, algorithm
1, and its code for sizes and steps. What a site predicts with, and what the publication measures,
is its network after step 2; `keep = "global"` puts the last header on it instead.

Deviations: class means are of all samples, not means over batches of batch means; sites of one
architecture begin with weights of their own (in the code, the second goes on with the first's);
under a budget representations have norm sqrt(d), so that clipping does not change them.

Privacy: step 2 is DP-SGD, step 3 one release of noised class sums and counts
(`common.class_means`), each charged before it reads a sample; both share the budget. In column
"paper" class means leave as they are, and the ledger says so.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from baselines.common import five
from baselines.common.class_means import means_in
from baselines.common.models import (
    accuracy_at,
    loaded,
    optimizer_of,
    orders_for_all,
    predictor_of,
)
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.spending import spending_for
from baselines.common.training import LocalTraining
from baselines.networks.cnns import initialise
from dprbft.methods.price import PlannedSpending
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update, named
from panas.architecture.network import weights_of
from panas.runtime.seeds import stream, torch_generator

SMOKE, CPU = five.SMOKE, five.CPU
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": UNPROTECTED,
        "federation": {"options": {"unit": False, "learning_rate": 0.02}},
    },
    "sound": {},
}


class Options(five.Options):
    """Settings of local training, of the server's, and the networks' sizes."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.001
    most: Annotated[float, Field(gt=0)] = 50.0  # norm of a batch's gradient without, and a server's
    server_learning_rate: Annotated[float, Field(gt=0)] = 0.01
    server_epochs: Annotated[int, Field(ge=1)] = 1  # passes over the class means of a round
    keep: Literal["local", "global"] = "local"  # header that a site predicts with in the end


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds, and the site's network before the first."""
    return five.first_memory(site, _network(site), options_of(site.config, Options), "fedgh")


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon of all rounds."""
    return spending_for(site, five.planned(site, options_of(site.config, Options)))


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a header like the site's.

    Args:
        site: unused.
        memory: its header has the expected names, shapes and types.
        order: untrusted.
    """
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, memory.part("header"))


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 2 and 3.

    Args:
        site: its training samples, ledger and settings.
        memory: the site's network, and what it still plans to spend.
        order: the header to train with.
    """
    o = options_of(site.config, Options)
    with_header = {**memory.arrays, **named("header", order.bundle.arrays)}
    model = loaded(site, _network(site), with_header)
    how = LocalTraining(optimizer=optimizer_of(o), round=order.round, most=o.most)
    return five.means_round(site, memory, model, how, o.width, accuracy_at(site, model))


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the network of step 2, or the last header on its bottom.

    Args:
        site: for the option `keep`.
        memory: the network of step 2.
        order: the last header.
    """
    if options_of(site.config, Options).keep == "local":
        return memory
    return Bundle({**memory.arrays, **named("header", order.bundle.arrays)}, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The site's network."""
    return predictor_of(loaded(site, _network(site), memory.arrays))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters, multiply-accumulates, and which of the five it is."""
    return five.size_of_network(site, loaded(site, _network(site), memory.arrays))


def server_start(side: Side) -> Bundle:
    """A header with weights from the run's seed."""
    rng = torch_generator(stream(side.config.seed, "fedgh", "header"))
    width = options_of(side.config, Options).width
    return Bundle(weights_of(initialise(nn.Linear(width, side.facts.classes), rng)))


orders = orders_for_all


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 4: cross-entropy of one class mean after the other.

    Args:
        side: for the options, and the number of classes.
        memory: the header before the round.
        updates: class means (classes, d) of each site, with their classes.
        rng: unused.
    """
    o, classes = options_of(side.config, Options), side.facts.classes
    header = nn.Linear(o.width, classes)
    header.load_state_dict(dict(memory.arrays))
    sent = [means_in(update.bundle, classes, o.width) for update in updates]
    optimizer = torch.optim.SGD(header.parameters(), lr=o.server_learning_rate)
    for _ in range(o.server_epochs):
        for site in sent:
            for mean, label in zip(site.means.split(1), site.classes.split(1), strict=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(header(mean), label).backward()
                nn.utils.clip_grad_norm_(header.parameters(), o.most)
                optimizer.step()
    return Bundle(weights_of(header))


def _network(site: Site) -> nn.Sequential:
    o = options_of(site.config, Options)
    model = nn.Sequential()
    model.add_module("bottom", five.bottom_of(site, o))
    model.add_module("header", nn.Linear(o.width, site.spec.classes))
    return model
