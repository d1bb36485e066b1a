"""Two models of all sites' samples together, without privacy.

Only a simulator holds all samples. It keeps the models' accuracies and not the models, and nothing
is charged. Both models have the labelled public samples too.

| model | reads | scores of a site |
|---|---|---|
| linear head | exact moments on the common map, classes balanced | z W + b + log f |
| boosted forest | embeddings or values (`panas.training.baselines`) | log p - log g + log f |

f and g are frequencies of classes: of the site's training samples, and of all that the forest was
fitted on. The forest is left out where it would take more than about 2 s of one core: of n samples
of d values in K classes, where d K (n + `SPLITTING`) > `MOST_WORK` (K is 1 for two classes).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from dprbft.site.data import SiteData
from panas.data.samples import Samples
from panas.features.map import FeatureMap
from panas.privacy.release.estimate import Moments
from panas.training.baselines import features
from panas.training.linear.averaging import log_prior
from panas.training.linear.ridge import exact_moments, logits, pooled, shared_head

MOST_WORK = 8_000_000
SPLITTING = 4_000
"""Samples whose binning takes as long as the choice of splits."""
STEPS, LEAVES, RATE = 50, 15, 0.2
"""Of boosting: on digits as accurate as scikit-learn's defaults, in a third of the time."""
LEAST = 1e-12
"""Probability of a class that the forest has not seen."""


@dataclass(frozen=True, kw_only=True)
class PooledAccuracies:
    """Test accuracies of each site, in the order of the sites."""

    head: tuple[float, ...]
    forest: tuple[float, ...]  # none where it was left out


def pooled_accuracies(
    sites: Iterable[SiteData], public: Samples, phi: FeatureMap
) -> PooledAccuracies:
    """Fit both models and measure them at each site.

    Privacy: none. What comes back is computed from all private samples, and is no release.

    Args:
        sites: read one after the other; of each only what follows stays in memory.
        public: labelled samples, any number.
        phi: the federation's common map.
    """
    head, forest = _Head(phi), _Forest()
    for site in sites:
        head.add(site)
        forest.add(site)
    return PooledAccuracies(head=head.accuracies(public), forest=forest.accuracies(public))


class _Head:
    """The linear head, which needs moments alone."""

    def __init__(self, phi: FeatureMap) -> None:
        self.phi = phi
        self.moments: list[Moments] = []
        self.tests: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, site: SiteData) -> None:
        self.moments.append(moments_of(site.train, self.phi))
        prior = log_prior(site.train.histogram().float())
        self.tests.append((self.phi.of(site.test), site.test.y, prior))

    def accuracies(self, public: Samples) -> tuple[float, ...]:
        head = shared_head(
            pooled(self.moments, public.classes, self.phi.width),
            moments_of(public, self.phi) if len(public) else None,
            len(public),
        )
        return tuple(_right(logits(head, z) + prior, y) for z, y, prior in self.tests)


def moments_of(samples: Samples, phi: FeatureMap) -> Moments:
    """Exact moments and class counts of samples."""
    moments = exact_moments(phi.of(samples), samples.y, samples.classes)
    return replace(moments, counts=samples.histogram().double())


class _Forest:
    """The boosted forest, which needs the samples, as long as they are not too many."""

    def __init__(self) -> None:
        self.x: list[Float32[np.ndarray, "n f"]] = []
        self.y: list[np.ndarray] = []
        self.tests: list[tuple[Float32[np.ndarray, "n f"], Tensor, Tensor]] = []
        self.is_left_out = False

    def add(self, site: SiteData) -> None:
        self._learn(site.train)
        if not self.is_left_out:
            prior = log_prior(site.train.histogram().float())
            self.tests.append((features(site.test), site.test.y, prior))

    def _learn(self, samples: Samples) -> None:
        if self.is_left_out or not len(samples):
            return
        self.x.append(features(samples))
        self.y.append(samples.y.numpy())
        trees = samples.classes if samples.classes > 2 else 1
        wide, many = self.x[0].shape[1], sum(map(len, self.y))
        self.is_left_out = wide * trees * (many + SPLITTING) > MOST_WORK
        if self.is_left_out:
            self.x, self.y, self.tests = [], [], []

    def accuracies(self, public: Samples) -> tuple[float, ...]:
        self._learn(public)
        if self.is_left_out or not self.y:
            return ()
        x, y = np.concatenate(self.x), np.concatenate(self.y)
        if len(np.unique(y)) < 2:
            return ()
        model = boosted_forest(x, y)
        seen = torch.from_numpy(np.bincount(y, minlength=public.classes))
        balance = log_prior(seen.float())
        return tuple(
            _right(_log_probabilities(model, test, public.classes) - balance + prior, y_test)
            for test, y_test, prior in self.tests
        )


def boosted_forest(x: Float32[np.ndarray, "n f"], y: Int[np.ndarray, " n"]) -> Any:
    """Scikit-learn's gradient boosting of trees on binned values, of at least two classes."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(
        max_iter=STEPS,
        max_leaf_nodes=LEAVES,
        learning_rate=RATE,
        early_stopping=False,
        random_state=0,
    )
    # Many short steps: where cores are shared, threads would wait for each other most of the time.
    with threadpool_limits(1):
        return model.fit(x, y)


def _log_probabilities(
    model: Any, x: Float32[np.ndarray, "n f"], classes: int
) -> Float[Tensor, "n classes"]:
    result = np.full((len(x), classes), LEAST)
    if len(x):
        result[:, model.classes_] = model.predict_proba(x).clip(LEAST)
    return torch.from_numpy(np.log(result))


def _right(scores: Float[Tensor, "n classes"], y: Tensor) -> float:
    return float((scores.argmax(1) == y).double().mean())
