"""VGG-11, 13, 16 and 19 of any width; where they begin alike, their layers have the same names.

Source: Simonyan and Zisserman 2015, table 1 (configurations A, B, D, E), with a norm after each
convolution. Deviations: a map is pooled while its side is at least 4, so that the last is 2 x 2 or
larger (for images of 32 x 32 the publication ends at 1 x 1); there is no dropout.
"""

from collections import OrderedDict

from torch import nn

from baselines.networks.cnns import SMALLEST, dense, norm_layer
from panas.architecture.network import Norm

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions before each pool, by the number of layers with weights."""
WIDER = (1, 2, 4, 8, 8)
"""Channels of each stage, as a multiple of the first stage's (64 in the publication)."""


def vgg(
    depth: int,
    shape: tuple[int, int, int],
    classes: int,
    width: int,
    hidden: int,
    norm: Norm,
) -> nn.Sequential:
    """A network: `features`, then `classifier` with two hidden layers.

    Args:
        depth: number of layers, a key of `STAGES`.
        shape: (channels, height, width) of an image.
        classes: width of the logits.
        width: channels of the first convolutions, which later ones multiply.
        hidden: width of the two hidden layers.
        norm: "group" (allowed under DP) or "batch".
    """
    channels, height, across = shape
    features: list[nn.Module] = []
    for convolutions, wider in zip(STAGES[depth], WIDER, strict=True):
        for _ in range(convolutions):
            features += [nn.Conv2d(channels, width * wider, 3, padding=1)]
            features += [norm_layer(width * wider, norm), nn.ReLU()]
            channels = width * wider
        pools = min(height, across) >= SMALLEST
        features.append(nn.MaxPool2d(2) if pools else nn.Identity())
        if pools:
            height, across = height // 2, across // 2
    classifier = nn.Sequential(
        dense(channels * height * across, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
    parts = {"features": nn.Sequential(*features), "flatten": nn.Flatten()}
    return nn.Sequential(OrderedDict(**parts, classifier=classifier))
