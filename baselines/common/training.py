"""A round of local training of any network at a site: charged first, by DP-SGD under its plan.

Without a budget it is plain SGD, charged as unprotected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from baselines.common.models import accuracy_at, kept, spending_in
from baselines.common.orders import are_bounded
from baselines.common.spending import Mechanism, Spending, after_round, charge_of, current
from dprbft.methods.updates.contract import Turn
from dprbft.site.site import Site
from dprbft.site.training import RoundOfTraining, train_charged
from dprbft.updates import Bundle
from panas.architecture.network import weights_of
from panas.data.samples import Samples
from panas.runtime.seeds import stream
from panas.training.any_model import CROSS_ENTROPY, Objective, train_model
from panas.training.sgd import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a site trains in a round."""

    optimizer: OptimizerConfig
    round: int
    objective: Objective = CROSS_ENTROPY
    most: float | None = None  # norm of a batch's gradient, without privacy


def train_locally(
    site: Site, model: nn.Module, samples: Samples, spending: Spending, how: LocalTraining
) -> tuple[Spending, str | None]:
    """Train in place for a round; returns the plan that it kept, and the id of the charge.

    None for that, and nothing is trained, where the budget pays for no further round. Where
    training diverges, to weights that no message may hold, the model keeps those from before.

    Args:
        site: its ledger and the shared settings.
        model: trains in place, on the site's device.
        samples: of the site, that the plan is for.
        spending: the plan before the round; without one training is without privacy.
        how: optimiser, round, loss and clipping.

    Privacy: the weights cost the plan's `training_event`; all that is computed of them and of
    public samples is post-processing. What else reads the samples needs a charge of its own.
    """
    spending = current(site, spending)
    if spending.skips:
        return spending, None
    plan = spending.plan
    mechanism = Mechanism("dp-sgd" if plan else "sgd", plan.clip if plan else None)
    receipt = train_charged(
        site,
        model.to(site.device),
        samples,
        RoundOfTraining(
            charge=charge_of(site, mechanism, plan.training_event if plan else None, how.round),
            plan=plan,
            config=how.optimizer,
            plain=lambda: train_model(
                model,
                samples,
                config=how.optimizer,
                rng=stream(site.config.seed, "client", site.id, "round", how.round, "train"),
                objective=how.objective,
                most=how.most,
            ),
            objective=how.objective,
            is_sound=are_bounded,
        ),
    )
    return spending, receipt.id


def weights_round(
    site: Site,
    model: nn.Module,
    memory: Bundle,
    how: LocalTraining,
    record: Mapping[str, Any] | None = None,
) -> Turn:
    """Train a model in place, and send its weights with a record.

    Args:
        site: its training samples and its ledger.
        model: the weights that were sent are in it already.
        memory: holds the weights that a site keeps that cannot pay for the round, and its plan.
        how: optimiser, round and loss.
        record: sent beside the weights, JSON-able; of public or noised numbers alone.
    """
    shared = accuracy_at(site, model)
    spending, receipt = train_locally(site, model, site.data.train, spending_in(memory), how)
    if receipt is None:
        return Turn(memory=kept(memory.arrays, spending), shared=shared)
    spending, weights = after_round(site, spending), weights_of(model)
    return Turn(
        memory=kept(weights, spending),
        update=Bundle(weights, record or {}),
        receipts=(receipt,),
        local=accuracy_at(site, model),
        shared=shared,
    )
