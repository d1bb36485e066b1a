"""Fit one network by DP-SGD, under a calibrated plan."""

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import Plan
from panas.training.sgd import OptimizerConfig, make_optimizer, set_trainable


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

    BadInput if `samples` are not the plan's n units, or the network mixes them.

    Privacy: `plan.training_event`, which the caller has charged to the ledger before, for one
    unit: a sample, or a whole group where the samples have groups.
    """
    plan.check_units(samples.units)
    model, parameters = set_trainable(bottom, head, config.train_head)
    optimizer = make_optimizer(parameters, config)
    device, gradient = parameters[0].device, PrivateGradient(model)
    groups = samples.groups
    for batch in plan.batches(noise, groups):
        x, y = samples.inputs(batch).to(device), samples.y[batch].to(device)
        drawn = None if groups is None else groups[batch]
        gradient.step(x, y, plan.clip_and_noise, noise, drawn)
        optimizer.step()
