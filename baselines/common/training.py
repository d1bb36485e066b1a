"""A round of local training of any network at a site: charged first, by DP-SGD under its plan.

Without a budget it is plain SGD, charged as unprotected.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from baselines.common.orders import are_bounded
from baselines.common.spending import Mechanism, Spending, charged, current
from dprbft.site.site import Site
from panas.data.samples import Samples
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.privacy.noise import SystemNoise
from panas.runtime.seeds import stream
from panas.training.any_model import train_model, train_model_private
from panas.training.sgd import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a site trains in a round."""

    optimizer: OptimizerConfig
    round: int
    loss: Loss = cross_entropy  # one a sample
    most: float | None = None  # norm of a batch's gradient, without privacy
    subset: str = "train"  # as the ledger names the samples


def train_locally(
    site: Site, model: nn.Module, samples: Samples, spending: Spending, how: LocalTraining
) -> tuple[Spending, str | None]:
    """Train in place for a round; returns the plan that it kept, and the id of the charge.

    None for that, and nothing is trained, where the budget pays for no further round. Where
    training diverges, to weights that no message may hold, the model keeps those from before.

    Privacy: the weights cost the plan's `training_event`; all that is computed of them and of
    public samples is post-processing. What else reads the samples needs a charge of its own.
    """
    spending = current(site, spending)
    if spending.skips:
        return spending, None
    plan = spending.plan
    mechanism = Mechanism(
        "dp-sgd" if plan else "sgd", plan.clip if plan else None, subset=how.subset
    )
    before = {name: array.detach().cpu().clone() for name, array in model.state_dict().items()}
    with charged(site, mechanism, plan.training_event if plan else None, how.round) as receipt:
        model.to(site.device)
        if plan:
            train_model_private(
                model, samples, plan=plan, config=how.optimizer, noise=SystemNoise(), loss=how.loss
            )
        elif len(samples):
            rng = stream(site.config.seed, "client", site.id, "round", how.round, how.subset)
            train_model(model, samples, config=how.optimizer, rng=rng, loss=how.loss, most=how.most)
    undo_divergence(model, before)
    return spending, receipt.id


def undo_divergence(model: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Give a model its weights from before if some are not finite, or too large to send.

    Privacy: what was paid for is sent in any case, of the same size; that training diverged is seen
    in the weights alone, which the charge covers.
    """
    if not are_bounded(model.state_dict()):
        model.load_state_dict(dict(before))
