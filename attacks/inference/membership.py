"""Membership inference: which of some candidates was a network trained on?

The adversary queries the network, images in and logits out, and holds candidates (images with
labels) and public samples. A member has a higher score. Only `attacks.inference.roc` knows members.

| attack | score of (x, y) |
|---|---|
| `loss_scores` | ln p_y, minus the cross-entropy |
| `confidence_scores` | phi = ln(p_y / (1 - p_y)), the logit-scaled confidence |
| `lira` | how unusual phi is for a network that was not trained on (x, y) |
| `rmia` | of how many public z the network is less sure than of x, each by its own difficulty |

p is the softmax of the logits.

**LiRA.** How much surer of a candidate is a network than those that never saw it?

    z = (phi - mu) / s

mu and s are mean and standard deviation of phi over shadow networks, which the adversary trains.
Shapes: n candidates, k shadow networks, v views of an image. It is offline: shadows see public
samples only, so that they are trained once. z orders a view's candidates as the paper's Phi(z),
without rounding to 1.

**RMIA.** Does the network's ratio of x beat that of public samples z? It needs few shadows.

    score = share of z with ratio(x) >= gamma ratio(z),    ratio(x) = p_y / pr(x)

pr(z) is the mean of p_y over shadows. No shadow saw x, so that pr(x) adds what one that did would
say: pr(x) = ((1 + a) mean + 1 - a) / 2. z are public samples; shadows saw some. The score grows
with ratio(x), which breaks ties: the paper's is a multiple of 1 / (number of z).

Source: Yeom et al. 2018 (loss threshold); Carlini et al. 2022 (arXiv 2112.03570), sections IV to
VI; Zarifzadeh, Liu and Shokri 2024 (arXiv 2312.03262), section 3, offline.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples, concat
from panas.runtime.errors import BadInput
from panas.runtime.pool import Pool
from panas.runtime.seeds import one_thread
from panas.runtime.store import read_tensors, write_tensors
from panas.training.evaluate import EVALUATION_BATCH
from panas.training.sgd import OptimizerConfig, fit

Query = Callable[[Tensor], Tensor]
"""All that is asked of a network: images (b, c, h, w) in [-1, 1] to logits (b, classes)."""

View = Literal["plain", "flipped", "left", "right", "up", "down"]

VIEWS: dict[View, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "flipped": lambda x: x.flip(3),
    "left": lambda x: F.pad(x[..., 1:], (0, 1, 0, 0), mode="replicate"),
    "right": lambda x: F.pad(x[..., :-1], (1, 0, 0, 0), mode="replicate"),
    "up": lambda x: F.pad(x[..., 1:, :], (0, 0, 0, 1), mode="replicate"),
    "down": lambda x: F.pad(x[..., :-1, :], (0, 0, 1, 0), mode="replicate"),
}
"""What may be asked about an image besides itself: its mirror image, and moves by a pixel."""


def query_of(network: nn.Module) -> Query:
    """Questions to a network: in evaluation mode, without gradients, in its type, on its device."""
    network.eval()
    weights = next(network.parameters(), torch.empty(0))

    def query(x: Tensor) -> Tensor:
        with torch.no_grad():
            return network(x.to(weights))

    return query


def logits(query: Query, samples: Samples, view: View = "plain") -> Float[Tensor, "n classes"]:
    """What a network answers to a view of all samples, float64; BadInput for what are no logits.

    Args:
        query: images in [-1, 1] to logits.
        samples: n >= 0.
        view: how each image is shown: as it is, flipped, or shifted by a pixel.
    """
    parts = torch.arange(len(samples)).split(EVALUATION_BATCH)
    answers = torch.cat([query(VIEWS[view](samples.inputs(p))).detach().cpu() for p in parts])
    if answers.shape != (len(samples), samples.classes) or samples.classes < 2:
        raise BadInput(
            f"expected logits ({len(samples)}, {samples.classes}) for two or more classes, got "
            f"{tuple(answers.shape)}; ask a network for these classes"
        )
    if not bool(answers.isfinite().all()):
        raise BadInput("expected finite logits, got NaN or infinity; did the training diverge?")
    answers = answers.double()
    if len(answers) and bool((answers >= 0).all() and (answers.sum(1) - 1).abs().max() < 1e-3):
        raise BadInput("expected logits, got probabilities; ask the network before its softmax")
    return answers


def loss_scores(query: Query, candidates: Samples) -> Float[Tensor, "n"]:
    """Minus the cross-entropy of each candidate."""
    return -F.cross_entropy(logits(query, candidates), candidates.y, reduction="none")


def confidence_scores(
    query: Query, candidates: Samples, view: View = "plain"
) -> Float[Tensor, "n"]:
    """phi of each candidate: its class's logit over the log-sum-exp of the others.

    That is ln(p_y / (1 - p_y)) without ever forming 1 - p_y, which rounds to 0.

    Args:
        query: images in [-1, 1] to logits of two or more classes.
        candidates: with their true labels.
        view: how each image is shown: as it is, flipped, or shifted by a pixel.
    """
    answers, own = logits(query, candidates, view), candidates.y[:, None]
    others = answers.scatter(1, own, -torch.inf).logsumexp(1)
    return answers.gather(1, own)[:, 0] - others


GAMMA, SEEN = 2.0, 0.3
"""Of RMIA: gamma, and a. A shadow that saw x would have p = a mean + 1 - a: with a = 1 it would be
no surer than those that did not. Both are the paper's for small pictures."""

OWN_SPREAD = 64
"""Shadow networks from which on each candidate has a standard deviation of its own."""


Train = Callable[[Samples, np.random.Generator], Query]
"""Trains a network of the adversary's choice on samples, with all randomness from the generator; at
the top level of a module for workers."""


@dataclass(frozen=True, kw_only=True)
class GenomeTrainer:
    """Trains a bottom and a head from scratch, without privacy."""

    genome: Genome
    spec: NetworkSpec
    optimizer: OptimizerConfig

    def __call__(self, samples: Samples, rng: np.random.Generator) -> Query:
        """A trained network."""
        bottom, head = self.spec.network(self.genome, rng)
        config = replace(self.optimizer, train_head=self.spec.head_moves)
        fit(bottom, head, samples, config=config, rng=rng)
        return query_of(nn.Sequential(bottom, head))


@dataclass(frozen=True, kw_only=True)
class ShadowConfig:
    """How shadow networks are trained and asked."""

    public: Samples  # surely no members, at least 2
    train: Train  # best as the attacked network was trained
    count: int = 16
    """k, at least 2. From `OWN_SPREAD` on each candidate has its own s, below they share one."""
    share: float = 0.5
    """Of the public samples that each shadow draws, without replacement, in (0, 1]; best so that
    they are as many as the attacked network was trained on."""
    views: tuple[View, ...] = ("plain",)  # of each image; its score is the mean z of them
    workers: int = 1
    population: int = 500  # public samples z of RMIA, at most
    seen: float = SEEN  # a of RMIA, in [0, 1]
    keep: Path | None = None
    """A folder for finished shadows' answers: a second call with the same arguments goes on from
    there. A change of `train` needs another folder."""

    def __post_init__(self) -> None:
        """Refuse too few shadows, samples or views."""
        if self.count < 2 or not 0 < self.share <= 1 or self.drawn < 1 or not self.views:
            raise BadInput(
                "expected 2 or more shadows, each on at least 1 public sample, and a view, got "
                f"{self.count} shadows on {self.drawn} of {len(self.public)} samples and "
                f"{len(self.views)} views; give more public samples"
            )

    @property
    def drawn(self) -> int:
        """How many public samples each shadow is trained on."""
        return round(self.share * len(self.public))


def lira(
    query: Query, candidates: Samples, shadows: ShadowConfig, *, rng: np.random.Generator
) -> Float[Tensor, "n"]:
    """The offline likelihood-ratio attack on a network: z of each candidate.

    Args:
        query: the attacked network: images in [-1, 1] to logits.
        candidates: members and others; no shadow trains on them.
        shadows: how many, on which samples, and by which training.
        rng: seeds the shadows.
    """
    phi = shadow_confidences(candidates, shadows, rng=rng)
    return lira_scores(query, candidates, phi, shadows.views)


def lira_scores(
    query: Query,
    candidates: Samples,
    phi: Float[Tensor, "k v n"],
    views: tuple[View, ...] = ("plain",),
) -> Float[Tensor, "n"]:
    """The second half of `lira`, for many attacked networks with the same shadows.

    Args:
        query: the attacked network: images in [-1, 1] to logits.
        candidates: those of `phi`, in their order.
        phi: of k >= 2 shadows, v views and n candidates, from `shadow_confidences`.
        views: how each candidate is shown, v of them, as for `phi`.
    """
    mean, spread = phi.mean(0), phi.std(0)
    if len(phi) < OWN_SPREAD:
        spread = spread.square().mean(1, keepdim=True).sqrt()
    asked = torch.stack([confidence_scores(query, candidates, view) for view in views])
    return ((asked - mean) / spread.clamp(min=1e-12)).mean(0)


def rmia(
    query: Query, candidates: Samples, shadows: ShadowConfig, *, rng: np.random.Generator
) -> Float[Tensor, "n"]:
    """The offline robust attack on a network: the share of public samples that each beats.

    Args:
        query: the attacked network: images in [-1, 1] to logits.
        candidates: members and others; no shadow trains on them.
        shadows: how many, on which samples, and by which training; its public samples are z.
        rng: seeds the shadows.
    """
    return shadow_attacks(query, candidates, shadows, rng=rng)["RMIA"]


def rmia_scores(
    own: Float[Tensor, "v n"],
    phi: Float[Tensor, "k v n"],
    own_public: Float[Tensor, "v z"],
    phi_public: Float[Tensor, "k v z"],
    *,
    seen: float = SEEN,
) -> Float[Tensor, "n"]:
    """The second half of `rmia`.

    Args:
        own: phi of v views of n candidates by the attacked network.
        phi: the same by k shadows, from `shadow_confidences`.
        own_public: phi of z public samples by the attacked network.
        phi_public: the same by k shadows.
        seen: a, in [0, 1].
    """
    unseen = phi.sigmoid().mean(0).clamp(min=1e-300)
    prior = ((1 + seen) * unseen + 1 - seen) / 2
    log_ratio = (F.logsigmoid(own) - prior.log()).mean(0)
    public = (F.logsigmoid(own_public) - phi_public.sigmoid().mean(0).clamp(min=1e-300).log()).mean(
        0
    )
    beaten = (log_ratio[:, None] >= public + np.log(GAMMA)).double().sum(1)
    # Below 1 / 2 of a count, so that ties alone are broken.
    return (beaten + log_ratio.atan() / torch.pi / 2) / len(public)


def shadow_attacks(
    query: Query, candidates: Samples, shadows: ShadowConfig, *, rng: np.random.Generator
) -> dict[str, Float[Tensor, "n"]]:
    """Scores of all attacks that the same shadows serve, by name: `lira` and `rmia`.

    Args:
        query: the attacked network: images in [-1, 1] to logits.
        candidates: members and others; no shadow trains on them.
        shadows: how many, on which samples, and by which training.
        rng: seeds the shadows.
    """
    n, public = (
        len(candidates),
        shadows.public.take(range(len(shadows.public))[: shadows.population]),
    )
    asked = concat([Samples(s.inputs(), s.y, s.classes) for s in (candidates, public)])
    phi = shadow_confidences(asked, shadows, rng=rng)
    own = torch.stack([confidence_scores(query, asked, view) for view in shadows.views])
    return {
        "LiRA": lira_scores(query, candidates, phi[..., :n], shadows.views),
        "RMIA": rmia_scores(own[:, :n], phi[..., :n], own[:, n:], phi[..., n:], seen=shadows.seen),
    }


def shadow_confidences(
    candidates: Samples,
    shadows: ShadowConfig,
    *,
    rng: np.random.Generator,
    on_shadow: Callable[[int], None] | None = None,
) -> Float[Tensor, "k v n"]:
    """The first half of `lira`: phi by every shadow.

    Args:
        candidates: members and others; no shadow trains on them.
        shadows: how many, on which samples, and by which training.
        rng: seeds the shadows.
        on_shadow: called with how many are done.
    """
    seeds = [int(s) for s in rng.integers(2**62, size=shadows.count)]
    paths = _paths(candidates, shadows, seeds)
    results = {i: read_tensors(p)[0]["phi"] for i, p in enumerate(paths) if p and p.exists()}
    missing = [i for i in range(shadows.count) if i not in results]
    context = (candidates, shadows)
    with Pool(shadows.workers, context, preload=("attacks.inference.membership",)) as pool:
        for at, phi in pool.map(_shadow, [seeds[i] for i in missing]):
            results[missing[at]] = phi
            if path := paths[missing[at]]:
                write_tensors(path, {"phi": phi}, {})
            if on_shadow:
                on_shadow(len(results))
    return torch.stack([results[i] for i in range(shadows.count)])


def _paths(candidates: Samples, shadows: ShadowConfig, seeds: list[int]) -> list[Path | None]:
    """Files of kept answers, named by all that decides them but the training."""
    if shadows.keep is None:
        return [None] * len(seeds)
    digest = hashlib.sha256(repr((shadows.drawn, shadows.views)).encode())
    for samples in (candidates, shadows.public):
        digest.update(samples.x.contiguous().numpy().tobytes())
        digest.update(samples.y.contiguous().numpy().tobytes())
    name = digest.hexdigest()[:16]
    return [shadows.keep / f"shadow-{name}-{seed}.safetensors" for seed in seeds]


def _shadow(context: tuple[Samples, ShadowConfig], seed: int) -> Float[Tensor, "v n"]:
    candidates, shadows = context
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(shadows.public), shadows.drawn, replace=False)
    with one_thread():
        query = shadows.train(shadows.public.take(chosen), rng)
        return torch.stack([confidence_scores(query, candidates, v) for v in shadows.views])
