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
(`updates.class_means`), each charged before it reads a sample; both share the budget. In column
"paper" class means leave as they are, and the ledger says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from baselines.common.class_means import bound_of, means_in, release_means
from baselines.common.options import options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.spending import Planned, Spending, after_round, begin
from baselines.common.training import LocalTraining, train_locally
from baselines.networks.cnns import (
    WIDER,
    Five,
    initialise,
    macs_of,
    one_of_five,
    parameters_of,
    weights_of,
)
from dprbft.config.flat import Section
from dprbft.config.schema import rounds_of
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update, named
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import accuracy_of, logits_of
from panas.training.sgd import OptimizerConfig

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": {"epsilon": float("inf"), "allow_unprotected": True},
        "federation": {"options": {"unit": False, "learning_rate": 0.02}},
    },
    "sound": {},
}
SMOKE: Mapping[str, Any] = {
    "federation": {"rounds": 2, "options": {"epochs": 12}},
}
CPU: Mapping[str, Any] = {
    "federation": {
        "rounds": 10,
        "options": {"kernels": 16, "width": 128, "hidden": [500, 500, 250, 200, 125], "epochs": 3},
    },
}


class Options(Section):
    """Settings of local training, of the server's, and the networks' sizes."""

    learning_rate: Annotated[float, Field(gt=0)] = 0.1  # publication .01
    batch_size: Annotated[int, Field(ge=1)] = 64  # publication 512; under DP an expected one
    epochs: Annotated[int, Field(ge=1)] = 4  # passes a round; publication 30
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.001
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP
    most: Annotated[float, Field(gt=0)] = 50.0  # norm of a batch's gradient without, and a server's
    release_share: Annotated[float, Field(gt=0, lt=1)] = 0.3  # of epsilon, sizes class means' noise
    server_learning_rate: Annotated[float, Field(gt=0)] = 0.01
    server_epochs: Annotated[int, Field(ge=1)] = 1  # passes over the class means of a round
    kernels: Annotated[int, Field(ge=1)] = 8  # of the first convolution; publication 16
    # of the first hidden layer of each network; publication 2000, 2000, 1000, 800, 500
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((200, 200, 100, 80, 50), min_length=1)
    width: Annotated[int, Field(ge=1)] = 64  # of representations; publication 500
    unit: bool = True  # representations of norm sqrt(width)
    keep: Literal["local", "global"] = "local"  # header that a site predicts with in the end


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds, and the site's network before the first."""
    o = options_of(site.config, Options)
    planned = Planned(
        batch_size=o.batch_size,
        clip=o.clip,
        epochs=o.epochs,
        releases=len(rounds_of(site.config, site.id)),
        release_share=o.release_share,
    )
    rng = torch_generator(stream(site.config.seed, "fedgh", "site", site.id))
    weights = weights_of(initialise(_network(site), rng))
    return Bundle(weights, _kept(begin(site, planned)))


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a header like the site's."""
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, memory.part("header"))


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 2 and 3."""
    o = options_of(site.config, Options)
    model = _loaded(site, {**memory.arrays, **named("header", order.bundle.arrays)})
    shared = _accuracy(site, model)
    optimizer = OptimizerConfig(
        learning_rate=o.learning_rate,
        batch_size=o.batch_size,
        epochs=o.epochs,
        momentum=o.momentum,
        weight_decay=o.weight_decay,
    )
    how = LocalTraining(optimizer=optimizer, round=order.round, most=o.most)
    spending = Spending.from_json(memory.record["spending"])
    spending, trained = train_locally(site, model, site.data.train, spending, how)
    if trained is None:
        return Turn(memory=Bundle(memory.arrays, _kept(spending)), shared=shared)
    bottom = model.get_submodule("bottom")
    means, released = release_means(
        site, lambda s: logits_of(bottom, s), spending, order.round, bound_of(o.width)
    )
    spending = after_round(site, spending, releases=1)
    return Turn(
        memory=Bundle(weights_of(model), _kept(spending)),
        update=Bundle(means.to_arrays()),
        receipts=(trained, released),
        local=_accuracy(site, model),
        shared=shared,
    )


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the network of step 2, or the last header on its bottom."""
    if options_of(site.config, Options).keep == "local":
        return memory
    return Bundle({**memory.arrays, **named("header", order.bundle.arrays)}, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The site's network."""
    model = _loaded(site, memory.arrays)
    return lambda samples: logits_of(model, samples)


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters, multiply-accumulates, and which of the five it is."""
    model = _loaded(site, memory.arrays)
    about = {"network": f"CNN {site.id % len(WIDER) + 1}"}
    macs = macs_of(model, site.spec.shape)
    return Size(parameters=parameters_of(model), macs=macs, about=about)


def server_start(side: Side) -> Bundle:
    """A header with weights from the run's seed."""
    rng = torch_generator(stream(side.config.seed, "fedgh", "header"))
    width = options_of(side.config, Options).width
    return Bundle(weights_of(initialise(nn.Linear(width, side.facts.classes), rng)))


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Step 1: the same for all."""
    return dict.fromkeys(sites, Bundle(memory.arrays))


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 4: cross-entropy of one class mean after the other."""
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


def _kept(spending: Spending) -> dict[str, Any]:
    return {"spending": spending.to_json()}


def _accuracy(site: Site, model: nn.Module) -> float:
    return accuracy_of(logits_of(model, site.data.test), site.data.test)


def _network(site: Site) -> nn.Sequential:
    o = options_of(site.config, Options)
    sizes = Five(kernels=o.kernels, hidden=o.hidden, width=o.width, unit=o.unit)
    model = nn.Sequential()
    model.add_module("bottom", one_of_five(site.spec.shape, site.id % len(WIDER), sizes))
    model.add_module("header", nn.Linear(o.width, site.spec.classes))
    return model


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> nn.Module:
    model = _network(site)
    model.load_state_dict(dict(arrays))
    return model.to(site.device)
