"""Models of a table's labelled public rows, which every site has beside its heads.

Each is one candidate of a site's average (`panas.training.linear.averaging`). It has read public
samples alone, at epsilon 0, so that every site may have it and weigh it by its validation samples.

**Logistic regression.** Many tables are nearly linear in their columns, and say so to a regression
on few rows, where heads on the common map and forests need many.

    logits = log((n softmax(V u + v) + 1 / C) / (n + 1)),   u = (x - mean) / deviation

of n public rows, so that no class is impossible. The penalty on V is chosen by cross-validation.

**Random forest.** On tables it can be better than any head on the common map. It is kept as plain
arrays, which walk like the library that grew them, and is never pickled.

Trees disagree more than the forest errs: as probabilities their shares of votes are too even, and
an average by likelihood would give them too little weight. One temperature sharpens them,

    T = argmin  sum_i -log softmax(log p_i / T)[y_i] + (log T)^2 / 2,

where p_i are the smoothed votes for public row i of the trees that were grown without it. The last
term, a standard normal prior of log T, keeps T near 1 where rows are few.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from panas.data.samples import Samples
from panas.features.exact import logs, product
from panas.features.trees import nodes_of
from panas.runtime.seeds import one_thread, stream
from panas.training.baselines import MOST_SAMPLES, at_most, features, fit_baselines
from panas.training.linear.residual import cross_validated

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

SMOOTHED = 1.0  # votes that all classes share, beside one vote of each tree: no class is impossible
SEED = 0
CHUNK = 2000  # samples at a time
NAMES = ("column", "threshold", "left", "right", "votes")
FEWEST_DEVIATION = 1e-6  # of a column; the regression does not look at one that varies less
TEMPERATURES = torch.logspace(-1, 0.5, 61, base=10.0, dtype=torch.float64)  # that are tried


@dataclass(frozen=True)
class PublicForest:
    """t trees of at most m nodes each; a leaf is its own child on both sides."""

    column: Int[Tensor, "t m"]  # whose value decides at a node
    threshold: Float[Tensor, "t m"]  # up to it a sample goes left, above it right
    left: Int[Tensor, "t m"]
    right: Int[Tensor, "t m"]
    votes: Float[Tensor, "t m classes"]  # share of each class at a node
    temperature: float = 1.0  # above 0; that log votes are divided by

    def logits(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of network inputs in [-1, 1]: logs of the trees' mean vote, smoothed, sharpened.

        Privacy: a row depends on its own sample and on public ones.
        """
        (trees, _, classes), unknown = self.votes.shape, torch.zeros(len(x), dtype=torch.int64)
        seen = torch.from_numpy(features(Samples(x.float().cpu(), unknown, classes))).double()
        votes = [self.of_each_tree(part).sum(1) for part in seen.split(CHUNK)]
        p = smoothed(torch.cat([torch.zeros(0, classes), *votes]), torch.full((len(x),), trees))
        return logs(p) / self.temperature

    def arrays(self) -> dict[str, Tensor]:
        """The trees and their temperature, by name."""
        trees = {name: getattr(self, name) for name in NAMES}
        return trees | {"temperature": torch.tensor(self.temperature, dtype=torch.float64)}

    @staticmethod
    def restored(arrays: Mapping[str, Tensor]) -> "PublicForest":
        """What `arrays` holds; files of before have no temperature."""
        temperature = float(arrays.get("temperature", torch.ones(())))
        column, threshold, left, right, votes = (arrays[name] for name in NAMES)
        return PublicForest(column, threshold, left, right, votes, temperature)

    def of_each_tree(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n t classes"]:
        """The vote of each tree for each row."""
        tree, node = torch.arange(len(self.column))[None], torch.zeros(len(x), len(self.column))
        node, before = node.long(), None
        while before is None or not torch.equal(node, before):
            before = node
            below = x.gather(1, self.column[tree, node]) <= self.threshold[tree, node]
            node = torch.where(below, self.left[tree, node], self.right[tree, node])
        return self.votes[tree, node]


def fit_public_forest(public: Samples) -> PublicForest | None:
    """The forest of `panas.training.baselines`; none of samples of fewer than two classes.

    Privacy: it reads public samples alone, and draws from a fixed seed: it is the same everywhere.
    """
    few = at_most(MOST_SAMPLES, public, stream(SEED, "public forest"))
    fitted = fit_baselines([few], "public", SEED, ("random forest",))
    if not fitted.models:
        return None
    model = fitted.models[0][1]
    forest = _as_arrays(model, public.classes)
    x, samples = torch.from_numpy(features(few)).double(), model.estimators_samples_
    unseen = torch.ones(len(few), len(samples), dtype=torch.bool)
    for tree, rows in enumerate(samples):
        unseen[torch.from_numpy(rows), tree] = False
    temperature = fitted_temperature(forest.of_each_tree(x), few.y, unseen)
    return replace(forest, temperature=temperature)


def fitted_temperature(
    votes: Float[Tensor, "n t classes"], y: Int[Tensor, "n"], unseen: Bool[Tensor, "n t"]
) -> float:
    """T of the formula above.

    Rows that all trees have seen tell nothing, nor does the one row of a class, which no tree
    without it can know; without any other row T is 1.

    Args:
        votes: of t trees on n rows, each a distribution over classes.
        y: classes of the rows.
        unseen: which rows a tree was grown without.
    """
    trees = unseen.sum(1)
    some = (trees > 0) & (torch.bincount(y)[y] > 1)
    log_p = smoothed((votes * unseen[..., None]).sum(1), trees)[some].double().log()
    loss = 0.5 * TEMPERATURES.log() ** 2
    for i, temperature in enumerate(TEMPERATURES):
        loss[i] += F.cross_entropy(log_p / temperature, y[some], reduction="sum")
    return float(TEMPERATURES[loss.argmin()])


def smoothed(
    votes: Float[Tensor, "n classes"], trees: Int[Tensor, "n"]
) -> Float[Tensor, "n classes"]:
    """Shares of the votes of so many trees a row, none of them 0."""
    return (votes + SMOOTHED / votes.shape[1]) / (trees[:, None] + SMOOTHED)


def _as_arrays(model: "RandomForestClassifier", classes: int) -> PublicForest:
    trees = [estimator.tree_ for estimator in model.estimators_]
    nodes = nodes_of(model, max(tree.node_count for tree in trees))
    votes = np.zeros((*nodes[0].shape, classes), np.float32)
    for i, tree in enumerate(trees):
        shares = tree.value[:, 0] / tree.value[:, 0].sum(1, keepdims=True)
        votes[i][np.ix_(np.arange(tree.node_count), model.classes_)] = shares
    return PublicForest(*nodes, torch.from_numpy(votes))


@dataclass(frozen=True)
class PublicLogistic:
    """V and v over the deviations, in float64, and the number of rows that they were fitted on."""

    weight: Float[Tensor, "classes f"]
    bias: Float[Tensor, "classes"]
    rows: int

    def logits(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of network inputs in [-1, 1].

        Privacy: a row depends on its own sample and on public ones.
        """
        seen = values(Samples(x.float().cpu(), torch.zeros(len(x)).long(), len(self.bias)))
        p = (product(seen, self.weight.T) + self.bias).softmax(1)
        return logs((self.rows * p + 1 / len(self.bias)) / (self.rows + 1)).float()

    def arrays(self) -> dict[str, Tensor]:
        """All of it, by name."""
        return {"weight": self.weight, "bias": self.bias, "rows": torch.tensor(self.rows)}

    @staticmethod
    def restored(arrays: Mapping[str, Tensor]) -> "PublicLogistic":
        """What `arrays` holds."""
        return PublicLogistic(arrays["weight"], arrays["bias"], int(arrays["rows"]))


def fit_public_logistic(public: Samples) -> PublicLogistic | None:
    """The regression of at most `MOST_SAMPLES` rows; none of rows of fewer than two classes.

    Privacy: it reads public samples alone, and draws from a fixed seed.
    """
    few = at_most(MOST_SAMPLES, public, stream(SEED, "public logistic"))
    if len(few.y.unique()) < 2:
        return None
    with one_thread():
        x = values(few)
        mean, deviation = x.mean(0), x.std(0, correction=0)
        scale = torch.where(deviation > FEWEST_DEVIATION, 1 / deviation, 0.0)
        u, nothing = ((x - mean) * scale).float(), torch.zeros(len(x), few.classes)
        rng = stream(SEED, "public logistic", "folds")
        fitted = cross_validated(u, few.y, {"nothing": nothing}, rng).residual
        assert fitted.bias is not None
        weight = fitted.weight.double() * scale
        return PublicLogistic(weight, fitted.bias.double() - weight @ mean, len(few))


def values(samples: Samples) -> Float[Tensor, "n f"]:
    """All columns of rows, in float64."""
    return samples.inputs().flatten(1).double()


@dataclass(frozen=True)
class PublicModels:
    """What public rows alone have made; nothing where they cannot."""

    forest: PublicForest | None = None
    logistic: PublicLogistic | None = None


_FITTED: list[tuple[Samples, PublicModels]] = []


def public_models(public: Samples, *, table: bool) -> PublicModels:
    """The models of public samples; the last ones are kept for the next site.

    There are none of pictures: they are worse than the heads, and mislead an average that few
    samples weigh.
    """
    if not table:
        return PublicModels()
    for of, known in _FITTED[:]:  # a copy: another thread may serve another run
        if of is public:
            return known
    models = PublicModels(fit_public_forest(public), fit_public_logistic(public))
    _FITTED[:] = [(public, models)]
    return models
