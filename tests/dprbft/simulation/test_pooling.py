"""What all samples together would give: a forest beside the linear head, on small data only."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from dprbft.simulation import pooling
from dprbft.simulation.pooling import pooled_accuracies
from dprbft.site.data import SiteData
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.map import FeatureMap, fit_map

SHAPE = (1, 4, 4)


def corners(n: int, seed: int, share: float = 0.5, wrong: float = 0.0) -> Samples:
    """Classes that no line separates: whether two values have one sign.

    Of class 1 is a `share`; `wrong` is how many have the values of the other class.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    x = rng.uniform(-1, 1, (n, 16))
    signs = (2 * y - 1) * np.where(rng.random(n) < wrong, -1, 1)
    x[:, 1] = np.abs(x[:, 1]) * np.sign(x[:, 0]) * signs
    return Samples(torch.tensor(x).float().reshape(n, *SHAPE), torch.tensor(y), 2)


def site(id: int, train: Samples, test: Samples) -> SiteData:
    few = train.take(np.arange(3))
    return SiteData(id=id, search=few, train=train, validation=few, test=test)


@pytest.fixture(scope="module")
def phi() -> FeatureMap:
    facts = Facts(shape=SHAPE, class_names=("0", "1"), dtype="float32")
    return fit_map(facts, corners(60, 9), 16)


def sites(tests: int = 400) -> list[SiteData]:
    return [site(i, corners(300, i), corners(tests, 10 + i)) for i in range(3)]


def test_the_forest_learns_what_no_linear_head_can(phi: FeatureMap):
    result = pooled_accuracies(sites(), corners(30, 9), phi)
    assert len(result.head) == len(result.forest) == 3
    assert min(result.forest) > 0.9 > max(result.head)


def test_the_forest_is_one_of_all_samples_with_each_sites_label_frequencies(phi: FeatureMap):
    """By hand, with probabilities in the place of logs."""
    shares = (0.1, 0.5, 0.8)
    all_sites = [
        site(i, corners(90, i, s, 0.3), corners(300, 10 + i, s, 0.3)) for i, s in enumerate(shares)
    ]
    public = corners(40, 9)
    result = pooled_accuracies(all_sites, public, phi)
    parts = [*(s.train for s in all_sites), public]
    x = np.concatenate([p.inputs().reshape(len(p), -1).numpy() for p in parts])
    y = np.concatenate([p.y.numpy() for p in parts])
    model = HistGradientBoostingClassifier(
        max_iter=50, max_leaf_nodes=15, learning_rate=0.2, early_stopping=False, random_state=0
    ).fit(x, y)
    of_all = (np.bincount(y) + 1) / (len(y) + 2)
    for s, accuracy in zip(all_sites, result.forest, strict=True):
        own = (np.bincount(s.train.y.numpy(), minlength=2) + 1) / (len(s.train) + 2)
        p = model.predict_proba(s.test.inputs().reshape(len(s.test), -1).numpy()) * own / of_all
        assert accuracy == pytest.approx((p.argmax(1) == s.test.y.numpy()).mean(), abs=1e-9)
    plain = [model.score(s.test.inputs().reshape(300, -1).numpy(), s.test.y) for s in all_sites]
    assert result.forest[0] > plain[0]


def test_large_data_have_no_forest(phi: FeatureMap, monkeypatch: pytest.MonkeyPatch):
    """16 values, 2 classes: 16 (n + splitting) is the work of n samples."""
    some, public = sites(20), corners(30, 9)
    work = 16 * (3 * 300 + 30 + pooling.SPLITTING)
    monkeypatch.setattr(pooling, "MOST_WORK", work)
    assert len(pooled_accuracies(some, public, phi).forest) == 3
    monkeypatch.setattr(pooling, "MOST_WORK", work - 1)
    monkeypatch.setattr(pooling, "boosted_forest", None)
    result = pooled_accuracies(some, public, phi)
    assert result.forest == ()
    assert len(result.head) == 3


def test_one_class_or_no_public_sample_is_no_fault(phi: FeatureMap):
    some = sites(20)
    none = some[0].train.take(np.arange(0))
    assert len(pooled_accuracies(some, none, phi).forest) == 3
    alike = [site(i, corners(30, i, 1.0), corners(9, i)) for i in range(2)]
    assert pooled_accuracies(alike, none, phi).forest == ()


def test_a_class_that_no_sample_has_is_never_predicted(phi: FeatureMap):
    wide = [
        replace(s, train=replace(s.train, classes=3), test=replace(s.test, classes=3))
        for s in sites()
    ]
    wider = fit_map(
        Facts(shape=SHAPE, class_names=("0", "1", "2"), dtype="float32"),
        replace(corners(60, 9), classes=3),
        16,
    )
    result = pooled_accuracies(wide, replace(corners(30, 9), classes=3), wider)
    assert min(result.forest) > 0.9
