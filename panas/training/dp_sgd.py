"""Fit one network by DP-SGD, under a calibrated plan."""

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import Plan
from panas.training.any_model import train_model_private
from panas.training.sgd import OptimizerConfig, set_trainable


def fit_private(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    plan: Plan,
    config: OptimizerConfig,
    noise: NoiseSource,
) -> None:
    """Train in place for one round of `plan` by DP-SGD; batches and epochs are the plan's.

    BadInput if the network mixes samples.

    Privacy: `plan.training_event`, which the caller has charged to the ledger before, for one
    unit: a sample, or a whole group where the samples have groups.
    """
    model, _ = set_trainable(bottom, head, config.train_head)
    train_model_private(model, samples, plan=plan, config=config, noise=noise)
