"""What a network makes of samples, without gradients: representations, accuracy, cross-entropy."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.features.exact import filled
from panas.privacy.gradients.apart import samples_apart
from panas.training.sgd import CHUNK_BYTES

EVALUATION_BATCH = 128  # samples in one forward pass, at most
MAPS_HELD = 4  # by a residual block at once


@torch.no_grad()
def represent(bottom: Bottom, samples: Samples) -> Float[Tensor, "n d"]:
    """Representations of all samples, on the CPU, in evaluation mode.

    Privacy: a row depends on its own sample alone, which the sensitivity of a release rests on; on
    a CPU bit for bit, as batches have one size, filled up with zeros.
    """
    bottom.eval()
    device = bottom.adapt.weight.device
    if not len(samples):
        return torch.zeros(0, bottom.adapt.out_features)
    held = MAPS_HELD * _largest_map(bottom, samples.inputs(torch.arange(1)).to(device))
    size = min(EVALUATION_BATCH, max(1, CHUNK_BYTES // held))
    rows = []
    with samples_apart(bottom):
        for batch in torch.arange(len(samples)).split(size):
            x = filled(samples.inputs(batch), size).to(device)
            rows.append(bottom(x).cpu()[: len(batch)])
    return torch.cat(rows)


def _largest_map(bottom: Bottom, x: Float[Tensor, "1 c h w"]) -> int:
    """Bytes of the largest map of a sample."""
    sizes = [x.numel() * x.element_size()]

    def note(_: nn.Module, __: object, out: object) -> None:
        if isinstance(out, Tensor):
            sizes.append(out.numel() * out.element_size())

    hooks = [module.register_forward_hook(note) for module in bottom.modules()]
    bottom(x)
    for hook in hooks:
        hook.remove()
    return max(sizes)


@torch.no_grad()
def accuracy(bottom: Bottom, head: Head, samples: Samples) -> float:
    """Share of samples whose class has the largest logit; NaN if there are no samples.

    Args:
        bottom: is put into evaluation mode.
        head: on the bottom's device.
        samples: n >= 0, of the bottom's shape.
    """
    return head_scores(represent(bottom, samples), samples, head)[0]


@torch.no_grad()
def head_scores(z: Float[Tensor, "n d"], samples: Samples, head: Head) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of a head on representations; NaN if there are none.

    Args:
        z: representations of the samples, in their order.
        samples: whose labels count alone.
        head: on any device.
    """
    if not len(samples):
        return float("nan"), float("nan")
    logits = head(z.to(head.linear.weight.device)).cpu()
    right = (logits.argmax(1) == samples.y).double().mean()
    return float(right), float(F.cross_entropy(logits, samples.y))
