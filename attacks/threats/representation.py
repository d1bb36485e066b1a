"""What made a release: the bottom of a site's own network, or the common map of all sites.

| | who knows it | gradient to the images | untrained, as a control |
|---|---|---|---|
| bottom | whom its weights are published to | always | the same architecture, drawn anew |
| a network of one's own | the same | always | there is none |
| common map | everybody: it holds nothing private | none through a table's trees | there is none |
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.runtime.errors import BadInput
from panas.training.evaluate import represent

Representation = Bottom | nn.Module | FeatureMap
"""A module of one's own maps images (n, c, h, w) in [-1, 1] to rows (n, d), in evaluation mode."""

BATCH = 512  # samples that a map reads at a time


def rows_of(representation: Representation, samples: Samples) -> Float[Tensor, "n d"]:
    """Representations of all samples, without gradients, on the CPU."""
    if isinstance(representation, Bottom):
        return represent(representation, samples)
    if isinstance(representation, nn.Module):
        rows = [_rows(representation, torch.zeros(1, *samples.shape))[:0].detach()]
        read: Callable[[Tensor], Tensor] = partial(_rows, representation)
    else:
        rows, read = [torch.empty(0, representation.width)], representation
    batches = torch.arange(len(samples)).split(BATCH) if len(samples) else ()
    with torch.no_grad():
        return torch.cat([*rows, *(read(samples.inputs(b)) for b in batches)])


def _rows(network: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Representations of images by any network, in its type and on its device."""
    z = network.eval()(x.to(next(network.parameters(), x)))
    if not isinstance(z, Tensor) or z.dim() != 2 or len(z) != len(x):
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise BadInput(
            f"expected a network that maps {len(x)} images to rows ({len(x)}, d), got {got}; add "
            "nn.Flatten() at its end"
        )
    return z.to(x)


def gradient_path(representation: Representation) -> Callable[[Tensor], Tensor] | None:
    """Representations (n, d) of images (n, c, h, w), with gradients; None where there are none."""
    if isinstance(representation, Bottom):
        return representation.eval()
    if isinstance(representation, nn.Module):
        return partial(_rows, representation)
    return representation.gradient_path
