"""The logistic regression of public rows: scikit-learn's is the oracle."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from panas.data.samples import Samples
from panas.runtime.store import read_tensors, write_tensors
from panas.training.linear import logistic
from panas.training.linear.public_logistic import PublicLogistic, fit_public_logistic

CLASSES = 4  # of which no row has the last


def table(n: int, seed: int = 0) -> Samples:
    """Rows of four numbers, one of which never varies; classes are linear in the others."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1, 2, 2)).astype(np.float32)
    x[:, 0, 1, 1] = 0.5
    noised = x[:, 0, 0, 0] - 0.3 * x[:, 0, 1, 0] + 0.1 * rng.standard_normal(n)
    return Samples(torch.from_numpy(x), torch.from_numpy(np.digitize(noised, (-0.3, 0.3))), CLASSES)


@cache
def fitted(n: int = 60) -> PublicLogistic:
    found = fit_public_logistic(table(n))
    assert found is not None
    return found


def test_it_says_what_the_library_says_at_the_same_penalty(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logistic, "PENALTIES", (1.0,))
    train, test = table(60), table(300, seed=1)
    found = fit_public_logistic(train)
    assert found is not None
    x, v = (s.inputs().flatten(1).numpy() for s in (train, test))
    scale = StandardScaler().fit(x)
    oracle = LogisticRegression(C=1.0, max_iter=1000, tol=1e-8)
    p = oracle.fit(scale.transform(x), train.y.numpy()).predict_proba(scale.transform(v))
    said = (found.logits(test.inputs()).exp() * 61 - 1 / CLASSES) / 60
    assert said[:, :3].numpy() == pytest.approx(p, abs=2e-3)


def test_all_is_possible_and_sums_to_one():
    p = fitted().logits(table(50, seed=1).inputs()).exp()
    assert p.sum(1).numpy() == pytest.approx(1.0)
    assert p[:, 3].min() >= 0.999 / (CLASSES * 61)
    assert fitted().logits(table(0).inputs()).shape == (0, CLASSES)


def test_the_penalty_is_for_rows_that_are_not_seen():
    """Of twelve rows, which a plane parts, little of it is believed."""
    test = table(2000, seed=1)
    assert F.cross_entropy(fitted(12).logits(test.inputs()), test.y) < np.log(CLASSES)


def test_it_comes_back_from_a_file(tmp_path: Path):
    write_tensors(tmp_path / "logistic.safetensors", fitted().arrays(), {})
    arrays, _ = read_tensors(tmp_path / "logistic.safetensors")
    x = table(50, seed=1).inputs()
    assert torch.equal(PublicLogistic.restored(arrays).logits(x), fitted().logits(x))


def test_there_is_none_of_one_class_or_of_nothing():
    assert fit_public_logistic(table(0)) is None
    one = table(20)
    assert fit_public_logistic(Samples(one.x, torch.zeros_like(one.y), CLASSES)) is None
