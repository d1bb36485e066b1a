"""The gradient of one batch of a site's samples: private by a plan, or plain without one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from panas.data.samples import Samples, concat
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.privacy.gradients.private import ClipAndNoise, PrivateGradient
from panas.privacy.noise import NoiseSource, poisson_batch
from panas.privacy.plan import Plan
from panas.privacy.unit import number_units, rows_of


@dataclass(frozen=True)
class Part:
    """Some of a site's samples, and how a batch is drawn from them."""

    samples: Samples
    batch_size: int  # expected; more than there are: all
    plan: Plan | None = None  # None: without protection

    @property
    def rate(self) -> float:
        """Probability that a unit is in a batch."""
        if self.plan is not None:
            return self.plan.rate
        return min(1.0, self.batch_size / max(1, self.samples.units))

    @property
    def expected(self) -> float:
        """Units of a batch: a public number under a plan."""
        return self.rate * (self.samples.units if self.plan is None else self.plan.samples)

    def batch(self, noise: NoiseSource) -> Samples:
        """A Poisson batch; a group comes with all its samples."""
        drawn = poisson_batch(self.samples.units, self.rate, noise)
        groups = self.samples.groups
        return self.samples.take(drawn if groups is None else rows_of(number_units(groups), drawn))


def batch_gradient(
    model: nn.Module,
    parts: Sequence[Part],
    noise: NoiseSource,
    *,
    clip: float | None = None,
    loss: Loss = cross_entropy,
) -> dict[str, Tensor]:
    """The gradient of the trainable parameters by name, of one batch of all parts together.

    Under plans it is clipped a unit at a time, noised and divided by the public expected size;
    without, it is the mean over the batch, and zero for an empty one or where it is not finite:
    what such a batch sends is as large as any other.

    Args:
        model: on its device.
        parts: disjoint samples; all with a plan, or none.
        noise: of batches and mechanism.
        clip: norm of a unit's gradient in the place of the plans'.
        loss: one a sample.

    Privacy: `SampledGaussian(rate, noise_multiplier, 1)` of each part's own plan, on that part.
    """
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    device = next(iter(named.values())).device
    plans = [part.plan for part in parts if part.plan is not None]
    batch = concat([part.batch(noise) for part in parts])
    x, y = batch.inputs().to(device), batch.y.to(device)
    if plans:
        # The most noise of all keeps every part's promise.
        mechanism = ClipAndNoise(
            clip=plans[0].clip if clip is None else clip,
            noise_multiplier=max(plan.noise_multiplier for plan in plans),
            batch_size=sum(part.expected for part in parts),
        )
        PrivateGradient(model, loss).step(x, y, mechanism, noise, batch.groups)
        found = [p.grad for p in named.values()]
        return {n: g.cpu() for n, g in zip(named, found, strict=True) if g is not None}
    zero = {n: torch.zeros_like(p).cpu() for n, p in named.items()}
    if not len(batch):
        return zero
    grads = torch.autograd.grad(
        loss(model(x), y).mean(), list(named.values()), materialize_grads=True
    )
    if not all(bool(torch.isfinite(g).all()) for g in grads):
        return zero
    return {n: g.cpu() for n, g in zip(named, grads, strict=True)}
