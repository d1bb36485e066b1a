"""What made a release: the bottom of a site's own network, or the common map of all sites.

| | who knows it | gradient to the images | untrained, as a control |
|---|---|---|---|
| bottom | whom its weights are published to | always | the same architecture, drawn anew |
| common map | everybody: it holds nothing private | none through a table's trees | there is none |
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.training.evaluate import represent

Representation = Bottom | FeatureMap

BATCH = 512  # samples that a map reads at a time


def rows_of(representation: Representation, samples: Samples) -> Float[Tensor, "n d"]:
    """Representations of all samples, without gradients, on the CPU."""
    if isinstance(representation, Bottom):
        return represent(representation, samples)
    rows = [torch.empty(0, representation.width)]
    batches = torch.arange(len(samples)).split(BATCH) if len(samples) else ()
    return torch.cat([*rows, *(representation(samples.inputs(b)) for b in batches)])


def gradient_path(representation: Representation) -> Callable[[Tensor], Tensor] | None:
    """Representations (n, d) of images (n, c, h, w), with gradients; None where there are none."""
    if isinstance(representation, Bottom):
        return representation.eval()
    return representation.gradient_path
