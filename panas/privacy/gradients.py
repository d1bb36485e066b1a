"""The private gradient of a Poisson batch: per-sample gradients, clipped, summed, noised.

    g = (sum_i clip(g_i, C) + sigma C N(0, I)) / (q n)

Per-sample gradients come from Opacus. The divisor is the public expected batch size, never the
realised one, and an empty batch is noise alone: both are needed for the accounting to hold.
Clip and noise are written here rather than taken from Opacus's optimiser because that one draws
from torch's CPU generator, whose 32-bit seed can be guessed (`panas.privacy.randomness`).
Source: Abadi et al. 2016, algorithm 1.
"""

import warnings

import torch
from jaxtyping import Float, Int
from opacus import GradSampleModule
from torch import Tensor, nn
from torch.nn import functional as F

from panas.errors import BadInput
from panas.privacy.plan import Plan
from panas.privacy.randomness import NoiseSource

CHUNK = 64
"""Most samples whose gradients are in memory at once; a multiple of STEP."""

STEP = 16
"""Batches are padded to a multiple of this.

Torch keeps its CPU kernels for every shape they meet; one a Poisson batch would fill the memory.
"""


def poisson_batch(samples: int, rate: float, noise: NoiseSource) -> Int[Tensor, "b"]:
    """Indices of a batch in which each of `samples` samples is with probability `rate`."""
    return torch.nonzero(noise.uniform(samples) < rate).flatten()


class PrivateGradient:
    """Puts private gradients into the `.grad` of a model's trainable parameters.

    While it is alive the model carries Opacus's hooks; `close` takes them off.
    """

    def __init__(self, model: nn.Module) -> None:
        for name, module in model.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                raise BadInput(
                    f"expected a network whose samples do not mix, got BatchNorm at {name!r}; "
                    'build it with norm="group"'
                )
        self._model = GradSampleModule(model, loss_reduction="sum")
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    def clipped_sum(
        self, x: Float[Tensor, "b c h w"], y: Int[Tensor, "b"], clip: float
    ) -> list[Tensor]:
        """The sum over the batch of per-sample cross-entropy gradients, each clipped to `clip`."""
        total = [torch.zeros_like(p) for p in self._parameters]
        for start in range(0, len(y), CHUNK):
            part = slice(start, start + CHUNK)
            size = len(y[part])
            padding = -size % STEP
            self._model.zero_grad(set_to_none=True)
            with warnings.catch_warnings():
                # Opacus's hooks fire on the first layer, whose input needs no gradient; that is so.
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                logits = self._model(F.pad(x[part], (0,) * 7 + (padding,)))
                F.cross_entropy(logits, F.pad(y[part], (0, padding)), reduction="sum").backward()
            grads: list[Tensor] = [getattr(p, "grad_sample") for p in self._parameters]  # noqa: B009
            norms = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()
            factor = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
            # Padding is left out, and so is a sample whose gradient is not finite.
            factor[size:] = 0.0
            factor = torch.where(torch.isfinite(norms), factor, 0.0)
            for t, g in zip(total, grads, strict=True):
                t += torch.einsum("b,b...->...", factor, torch.nan_to_num(g))
        self._model.zero_grad(set_to_none=True)
        return total

    def step(
        self,
        x: Float[Tensor, "b c h w"],
        y: Int[Tensor, "b"],
        plan: Plan,
        noise: NoiseSource,
    ) -> None:
        """Set every trainable parameter's `.grad` to the private gradient of one batch."""
        total = self.clipped_sum(x, y, plan.clip)
        divisor = plan.rate * plan.samples
        for p, g in zip(self._parameters, total, strict=True):
            draw = noise.normal(*p.shape).to(device=g.device, dtype=g.dtype)
            p.grad = (g + plan.noise_multiplier * plan.clip * draw) / divisor

    def close(self) -> None:
        """Take Opacus's hooks off the model."""
        self._model.zero_grad(set_to_none=True)
        self._model.to_standard_module()
