"""Models at home: a penalty by validation samples, and sites of one class."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks.at_home import HOME, at_home, tuned_regression, within
from dprbft.site.data import SiteData
from panas.data.samples import Samples
from panas.training.baselines import features


def vectors(n: int, seed: int, told: float, only: int | None = None) -> Samples:
    """Vectors of 60 numbers, of which the first `told` times the class is added to."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n) if only is None else np.full(n, only)
    v = rng.normal(size=(n, 60)).astype(np.float32)
    v[:, 0] += told * y
    x = torch.zeros(n, 1, 8, 8, dtype=torch.uint8)
    return Samples(x, torch.from_numpy(y), 2, embeddings=torch.from_numpy(v))


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
def test_validation_samples_choose_the_penalty():
    penalties = {}
    for told in (0.0, 8.0):
        model = tuned_regression([vectors(60, 0, told)], vectors(400, 1, told))
        penalties[told] = model[-1].C
        right = model.predict(features(vectors(400, 2, told))) == vectors(400, 2, told).y.numpy()
        assert right.mean() > (0.95 if told else 0.4)
    assert penalties[0.0] < penalties[8.0]


def test_models_at_home_read_embeddings_and_one_class_is_the_majority():
    def site(only: int | None) -> SiteData:
        parts = (vectors(n, seed, 6.0, only) for n, seed in ((0, 0), (80, 1), (20, 2)))
        search, train, validation = parts
        return SiteData(0, search, train, validation, vectors(100, 3, 6.0))

    none = vectors(0, 0, 6.0)
    assert min(at_home(site(None), none).values()) > 0.9
    share = float((vectors(100, 3, 6.0).y == 1).double().mean())
    assert at_home(site(1), none) == dict.fromkeys(HOME, share)


def test_seeds_within_the_distance_are_counted():
    runs: list[Mapping[str, float]] = [
        {"at home": 0.9, "joined": joined} for joined in (0.95, 0.871, 0.869)
    ]
    assert within(runs) == 2
