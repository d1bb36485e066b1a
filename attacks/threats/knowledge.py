"""Threat models: what a server that keeps to the protocol knows besides what it sees.

| threat model | what the server knows besides |
|---|---|
| `WhiteBox` | the weights of the bottom that made the release, or the common map that did |
| `Shadow` | the bottom's architecture; it trains its own under the head that sites were sent |
| `LeakedPairs` | few private samples with their representations |

In each it sees releases, heads and the lengths of messages, and knows the public samples. An attack
that needs the weights takes an `Observation[WhiteBox]`. A common map is public: it has no shadow.

What made a release: the bottom of a site's own network, or the common map of all sites.

| | who knows it | gradient to the images | untrained, as a control |
|---|---|---|---|
| bottom | whom its weights are published to | always | the same architecture, drawn anew |
| a network of one's own | the same | always | there is none |
| common map | everybody: it holds nothing private | none through a table's trees | there is none |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator
from panas.training.evaluate import represent
from panas.training.sgd import OptimizerConfig, fit

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


SHADOW = OptimizerConfig(
    learning_rate=0.005, optimiser="adam", batch_size=32, epochs=10, decay="cosine"
)
"""How a server trains its own bottom on public samples: quicker than sites before round 1."""


@dataclass(frozen=True)
class WhiteBox:
    """What made the release: the weights of the site's bottom, or the common map."""

    name: ClassVar[str] = "white-box"
    representation: Representation

    def pairs(self, public: Samples) -> tuple[Float[Tensor, "p d"], Samples]:
        """Representations that the server can compute, and what they are of."""
        return rows_of(self.representation, public), public


@dataclass(frozen=True)
class Shadow:
    """A bottom that the server trained itself, see `shadow`, in place of the site's."""

    name: ClassVar[str] = "shadow"
    bottom: Bottom

    def pairs(self, public: Samples) -> tuple[Float[Tensor, "p d"], Samples]:
        """Representations by the server's own bottom, and what they are of."""
        return represent(self.bottom, public), public


@dataclass(frozen=True)
class LeakedPairs:
    """Few private samples with their representations, from a breach elsewhere."""

    name: ClassVar[str] = "leaked pairs"
    z: Float[Tensor, "m d"]
    samples: Samples

    def __post_init__(self) -> None:
        if len(self.z) != len(self.samples):
            raise BadInput(
                f"expected a representation of each leaked sample, got {len(self.z)} of "
                f"{len(self.samples)}; give pairs"
            )

    def pairs(self, public: Samples) -> tuple[Float[Tensor, "p d"], Samples]:
        """The pairs themselves."""
        return self.z, self.samples


Knowledge = WhiteBox | Shadow | LeakedPairs
K = TypeVar("K", WhiteBox, Shadow, LeakedPairs, Knowledge, covariant=True)


def shadow(
    genome: Genome,
    spec: NetworkSpec,
    head: Head,
    public: Samples,
    *,
    rng: np.random.Generator,
    optimizer: OptimizerConfig = SHADOW,
) -> Shadow:
    """Train a bottom of the site's architecture on public samples, under the head it was sent.

    The head does not move: what aligns the shadow with the site is that both serve it.
    """
    bottom = spec.bottom(genome, torch_generator(rng))
    fit(bottom, head, public, config=replace(optimizer, train_head=False), rng=rng)
    return Shadow(bottom.eval())
