"""A site's training of one model, charged before it reads a sample: every method's one way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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

IsSound = Callable[[Mapping[str, Tensor]], bool]
"""Whether weights may be kept."""


def are_finite(arrays: Mapping[str, Tensor]) -> bool:
    """Whether no number is NaN or infinite."""
    return all(bool(torch.isfinite(a).all()) for a in arrays.values())


@dataclass(frozen=True, kw_only=True)
class RoundOfTraining:
    """How a model is trained in a round, and what that is charged as."""

    charge: Charge
    plan: Plan | None  # None trains without privacy
    config: OptimizerConfig  # under the plan
    plain: Callable[[], None]  # trains the model without privacy
    objective: Objective = CROSS_ENTROPY  # under the plan
    is_sound: IsSound = are_finite


def train_charged(site: Site, model: nn.Module, samples: Samples, how: RoundOfTraining) -> Receipt:
    """Train in place for a round: by DP-SGD under a plan, or without privacy.

    Args:
        site: its ledger is charged first; BudgetExhausted if the charge does not fit.
        model: what of it requires a gradient trains.
        samples: of the site, that the plan is for.
        how: charge, plan, optimiser and objective.

    Privacy: `how.charge`. Where a process died within it, nothing has left: the same charge pays
    for it again. Where training diverges, the model gets back its weights from before: an error
    would tell of the samples.
    """
    before = weights_of(model)
    with site.ledger.charge(how.charge, resumes=True) as receipt:
        if how.plan:
            train_model_private(
                model,
                samples,
                plan=how.plan,
                config=how.config,
                noise=SystemNoise(),
                objective=how.objective,
            )
        elif len(samples):
            how.plain()
    restore_unsound(model, before, how.is_sound)
    return receipt


def restore_unsound(
    model: nn.Module, before: Mapping[str, Tensor], is_sound: IsSound = are_finite
) -> None:
    """Give a model its weights from before where its own are not sound.

    Args:
        model: as it was trained.
        before: all of its weights.
        is_sound: says whether weights may be kept.
    """
    if not is_sound(model.state_dict()):
        model.load_state_dict(dict(before))
