"""What a site tells of a trial: by how much its loss fell. Clipped by sample, averaged, noised.

    r = (sum_i clip(l_i(before) - l_i(after), -c, c) + m c N(0, 1)) / n

i goes over the privacy units, of which one counts c at most; n is a public number near theirs. The
event is `Gaussian(m)` at sensitivity c. A group's change is the mean of its samples'. The losses
may depend on classes that count differently, by a noised histogram.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.data.samples import Samples
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.privacy.noise import NoiseSource
from panas.privacy.unit import number_units


def loss_change(
    before: Float[Tensor, "n"],
    after: Float[Tensor, "n"],
    samples: Samples,
    clip: float,
    noise: tuple[float, NoiseSource] | None,
    n: int | None = None,
) -> float:
    """Mean fall of the loss over the privacy units of samples.

    What is not a number counts as a loss of `clip`: a setting under which training blows up.

    Args:
        before: losses of the samples before training.
        after: the same after training.
        samples: they tell the units.
        clip: c, above 0.
        noise: m and where the noise comes from; None: nothing is clipped nor noised, and without
            samples nothing changes.
        n: the divisor, a public number; None: as many units as there are.

    Privacy: `Gaussian(m)` at sensitivity c, charged before the losses are computed.
    """
    changes = (before - after).double()
    if samples.groups is not None:
        units = number_units(samples.groups)
        sums = torch.zeros(samples.units, dtype=torch.float64).index_add_(0, units, changes)
        changes = sums / units.bincount()
    changes = torch.where(changes.isfinite(), changes, -clip)
    if noise is None:
        return float(changes.mean()) if len(changes) else 0.0
    multiplier, source = noise
    total = changes.clamp(-clip, clip).sum() + multiplier * clip * source.normal(1)[0]
    return float(total / (max(1, samples.units) if n is None else n))


def balancing(histogram: Sequence[float], noise: float = 1.0) -> tuple[float, ...]:
    """Weights of the classes under which all count alike; no count is taken for less than its
    noise's standard deviation, nor for less than 1."""
    counts = [max(1.0, noise, count) for count in histogram]
    return tuple(sum(counts) / (len(counts) * count) for count in counts)


def weighted_loss(weights: Sequence[float]) -> Loss:
    """Cross-entropy, times the weight of a sample's class; plain without weights."""
    if not weights:
        return cross_entropy
    by_class = torch.tensor(list(weights), dtype=torch.float32)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return by_class.to(outputs)[y] * F.cross_entropy(outputs, y, reduction="none")

    return loss
