"""Membership inference: which of some candidates was a network trained on?

The adversary queries the network, images in and logits out, and holds candidates (images with
labels) and public samples. A member has a higher score. Only `attacks.inference.roc` knows members.

| attack | score of (x, y) |
|---|---|
| `loss_scores` | ln p_y, minus the cross-entropy |
| `confidence_scores` | phi = ln(p_y / (1 - p_y)), the logit-scaled confidence |
| `attacks.inference.lira` | how unusual phi is for a network that was not trained on (x, y) |

p is the softmax of the logits.
Source: Yeom et al. 2018 (loss threshold); Carlini et al. 2022 (arXiv 2112.03570).
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.training.evaluate import EVALUATION_BATCH

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
    """What a network answers to a view of all samples, float64; BadInput for what are no logits."""
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
    """
    answers, own = logits(query, candidates, view), candidates.y[:, None]
    others = answers.scatter(1, own, -torch.inf).logsumexp(1)
    return answers.gather(1, own)[:, 0] - others
