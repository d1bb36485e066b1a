"""What an attack may see: `Observation`, and nothing of a site besides.

Privacy: an attack never holds a site. Private samples are held by `attacks.audit` alone, to score
(and given away in `LeakedPairs`, which says so).

| symbol | name |
|---|---|
| z | representation, shape (d,); u is z clipped to norm 1 |
| B_c, S_c | noised sum of u over the site's samples of class c |
| n_c | number of the site's samples of class c |
| mu_c | mean of u over the known samples of class c |

Rows give each sample's z; sums give one estimate a class, of its mean u; public rows hold no
private row, at best the mean of a class's. One estimate a class gives all its samples the same
image. Every attack knows each sample's true class, and so must beat the same-class mean. (A of
moments, a mixture over all classes, is not used.)

**Threat models.** What a server that keeps to the protocol knows besides what it sees:

| threat model | what the server knows besides |
|---|---|
| `WhiteBox` | the weights of the bottom that made the release, or the common map that did |
| `Shadow` | the bottom's architecture; it trains its own under the head that sites were sent |
| `LeakedPairs` | few private samples with their representations |

In each it sees releases, heads and the lengths of messages, and knows the public samples. An attack
that needs the weights takes an `Observation[WhiteBox]`. A common map is public: it has no shadow.

What made a release, the bottom of a site's own network or the common map of all sites:

| | who knows it | gradient to the images | untrained, as a control |
|---|---|---|---|
| bottom | whom its weights are published to | always | the same architecture, drawn anew |
| a network of one's own | the same | always | there is none |
| common map | everybody: it holds nothing private | none through a table's trees | there is none |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.privacy.release.estimate import ClassSums, Estimate, Moments, Rows
from panas.privacy.release.kind import ReleaseKind, is_noised, kind_named, noise_scale
from panas.privacy.release.rows import clip_rows
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
    batches = torch.arange(len(samples)).split(BATCH) if len(samples) else ()
    with torch.no_grad():
        if isinstance(representation, nn.Module):
            rows = [_rows(representation, torch.zeros(1, *samples.shape))[:0].detach()]
            return torch.cat([*rows, *(_rows(representation, samples.inputs(b)) for b in batches)])
        none = torch.empty(0, representation.width)
        return torch.cat([none, *(representation.of(samples.take(b)) for b in batches)])


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

    Args:
        genome: the site's architecture.
        spec: of the federation.
        head: the one that the site was sent.
        public: what the shadow trains on, at least one.
        rng: of weights and batches.
        optimizer: the training; the head stays whatever it says.
    """
    bottom = spec.bottom(genome, torch_generator(rng))
    fit(bottom, head, public, config=replace(optimizer, train_head=False), rng=rng)
    return Shadow(bottom.eval())


Inverter = Callable[[Tensor], Tensor]
"""Turns features (m, f) into images (m, c, h, w) in [-1, 1]; learnt from known samples."""

MAX_PAIRS = 2000  # known samples that an inverter learns from, at most
MIN_PUBLIC = 8
"""With fewer public samples an attack would learn nothing, and its silence would say nothing."""


@dataclass(frozen=True)
class LabelCounts:
    """A site's label counts, noised."""

    counts: Float[Tensor, "classes"]
    scale: float  # standard deviation of the noise; 0 where there is none


@dataclass(frozen=True)
class Observation(Generic[K]):
    """All that the server knows of one site."""

    site: str  # its name
    kind: str  # of the release; see `panas.privacy.release.kind`
    arrays: Mapping[str, Tensor]  # the release, as its kind describes it
    noise_multiplier: float | None  # None where there is no noise
    knowledge: K  # what the server knows besides
    public: Samples
    head: Head | None = None  # that the site was sent; None where the attack does not need it
    histogram: LabelCounts | None = None  # beside the release, where the method sends one
    basis: Float[Tensor, "d j"] | None = None
    """Orthonormal directions along which representations are read: see `along_head`."""

    def __post_init__(self) -> None:
        if len(self.public) < MIN_PUBLIC:
            raise BadInput(
                f"expected at least {MIN_PUBLIC} public samples to learn an attack from, got "
                f"{len(self.public)}; raise data.public_fraction"
            )
        if not bool(torch.isfinite(self.known_z).all()):
            raise BadInput(
                f"expected finite representations from the network of {self.site}, got "
                "NaN or infinity; train it again"
            )

    @property
    def by_class(self) -> bool:
        """Whether one representation a class can be had at best, rather than one a sample."""
        return not isinstance(self.estimate, Rows)

    @property
    def noised_sums(self) -> bool:
        """Whether sums by class were released, whose noise can be simulated."""
        return self.by_class and is_noised(self._kind)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on each number of the release."""
        return noise_scale(self._kind, self.noise_multiplier)

    @property
    def _kind(self) -> ReleaseKind:
        return kind_named(self.kind)

    @cached_property
    def estimate(self) -> Estimate:
        """What the release says, typed."""
        return self._kind.estimate(self.arrays, self.public.classes, self.noise_scale)

    @cached_property
    def _pairs(self) -> tuple[Float[Tensor, "p d"], Samples]:
        z, samples = self.knowledge.pairs(self.public)
        return self.read(z), samples

    def read(self, z: Float[Tensor, "m d"]) -> Float[Tensor, "m j"]:
        """Representations as they are seen here: clipped as the release clips, along the basis."""
        return self._along(clip_rows(z) if self._kind.UNIT else z)

    def _along(self, z: Float[Tensor, "m d"]) -> Float[Tensor, "m j"]:
        return z if self.basis is None else z @ self.basis

    def along_head(self) -> "Observation[K]":
        """The same, read along the k - 1 directions that the head tells apart, and no others.

        Bottoms that were trained under one head agree on these alone: the others of a shadow's
        mislead an inverter. (Adding the same to all logits changes no softmax, hence k - 1.)
        """
        if self.head is None or self.public.classes < 2:
            raise BadInput(
                "expected the head that the site was sent, of two or more classes, got "
                f"{'none' if self.head is None else 'one class'}; attack without it"
            )
        W = self.head.linear.weight.detach().cpu()
        _, lengths, directions = torch.linalg.svd(W - W.mean(0), full_matrices=False)
        return replace(self, basis=directions[lengths > 1e-4 * lengths[0]].T)

    @property
    def known(self) -> Samples:
        """The samples whose representations the server knows: what attacks learn from."""
        return self._pairs[1]

    @property
    def known_z(self) -> Float[Tensor, "p d"]:
        """Their representations, clipped as the release clips."""
        return self._pairs[0]

    @cached_property
    def known_means(self) -> Float[Tensor, "classes d"]:
        """mu_c, by class; the mean of all known samples where a class has none."""
        return class_means(self.known_z, self.known)

    def features(self, z: Float[Tensor, "m d"], y: Int[Tensor, "m"]) -> Float[Tensor, "m f"]:
        """What an inverter reads: z, and the class as an indicator on the scale of known z."""
        spread = (self.known_z - self.known_z.mean(0)).square().mean().sqrt()
        return torch.cat([z, spread * torch.eye(self.public.classes)[y]], dim=1)

    def pairs(
        self, rng: np.random.Generator
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m c h w"]]:
        """Features and images of at most `MAX_PAIRS` known samples, in random order."""
        chosen = rng.permutation(len(self.known))[:MAX_PAIRS]
        at = torch.from_numpy(chosen)
        return self.features(self.known_z[at], self.known.y[at]), self.known.inputs(chosen)

    def targets(self) -> tuple[Float[Tensor, "m d"], Int[Tensor, "m"]]:
        """Rows to invert and their classes: a row a sample, or one a class, in order."""
        if isinstance(self.estimate, Rows):
            return self._along(self.estimate.z), self.estimate.y
        return self.estimates(), torch.arange(self.public.classes)

    def released(self) -> Float[Tensor, "m f"]:
        """Features of `targets`."""
        return self.features(*self.targets())

    def estimates(self) -> Float[Tensor, "classes d"]:
        """The best guess of the mean of u in each class, from its sum.

        Where counts are exact, a class without any row has the mean of all rows.
        """
        sums, counts = self._sums()
        means = estimate_means(sums, counts, self.known_means)
        if isinstance(self.estimate, Moments) and counts is not None:
            means[counts == 0] = sums.sum(0) / counts.sum()
        return means

    def counts(self) -> Float[Tensor, "classes"]:
        """Estimate of n_c in [1, 1e6]: released, or from the length of B_c along mu_c."""
        sums, counts = self._sums()
        if counts is None:
            mu = self.known_means
            counts = (sums * mu).sum(1) / mu.square().sum(1).clamp(min=1e-9)
        return counts.clamp(1.0, 1e6)

    def _sums(self) -> tuple[Float[Tensor, "classes j"], Float[Tensor, "classes"] | None]:
        """Sums by class along the basis, and counts where they are released."""
        match self.estimate:
            case Moments(B=sums, counts=counts) | ClassSums(S=sums, counts=counts):
                return self._along(sums.float()), counts
        raise BadInput(f"expected a release of sums, got {self.kind}; read its rows")


def class_means(rows: Float[Tensor, "n ..."], samples: Samples) -> Float[Tensor, "classes ..."]:
    """Mean of `rows` over the samples of each class; over all samples where a class has none."""
    means = rows.mean(0, keepdim=True).repeat(samples.classes, *[1] * (rows.dim() - 1))
    for c in samples.y.unique().tolist():
        means[c] = rows[samples.y == c].mean(0)
    return means


def estimate_means(
    sums: Float[Tensor, "m d"], counts: Float[Tensor, "m"] | None, mu: Float[Tensor, "m d"]
) -> Float[Tensor, "m d"]:
    """A class's mean: S_c / n_c clipped to norm 1, or B_c with the length of the known mu_c.

    Args:
        sums: noised sums of m classes.
        counts: noised numbers of samples; None where none were sent, as of moments.
        mu: means of public samples of the classes, whose length stands in for the unknown one.
    """
    if counts is not None:
        return clip_rows(sums / counts.clamp(min=1.0)[:, None])
    lengths = mu.norm(dim=1) / sums.norm(dim=1).clamp(min=1e-6)
    return sums * lengths[:, None]
