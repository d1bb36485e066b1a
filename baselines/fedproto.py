"""FedProto: sites with networks of their own draw their representations to common class means.

A round, in its source's order:

1. the server sends the global prototypes, one a class that any site has
2. each participant trains its network: cross-entropy, and lambda times the mean squared distance
   of each representation to the global prototype of its class
3. it sends its own prototypes, the mean representation of each of its classes, with their counts
4. the server averages the prototypes of each class over sites, weighted by counts

Source: Tan et al. 2022, algorithm 1 and equations 3 to 7. Networks are FedGH's five, as in the
comparison of DPFNAS; site i has number i mod 5. Equation 7's distance of class means is taken a
sample at a time, as in the authors' code: DP-SGD clips by sample.

Deviations: equation 6 divides the weighted mean once more by the number of sites, which would
shrink it; that is left out (the authors' code weighs all sites alike: `weighting = "equal"`). A
class that nobody sends in a round keeps its prototype. A site predicts with its head, or with
`predict = "prototypes"` by the nearest global prototype, as the publication says.

Privacy: step 2 is DP-SGD, step 3 one release of noised class sums and counts
(`updates.class_means`), each charged before it reads a sample; both share the budget. In column
"paper" prototypes leave as they are, and the ledger says so.

A bottom with a head that tells the representation beside the logits, for losses of both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from baselines.common.class_means import bound_of, means_in, release_means
from baselines.common.options import options_of
from baselines.common.orders import check_flags, check_record, check_weights
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
from dprbft.config.schema import RunConfig, rounds_of
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.privacy.gradients.apart import keeps_samples_apart
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import accuracy_of, logits_of
from panas.training.sgd import OptimizerConfig


@keeps_samples_apart
class Headed(nn.Module):
    """From images to (n, classes + d): logits of a linear head, then what it was given."""

    def __init__(self, bottom: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.bottom, self.head = bottom, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Both, side by side."""
        z: Tensor = self.bottom(x)
        return torch.cat([self.head(z), z], dim=1)


COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": {"epsilon": float("inf"), "allow_unprotected": True},
        "federation": {"options": {"unit": False, "predict": "prototypes"}},
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
PROTOTYPES = ("prototypes", "known")  # (classes, d), and 1 for each class that has one
UNKNOWN = 1e6
"""Squared distance to the prototype of a class that has none."""


class Options(Section):
    """Settings of local training, of the prototypes, and the networks' sizes."""

    importance: Annotated[float, Field(ge=0)] = 1.0  # lambda, of the distance to prototypes
    learning_rate: Annotated[float, Field(gt=0)] = 0.1  # publication .01
    batch_size: Annotated[int, Field(ge=1)] = 64  # under DP an expected one
    epochs: Annotated[int, Field(ge=1)] = 4  # passes a round; publication 1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP
    release_share: Annotated[float, Field(gt=0, lt=1)] = 0.3  # of epsilon, sizes prototypes' noise
    weighting: Literal["counts", "equal"] = "counts"  # of sites in a prototype
    predict: Literal["head", "prototypes"] = "head"  # prototypes: the nearest global one
    kernels: Annotated[int, Field(ge=1)] = 8  # of the first convolution
    # of the first hidden layer of each network
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((200, 200, 100, 80, 50), min_length=1)
    width: Annotated[int, Field(ge=1)] = 64  # of representations and prototypes
    unit: bool = True  # representations of norm sqrt(width)


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
    rng = torch_generator(stream(site.config.seed, "fedproto", "site", site.id))
    weights = weights_of(initialise(_network(site), rng))
    return Bundle(weights, _kept(begin(site, planned)))


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a prototype for each class, and which classes have one."""
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, _no_prototypes(site.config, site.facts).arrays)
    check_flags(order.bundle.arrays["known"])


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 2 and 3."""
    o, told = options_of(site.config, Options), order.bundle.arrays
    model = _loaded(site, memory.arrays)
    optimizer = OptimizerConfig(
        learning_rate=o.learning_rate,
        batch_size=o.batch_size,
        epochs=o.epochs,
        momentum=o.momentum,
        weight_decay=o.weight_decay,
    )
    prototypes, known = (told[name].to(site.device) for name in PROTOTYPES)
    loss = prototype_loss(prototypes, known, o.importance)
    how = LocalTraining(optimizer=optimizer, round=order.round, loss=loss)
    spending = Spending.from_json(memory.record["spending"])
    spending, trained = train_locally(site, model, site.data.train, spending, how)
    if trained is None:
        return Turn(memory=Bundle(memory.arrays, _kept(spending)))
    means, released = release_means(
        site,
        lambda samples: logits_of(model.bottom, samples),
        spending,
        order.round,
        bound_of(o.width),
    )
    spending, test = after_round(site, spending, releases=1), site.data.test
    return Turn(
        memory=Bundle(weights_of(model), _kept(spending)),
        update=Bundle(means.to_arrays()),
        receipts=(trained, released),
        local=accuracy_of(logits_of(model, test)[:, : test.classes], test),
    )


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last prototypes beside the network."""
    prototypes = {name: order.bundle.arrays[name] for name in PROTOTYPES}
    return Bundle({**memory.arrays, **prototypes}, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The site's head, or the nearest prototype where it has any."""
    model, classes = _loaded(site, memory.arrays), site.spec.classes
    nearest = options_of(site.config, Options).predict == "prototypes"
    if not nearest or "known" not in memory.arrays or not bool(memory.arrays["known"].any()):
        return lambda samples: logits_of(model, samples)[:, :classes]
    prototypes, known = (memory.arrays[name] for name in PROTOTYPES)

    def predict(samples: Samples) -> Float[Tensor, "n classes"]:
        z = logits_of(model, samples)[:, classes:]
        return (-torch.cdist(z, prototypes).square()).masked_fill(known == 0, -UNKNOWN)

    return predict


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters, multiply-accumulates, and which of the five it is."""
    model = _loaded(site, memory.arrays)
    about = {"network": f"CNN {site.id % len(WIDER) + 1}"}
    macs = macs_of(model, site.spec.shape)
    return Size(parameters=parameters_of(model), macs=macs, about=about)


def server_start(side: Side) -> Bundle:
    """No prototype is known."""
    return _no_prototypes(side.config, side.facts)


def _no_prototypes(config: RunConfig, facts: Facts) -> Bundle:
    classes, width = facts.classes, options_of(config, Options).width
    known = torch.zeros(classes, dtype=torch.uint8)
    return Bundle({"prototypes": torch.zeros(classes, width), "known": known})


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Step 1: the same for all."""
    return dict.fromkeys(sites, Bundle(memory.arrays))


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 4, of whatever classes arrive."""
    o, classes = options_of(side.config, Options), side.facts.classes
    sums = torch.zeros(classes, o.width, dtype=torch.float64)
    weights = torch.zeros(classes, dtype=torch.float64)
    for update in updates:
        site = means_in(update.bundle, classes, o.width)
        equal = o.weighting == "equal"
        weight = torch.ones_like(weights[site.classes]) if equal else site.counts.double()
        sums[site.classes] += weight[:, None] * site.means.double()
        weights[site.classes] += weight
    told, prototypes, known = weights > 0, *(memory.arrays[n].clone() for n in PROTOTYPES)
    prototypes[told] = (sums[told] / weights[told, None]).float()
    known[told] = 1
    return Bundle({"prototypes": prototypes, "known": known})


def prototype_loss(
    prototypes: Float[Tensor, "classes d"], known: Tensor, importance: float
) -> Loss:
    """Cross-entropy plus lambda times the mean squared distance to the prototype of a sample's
    class, where that is known; of outputs (n, classes + d)."""
    classes = len(prototypes)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        apart = (outputs[:, classes:] - prototypes[y]).square().mean(dim=1)
        return cross_entropy(outputs[:, :classes], y) + importance * known[y] * apart

    return loss


def _kept(spending: Spending) -> dict[str, Any]:
    return {"spending": spending.to_json()}


def _network(site: Site) -> Headed:
    o = options_of(site.config, Options)
    sizes = Five(kernels=o.kernels, hidden=o.hidden, width=o.width, unit=o.unit)
    bottom = one_of_five(site.spec.shape, site.id % len(WIDER), sizes)
    return Headed(bottom, o.width, site.spec.classes)


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> Headed:
    model = _network(site)
    model.load_state_dict({name: a for name, a in arrays.items() if name not in PROTOTYPES})
    return model.to(site.device)
