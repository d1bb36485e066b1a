"""Baselines of a site: on toy data, on data that lack classes, and how they are remembered."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from panas.data.samples import Samples
from panas.training import baselines as module
from panas.training.baselines import Baselines, baselines, features, fit_baselines


def blobs(n: int, classes: int = 3, seed: int = 0, only: tuple[int, ...] = ()) -> Samples:
    """Pictures of 4 x 4, whose class is the row that is bright."""
    rng = np.random.default_rng(seed)
    y = rng.choice(only or range(classes), n)
    x = rng.integers(0, 120, (n, 1, 4, 4))
    x[np.arange(n), 0, y] += 120
    return Samples(torch.tensor(x, dtype=torch.uint8), torch.tensor(y), classes)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TREES", 10)


def test_models_learn_and_say_what_they_have_read():
    found = baselines(blobs(60), blobs(60, seed=1), blobs(100, seed=2), seed=0)
    assert [(r.model, r.reads, r.private) for r in found.rivals] == [
        ("random forest", "public", True),
        ("logistic regression", "public", True),
        ("random forest", "public and own", False),
        ("logistic regression", "public and own", False),
    ]
    assert all(r.accuracy > 0.9 for r in found.rivals)
    assert all(r.auroc is not None and r.auroc > 0.9 for r in found.rivals)
    assert Baselines.from_json(json.loads(json.dumps(found.to_json()))) == found
    best = found.best(private=True)
    assert best is not None
    assert best.accuracy == max(r.accuracy for r in found.rivals[:2])


def test_the_majority_is_of_own_samples_and_counted_on_test_samples():
    own, test = blobs(9, only=(1,)), blobs(40, seed=2)
    found = baselines(blobs(30), own, test, seed=0)
    assert found.majority == pytest.approx(float((test.y == 1).double().mean()))


def test_without_public_samples_or_with_one_class_only():
    empty = blobs(10).take([])
    found = baselines(empty, blobs(60), blobs(40, seed=2), seed=0)
    assert {r.reads for r in found.rivals} == {"public and own"}
    assert found.best(private=True) is None
    alone = baselines(empty, blobs(10, only=(2,)), blobs(10, only=(2,)), seed=0)
    assert (alone.majority, alone.rivals) == (1.0, ())
    untested = baselines(blobs(30), blobs(30), empty, seed=0)
    assert (untested.majority, untested.rivals) == (None, ())


def test_a_class_that_no_model_has_seen_is_wrong_and_nothing_else():
    found = baselines(blobs(60, only=(0, 1)), blobs(60, only=(0, 1)), blobs(90, seed=3), seed=0)
    assert all(0.4 < r.accuracy < 0.9 for r in found.rivals)


def test_large_pictures_are_averaged_and_many_samples_thinned(monkeypatch: pytest.MonkeyPatch):
    pictures = Samples(torch.full((5, 3, 64, 64), 255, dtype=torch.uint8), torch.arange(5), 5)
    assert features(pictures).shape == (5, 3 * 11 * 11)
    assert features(blobs(5)).shape == (5, 16)
    assert np.allclose(features(pictures), 1.0)
    monkeypatch.setattr(module, "MOST_SAMPLES", 20)
    fitted = fit_baselines([blobs(50), blobs(50, seed=1)], "public and own", 0)
    forest = dict(fitted.models)["random forest"]
    assert forest.estimators_[0].tree_.n_node_samples[0] <= 40
    again = fit_baselines([blobs(50), blobs(50, seed=1)], "public and own", 0)
    assert again.rivals(blobs(40, seed=2)) == fitted.rivals(blobs(40, seed=2))


def test_models_of_public_samples_are_fitted_once_for_all_sites():
    public, own, test = blobs(60), blobs(30, seed=1), blobs(40, seed=2)
    shared = fit_baselines([public], "public", 0)
    assert baselines(public, own, test, 0, shared) == baselines(public, own, test, 0)


def test_own_samples_may_have_groups_that_public_ones_lack():
    own = replace(blobs(50, seed=1), groups=torch.arange(50) // 2)
    assert fit_baselines([blobs(50), own], "public and own", 0).models


def test_one_model_alone_says_what_it_says_beside_the_other():
    test = blobs(20, seed=2)
    both = fit_baselines([blobs(60)], "public", 0)
    forest = fit_baselines([blobs(60)], "public", 0, ("random forest",))
    assert list(forest.probabilities(test)) == ["random forest"]
    found = forest.probabilities(test)["random forest"]
    np.testing.assert_array_equal(found, both.probabilities(test)["random forest"])
    lacking = fit_baselines([blobs(60, only=(0, 2))], "public", 0).probabilities(test)
    assert all((p[:, 1] == 0).all() for p in lacking.values())
