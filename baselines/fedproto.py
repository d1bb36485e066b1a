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
(`common.class_means`), each charged before it reads a sample; both share the budget. In column
"paper" prototypes leave as they are, and the ledger says so.

A bottom with a head that tells the representation beside the logits, for losses of both.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from baselines.common import five
from baselines.common.class_means import means_in
from baselines.common.models import loaded, optimizer_of, orders_for_all
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.orders import check_flags, check_record, check_weights
from baselines.common.spending import spending_for
from baselines.common.training import LocalTraining
from dprbft.config.schema import RunConfig
from dprbft.methods.price import PlannedSpending
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.privacy.gradients.apart import keeps_samples_apart
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.training.any_model import Objective, logits_of


@keeps_samples_apart
class Headed(nn.Module):
    """From images to (n, classes + d): logits of a linear head, then what it was given.

    Args:
        bottom: from images to representations (n, d).
        width: d.
        classes: logits of the head.
    """

    def __init__(self, bottom: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.bottom, self.head = bottom, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Both, side by side."""
        z: Tensor = self.bottom(x)
        return torch.cat([self.head(z), z], dim=1)


SMOKE, CPU = five.SMOKE, five.CPU
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": UNPROTECTED,
        "federation": {"options": {"unit": False, "predict": "prototypes"}},
    },
    "sound": {},
}
PROTOTYPES = ("prototypes", "known")  # (classes, d), and 1 for each class that has one
UNKNOWN = 1e6
"""Squared distance to the prototype of a class that has none."""


class Options(five.Options):
    """Settings of local training, of the prototypes, and the networks' sizes."""

    importance: Annotated[float, Field(ge=0)] = 1.0  # lambda, of the distance to prototypes
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    weighting: Literal["counts", "equal"] = "counts"  # of sites in a prototype
    predict: Literal["head", "prototypes"] = "head"  # prototypes: the nearest global one


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds, and the site's network before the first."""
    return five.first_memory(site, _network(site), options_of(site.config, Options), "fedproto")


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon of all rounds."""
    return spending_for(site, five.planned(site, options_of(site.config, Options)))


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is a prototype for each class, and which classes have one.

    Args:
        site: for its settings, and the number of classes.
        memory: unused.
        order: untrusted.
    """
    check_record(order.bundle.record)
    check_weights(order.bundle.arrays, _no_prototypes(site.config, site.facts).arrays)
    check_flags(order.bundle.arrays["known"])


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 2 and 3.

    Args:
        site: its training samples, ledger and settings.
        memory: the site's network, and what it still plans to spend.
        order: the global prototypes.
    """
    o = options_of(site.config, Options)
    prototypes, known = (order.bundle.arrays[name].to(site.device) for name in PROTOTYPES)
    loss = prototype_loss(prototypes, known, o.importance)
    how = LocalTraining(optimizer=optimizer_of(o), round=order.round, objective=Objective(loss))
    return five.means_round(site, memory, _loaded(site, memory.arrays), how, o.width)


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last prototypes beside the network.

    Args:
        site: unused.
        memory: the site's network.
        order: the last global prototypes.
    """
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
    return five.size_of_network(site, _loaded(site, memory.arrays))


def server_start(side: Side) -> Bundle:
    """No prototype is known."""
    return _no_prototypes(side.config, side.facts)


def _no_prototypes(config: RunConfig, facts: Facts) -> Bundle:
    classes, width = facts.classes, options_of(config, Options).width
    known = torch.zeros(classes, dtype=torch.uint8)
    return Bundle({"prototypes": torch.zeros(classes, width), "known": known})


orders = orders_for_all


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 4, of whatever classes arrive.

    Args:
        side: for the options, and the number of classes.
        memory: the global prototypes before the round.
        updates: prototypes of each site, with their classes and counts.
        rng: unused.
    """
    o, classes = options_of(side.config, Options), side.facts.classes
    sums = torch.zeros(classes, o.width, dtype=torch.float64)
    weights = torch.zeros(classes, dtype=torch.float64)
    for update in updates:
        site = means_in(update.bundle, classes, o.width)
        equal = o.weighting == "equal"
        weight = torch.ones_like(weights[site.classes]) if equal else site.counts.double()
        sums[site.classes] += weight[:, None] * site.means.double()
        weights[site.classes] += weight
    sent, prototypes, known = weights > 0, *(memory.arrays[n].clone() for n in PROTOTYPES)
    prototypes[sent] = (sums[sent] / weights[sent, None]).float()
    known[sent] = 1
    return Bundle({"prototypes": prototypes, "known": known})


def prototype_loss(
    prototypes: Float[Tensor, "classes d"], known: Tensor, importance: float
) -> Loss:
    """Cross-entropy of outputs (n, classes + d), plus a distance to the prototype of the class.

    Args:
        prototypes: one a class; that of a class without any is not read.
        known: (classes,), 1 for each class that has a prototype, else 0.
        importance: lambda, weight of the mean squared distance, 0 or more.
    """
    classes = len(prototypes)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        apart = (outputs[:, classes:] - prototypes[y]).square().mean(dim=1)
        return cross_entropy(outputs[:, :classes], y) + importance * known[y] * apart

    return loss


def _network(site: Site) -> Headed:
    o = options_of(site.config, Options)
    return Headed(five.bottom_of(site, o), o.width, site.spec.classes)


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> Headed:
    weights = {name: array for name, array in arrays.items() if name not in PROTOTYPES}
    return loaded(site, _network(site), weights)
