"""Small convolutional networks, and how weights of any network begin: by a given generator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from panas.architecture.network import Norm
from panas.privacy.gradients.apart import keeps_samples_apart
from panas.runtime.errors import BadInput

SMALLEST = 4
"""A map is pooled while its side is at least this."""

WIDER = (2, 1, 2, 2, 2)
"""Channels of the second convolution of FedGH's five networks, in multiples of the first's."""

LARGE = 16
"""Side of an image from which on FedGH's kernels of 5x5 without padding fit."""


MOST_WEIGHTS = 1 << 27
"""Of one layer: half a GiB."""


@dataclass(frozen=True)
class Five:
    """Sizes of FedGH's five networks; the publication's are 16, (2000, 2000, 1000, 800, 500), 500.

    They differ in the channels of the second convolution (`WIDER`) and in the first hidden layer.
    """

    kernels: int  # channels of the first convolution
    hidden: tuple[int, ...]  # of the first hidden layer, one a network
    width: int  # of the representation, the same in all
    unit: bool  # whether representations have norm sqrt(width)


@keeps_samples_apart
class Scaled(nn.Module):
    """Scales each representation to a norm: all of them are of one size, whatever the network."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """As `z`; a representation of zeros stays one."""
        return self.norm * nn.functional.normalize(z, dim=1)


def one_of_five(shape: tuple[int, int, int], which: int, sizes: Five) -> nn.Sequential:
    """Bottom number `which` (0 to 4) of FedGH: two convolutions and two layers, without norms.

    Images of a side below `LARGE` get kernels of 3x3 with padding, and are pooled while they can.

    Args:
        shape: (channels, height, width) of an image.
        which: number of the bottom, 0 to 4.
        sizes: channels and widths of the five.

    Source: Yi et al. 2023 (FedGH), code of its CNNs.
    """
    channels, height, width = shape
    large = min(height, width) >= LARGE
    layers: list[nn.Module] = []
    for wide in (sizes.kernels, WIDER[which] * sizes.kernels):
        layers.append(nn.Conv2d(channels, wide, 5 if large else 3, padding=0 if large else 1))
        layers.append(nn.ReLU())
        channels, less = wide, 4 if large else 0
        height, width = height - less, width - less
        if min(height, width) >= 2:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    hidden = sizes.hidden[which % len(sizes.hidden)]
    layers += [nn.Flatten(), dense(channels * height * width, hidden), nn.ReLU()]
    layers += [nn.Linear(hidden, sizes.width), nn.ReLU()]
    if sizes.unit:
        layers.append(Scaled(math.sqrt(sizes.width)))
    return nn.Sequential(*layers)


def dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer; BadInput for one of more than `MOST_WEIGHTS`, before memory is taken."""
    if inputs * outputs > MOST_WEIGHTS:
        raise BadInput(
            f"expected a layer of at most {MOST_WEIGHTS:g} weights, got {inputs} times {outputs}; "
            "lower hidden or widths in federation.options"
        )
    return nn.Linear(inputs, outputs)


def norm_layer(channels: int, norm: Norm) -> nn.Module:
    """Group norm (at most 8 groups), which keeps samples apart, or batch norm."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(math.gcd(8, channels), channels)


def convolutional(
    shape: tuple[int, int, int], classes: int, widths: Sequence[int], hidden: int, norm: Norm
) -> nn.Sequential:
    """Convolutions 3x3 with norm, ReLU and a pool each, then a hidden layer and the logits.

    Args:
        shape: (channels, height, width) of an image.
        classes: width of the logits.
        widths: channels of the convolutions, first to last.
        hidden: width of the hidden layer.
        norm: "group" (allowed under DP) or "batch".
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for wide in widths:
        layers += [nn.Conv2d(channels, wide, 3, padding=1), norm_layer(wide, norm), nn.ReLU()]
        channels = wide
        if min(height, width) >= SMALLEST:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    layers += [nn.Flatten(), dense(channels * height * width, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, classes))


def initialise(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw all weights of convolutions and linear layers anew, as torch does; returns the model."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
            if module.bias is not None:
                bound = 1 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.bias, -bound, bound, generator=generator)
    return model


def parameters_of(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def macs_of(model: nn.Module, shape: tuple[int, int, int]) -> int:
    """Multiply-accumulates of convolutions and linear layers for one sample."""
    results = [0]

    def count(layer: nn.Module, inputs: object, out: torch.Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        places = out[0].numel() // weight.shape[0]
        results[0] += weight.numel() * (places if isinstance(layer, nn.Conv2d) else 1)

    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    training = model.training
    try:
        model.eval()
        model(torch.zeros(1, *shape, device=next(model.parameters()).device))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return results[0]
