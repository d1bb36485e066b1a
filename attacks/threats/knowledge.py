"""Threat models: what a server that keeps to the protocol knows besides what it sees.

| threat model | what the server knows besides |
|---|---|
| `WhiteBox` | the weights of the bottom that made the release, or the common map that did |
| `Shadow` | the bottom's architecture; it trains its own under the head that sites were sent |
| `LeakedPairs` | few private samples with their representations |

In each it sees releases, heads and the lengths of messages, and knows the public samples. An attack
that needs the weights takes an `Observation[WhiteBox]`. A common map is public: it has no shadow.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attacks.threats.representation import Representation, rows_of
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator
from panas.training.evaluate import represent
from panas.training.sgd import OptimizerConfig, fit

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
