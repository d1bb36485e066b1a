"""A site's training of one model, charged before it reads a sample: every method's one way."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from dprbft.site.site import Site
from panas.architecture.network import weights_of
from panas.data.samples import Samples
from panas.privacy.ledger.charge import Charge, Receipt
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan
from panas.training.any_model import CROSS_ENTROPY, Objective, train_model_private
from panas.training.sgd import OptimizerConfig


def are_finite(arrays: Mapping[str, Tensor]) -> bool:
    """Whether no number is NaN or infinite."""
    return all(bool(torch.isfinite(a).all()) for a in arrays.values())


def train_charged(
    site: Site,
    model: nn.Module,
    samples: Samples,
    *,
    plan: Plan | None,
    charge: Charge,
    config: OptimizerConfig,
    plain: Callable[[], None],
    objective: Objective = CROSS_ENTROPY,
    is_sound: Callable[[Mapping[str, Tensor]], bool] = are_finite,
) -> Receipt:
    """Train in place for a round: by DP-SGD under a plan, or without privacy.

    Args:
        site: its ledger is charged first; BudgetExhausted if the charge does not fit.
        model: what of it requires a gradient trains.
        samples: of the site, that the plan is for.
        plan: None trains without privacy.
        charge: as the ledger's line says it.
        config: how weights move under the plan.
        plain: trains the model without privacy, if there is a sample.
        objective: loss and penalty under the plan.
        is_sound: whether weights may be kept; else the model gets back those from before.

    Privacy: `charge`. Where training diverges, that is seen in the weights alone, which the charge
    covers: an error would tell of the samples.
    """
    before = weights_of(model)
    with site.ledger.charge(charge) as receipt:
        if plan:
            train_model_private(
                model, samples, plan=plan, config=config, noise=SystemNoise(), objective=objective
            )
        elif len(samples):
            plain()
    restore_unsound(model, before, is_sound)
    return receipt


def restore_unsound(
    model: nn.Module,
    before: Mapping[str, Tensor],
    is_sound: Callable[[Mapping[str, Tensor]], bool] = are_finite,
) -> None:
    """Give a model its weights from before where its own are not sound.

    Args:
        model: as it was trained.
        before: all of its weights.
        is_sound: says whether weights may be kept.
    """
    if not is_sound(model.state_dict()):
        model.load_state_dict(dict(before))
