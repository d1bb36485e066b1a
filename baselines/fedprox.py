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

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from baselines import fedavg
from baselines.common.options import options_of
from dprbft.methods.updates.contract import Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order
from panas.training.any_model import Penalty

COLUMNS, SMOKE, CPU = fedavg.COLUMNS, fedavg.SMOKE, fedavg.CPU
check, check_order, orders = fedavg.check, fedavg.check_order, fedavg.orders
site_start, site_finish = fedavg.site_start, fedavg.site_finish
planned_spending = fedavg.planned_spending
server_start, server_round = fedavg.server_start, fedavg.server_round
predictor, size = fedavg.predictor, fedavg.size


class Options(fedavg.Options):
    """As of FedAvg, and how near a site stays."""

    proximal: Annotated[float, Field(ge=0)] = 0.01  # mu; the paper tries 0.001 to 1


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Step 2: train what was sent, and stay near it.

    Args:
        site: its training samples, ledger and settings.
        memory: what the site still plans to spend.
        order: w^t.
    """
    mu = options_of(site.config, Options).proximal
    return fedavg.site_round(site, memory, order, partial(distance, mu=mu))


def distance(model: nn.Module, mu: float) -> Penalty:
    """mu / 2 ||w - w^t||^2, equation 2's proximal term, where w^t are the model's weights now."""
    sent = [p.detach().clone() for p in model.parameters()]

    def penalty(parameters: Sequence[nn.Parameter]) -> Tensor:
        squares = [(p - w).square().sum() for p, w in zip(parameters, sent, strict=True)]
        return mu / 2 * torch.stack(squares).sum()

    return penalty
