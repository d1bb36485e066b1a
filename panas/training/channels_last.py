"""Maps with their channels last in memory, as a training on a CPU is fastest.

Convolutions are faster so, but two things of PyTorch's are slow. Its group norm of eight groups
takes 2 to 12 times as long as with channels first, so `group_norm` here takes its place. And what
reads two maps of different layouts, as ReLU's gradient, takes up to 20 times as long, so blocks
give and get maps with their channels last. A step takes about two thirds of the time of plain
torch (`python -m benchmarks.plain_steps`).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

LAST = torch.channels_last


@contextmanager
def channels_last(model: nn.Module, blocks: nn.Module) -> Iterator[None]:
    """Weights and maps of a network in training have their channels last.

    All come back as they were, for those who look at their memory.

    Args:
        model: the whole network.
        blocks: those parts of it that give and get maps, one after the other.
    """
    with ExitStack() as back:
        back.callback(model.to, memory_format=torch.contiguous_format)
        model.to(memory_format=LAST)
        for norm in model.modules():
            if isinstance(norm, nn.GroupNorm):
                norm.forward = partial(_normed, norm)  # type: ignore[method-assign]
                back.callback(delattr, norm, "forward")
        for block in blocks.children():
            back.callback(block.register_forward_hook(_laid_out).remove)
        yield


def _laid_out(block: nn.Module, inputs: object, out: Tensor) -> Tensor:
    """A block's map with its channels last, and so its gradient."""
    if out.requires_grad:
        out = out.contiguous(memory_format=LAST)
        out.register_hook(lambda g: g.contiguous(memory_format=LAST))
    return out


def _normed(norm: nn.GroupNorm, x: Float[Tensor, "n c *map"]) -> Float[Tensor, "n c *map"]:
    """What the norm gives, by the faster way."""
    ours = norm.num_groups > 1 and x.dim() == 4 and x.device.type == "cpu"
    if ours and x.is_contiguous(memory_format=LAST) and not x.is_contiguous():
        return group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)
    return F.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)


def group_norm(
    x: Float[Tensor, "n c h w"],
    groups: int,
    weight: Float[Tensor, "c"],
    bias: Float[Tensor, "c"],
    eps: float,
) -> Float[Tensor, "n c h w"]:
    """`torch.nn.functional.group_norm`, faster where channels are last in memory.

    Args:
        x: n maps; the result is laid out as they are.
        groups: divides c.
        weight: of each channel.
        bias: of each channel.
        eps: is added to the variance, above 0.
    """
    result: Tensor = _GroupNorm.apply(x, groups, weight, bias, eps)
    return result


class _GroupNorm(torch.autograd.Function):
    """The norm by sums over pixels, which are fast in this layout, and then over channels.

    Source: Wu and He 2018, with the gradient of the usual normalisation.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        """The normalised maps."""
        rows = _rows(x)
        centred = rows - _of_groups(rows.mean(1, keepdim=True), groups)
        variance = _of_groups((centred * centred).mean(1, keepdim=True), groups)
        scale = (variance + eps).rsqrt()
        ctx.save_for_backward(centred, scale, weight)
        ctx.groups = groups
        return _maps(torch.addcmul(bias, centred, scale * weight), x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of maps, weight and bias."""
        (centred, scale, weight), (g,) = ctx.saved_tensors, gradients
        rows = _rows(g)
        summed, along = rows.sum(1, keepdim=True), (rows * centred).sum(1, keepdim=True) * scale
        pixels = rows.shape[1]
        shift = -scale * _of_groups(summed * weight / pixels, ctx.groups)
        slope = -scale.square() * _of_groups(along * weight / pixels, ctx.groups)
        passed = torch.addcmul(shift, centred, slope).addcmul_(rows, scale * weight)
        return _maps(passed, g), None, along.sum((0, 1)), summed.sum((0, 1)), None


def _rows(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n pixels c"]:
    """The channels of each pixel; a view where they are last in memory."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _maps(rows: Float[Tensor, "n pixels c"], like: Tensor) -> Float[Tensor, "n c h w"]:
    n, c, h, w = like.shape
    return rows.view(n, h, w, c).permute(0, 3, 1, 2)


def _of_groups(x: Float[Tensor, "n 1 c"], groups: int) -> Float[Tensor, "n 1 c"]:
    """For each channel the mean of its group."""
    means = x.view(len(x), groups, -1).mean(2, keepdim=True)
    return means.expand(-1, -1, x.shape[2] // groups).reshape(x.shape)
