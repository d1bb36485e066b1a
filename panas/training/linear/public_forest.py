"""A random forest of labelled public samples, as one candidate of a site's average.

On tables it can be better than any head on the common map. It has read public samples alone, at
epsilon 0, so that every site may have it beside its heads and weigh it by its validation samples
(`panas.training.linear.averaging`): then a site is not below it but for noise. It is kept as plain
arrays, which walk like the library that grew them, and is never pickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.data.samples import Samples
from panas.training.baselines import features, fit_baselines

SMOOTHED = 1.0  # votes that all classes share, beside one vote of each tree: no class is impossible
SEED = 0
CHUNK = 2000  # samples at a time
NAMES = ("column", "threshold", "left", "right", "votes")


@dataclass(frozen=True)
class PublicForest:
    """t trees of at most m nodes each; a leaf is its own child on both sides."""

    column: Int[Tensor, "t m"]  # whose value decides at a node
    threshold: Float[Tensor, "t m"]  # up to it a sample goes left, above it right
    left: Int[Tensor, "t m"]
    right: Int[Tensor, "t m"]
    votes: Float[Tensor, "t m classes"]  # share of each class at a node

    def logits(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Log probabilities of network inputs in [-1, 1], of the trees' mean vote, smoothed.

        Privacy: a row depends on its own sample and on public ones.
        """
        (trees, _, classes), unknown = self.votes.shape, torch.zeros(len(x), dtype=torch.int64)
        seen = torch.from_numpy(features(Samples(x.float().cpu(), unknown, classes))).double()
        votes = torch.cat([torch.zeros(0, classes), *map(self._votes, seen.split(CHUNK))])
        return torch.log((votes + SMOOTHED / classes) / (trees + SMOOTHED))

    def arrays(self) -> dict[str, Tensor]:
        """The trees, by name."""
        return {name: getattr(self, name) for name in NAMES}

    @staticmethod
    def restored(arrays: Mapping[str, Tensor]) -> "PublicForest":
        """What `arrays` holds."""
        return PublicForest(*(arrays[name] for name in NAMES))

    def _votes(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n classes"]:
        tree, node = torch.arange(len(self.column))[None], torch.zeros(len(x), len(self.column))
        node, before = node.long(), None
        while before is None or not torch.equal(node, before):
            before = node
            below = x.gather(1, self.column[tree, node]) <= self.threshold[tree, node]
            node = torch.where(below, self.left[tree, node], self.right[tree, node])
        return self.votes[tree, node].sum(1)


def fit_public_forest(public: Samples) -> PublicForest | None:
    """The forest of `panas.training.baselines`; none of samples of fewer than two classes.

    Privacy: it reads public samples alone, and draws from a fixed seed: it is the same everywhere.
    """
    fitted = fit_baselines([public], "public", SEED, ("random forest",))
    if not fitted.models:
        return None
    model = fitted.models[0][1]
    trees = [estimator.tree_ for estimator in model.estimators_]
    shape = len(trees), max(tree.node_count for tree in trees)
    column, left, right = (np.zeros(shape, np.int64) for _ in range(3))
    threshold, votes = np.zeros(shape), np.zeros((*shape, public.classes), np.float32)
    for i, tree in enumerate(trees):
        nodes, leaf = np.arange(tree.node_count), tree.children_left < 0
        column[i, nodes] = np.where(leaf, 0, tree.feature)
        threshold[i, nodes] = np.where(leaf, 0, tree.threshold)
        left[i, nodes] = np.where(leaf, nodes, tree.children_left)
        right[i, nodes] = np.where(leaf, nodes, tree.children_right)
        shares = tree.value[:, 0] / tree.value[:, 0].sum(1, keepdims=True)
        votes[i][np.ix_(nodes, model.classes_)] = shares
    return PublicForest(*(torch.from_numpy(a) for a in (column, threshold, left, right, votes)))
