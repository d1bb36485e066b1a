"""The leaves of a forest as features: which leaf a row falls into, in each tree.

The forest is grown on labelled public rows (extremely randomised trees: Geurts, Ernst and Wehenkel
2006), and kept as plain arrays: a row walks them here, not in the library that grew them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.runtime.errors import BadInput

TREES = 50
LEAVES = 16  # at most, of a tree
NODES = 2 * LEAVES - 1  # of a tree
MOST_LEAVES = TREES * NODES  # features of a forest
FEWEST_ROWS = 2  # of a leaf
NAMES = ("column", "threshold", "left", "right")


@dataclass(frozen=True)
class Forest:
    """t trees of at most m nodes each; a leaf is its own child on both sides."""

    column: Int[Tensor, "t m"]  # whose value decides at a node
    threshold: Float[Tensor, "t m"]  # up to it a row goes left, above it right
    left: Int[Tensor, "t m"]
    right: Int[Tensor, "t m"]

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self.column)

    @property
    def width(self) -> int:
        """Number of features: one a node, of which leaves alone are ever reached."""
        return self.column.numel()

    def __call__(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n features"]:
        """Rows of length 1: 1 / sqrt(t) at the leaf of each tree, else 0."""
        features = torch.zeros(len(x), self.width)
        return features.scatter_(1, self.leaves(x), self.trees**-0.5)

    def leaves(self, x: Float[Tensor, "n f"]) -> Int[Tensor, "n t"]:
        """Which features of a row are not 0: that of its leaf in each tree."""
        root = torch.arange(self.trees)[:, None] * self.column.shape[1]
        left, right = ((child + root).flatten() for child in (self.left, self.right))
        column, threshold = self.column.flatten(), self.threshold.flatten()
        node = root.T.repeat(len(x), 1)
        for _ in range(self.column.shape[1] // 2):  # most steps from a root to a leaf
            below = x.gather(1, column.take(node)) <= threshold.take(node)
            node = torch.where(below, left.take(node), right.take(node))
        return node

    def arrays(self) -> dict[str, Tensor]:
        """The trees, by name."""
        return {name: getattr(self, name) for name in NAMES}


def restored(arrays: Mapping[str, Tensor], columns: int) -> Forest | None:
    """The forest of `Forest.arrays` for rows of so many columns, none where there are none.

    BadInput if a node names what is not there: walking would fail for some rows and not for others,
    and so tell of them.
    """
    if "column" not in arrays:
        return None
    shape, whole = (TREES, NODES), torch.int64
    kinds = (whole, torch.float32, whole, whole)
    for name, kind in zip(NAMES, kinds, strict=True):
        array, most = arrays[name], columns if name == "column" else NODES
        valid = array.isfinite() if name == "threshold" else (array >= 0) & (array < most)
        if array.dtype != kind or array.shape != shape or not bool(valid.all()):
            raise BadInput(f"expected a forest whose nodes are all there, got another {name}")
    return Forest(*(arrays[name] for name in NAMES))


def grow(x: Float[Tensor, "n f"], y: Int[Tensor, "n"], rng: np.random.Generator) -> Forest:
    """A forest of labelled rows, n >= 1.

    Args:
        x: rows, n >= 1.
        y: their classes.
        rng: draws rows and columns of each tree.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    grown = ExtraTreesClassifier(
        TREES,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=FEWEST_ROWS,
        class_weight="balanced",
        random_state=int(rng.integers(2**31)),
    ).fit(x.numpy(), y.numpy())
    column, threshold, left, right = nodes_of(grown, NODES)
    return Forest(column, threshold.float(), left, right)


def nodes_of(forest: Any, most: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `NAMES` says, (t, most), of scikit-learn's forest; a leaf is its own child."""
    trees = [estimator.tree_ for estimator in forest.estimators_]
    column, left, right = (np.zeros((len(trees), most), np.int64) for _ in range(3))
    threshold = np.zeros(column.shape)
    for i, tree in enumerate(trees):
        nodes, leaf = np.arange(tree.node_count), tree.children_left < 0
        column[i, nodes] = np.where(leaf, 0, tree.feature)
        threshold[i, nodes] = np.where(leaf, 0, tree.threshold)
        left[i, nodes] = np.where(leaf, nodes, tree.children_left)
        right[i, nodes] = np.where(leaf, nodes, tree.children_right)
    a, b, c, d = map(torch.from_numpy, (column, threshold, left, right))
    return a, b, c, d
