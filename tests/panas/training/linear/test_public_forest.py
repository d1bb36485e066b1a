"""What public rows alone make, a forest and a logistic regression: scikit-learn is the oracle."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

from panas.data.samples import Samples
from panas.runtime.store import read_tensors, write_tensors
from panas.training import baselines
from panas.training.baselines import fit_baselines
from panas.training.linear import residual
from panas.training.linear.averaging import average, log_prior
from panas.training.linear.public_models import (
    SEED,
    TEMPERATURES,
    PublicForest,
    PublicLogistic,
    PublicModels,
    fit_public_forest,
    fit_public_logistic,
    fitted_temperature,
    public_models,
)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(baselines, "TREES", 10)


def table(n: int, seed: int = 0) -> Samples:
    """Rows of four numbers; the class is a corner that no straight line cuts off."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1, 2, 2)).astype(np.float32)
    y = (x[:, 0, 0].prod(1) > 0).astype(np.int64) + (x[:, 0, 1, 0] > 0.5)
    return Samples(torch.from_numpy(x), torch.from_numpy(y), 4)


@cache
def forest(n: int = 200) -> PublicForest:
    return fit_public_forest(table(n))


def bare(samples: Samples) -> Tensor:
    """Log votes that no temperature has sharpened."""
    return forest().logits(samples.inputs()) * forest().temperature


def test_it_says_what_the_library_says():
    test = table(300, seed=1)
    oracle = fit_baselines([table(200)], "public", SEED, ("random forest",)).probabilities(test)
    votes = 10 * torch.from_numpy(oracle["random forest"])
    torch.testing.assert_close(bare(test).exp().double(), (votes + 1 / 4) / 11)


@pytest.mark.slow
def test_all_is_possible_and_sums_to_one():
    p = bare(table(50, seed=1)).exp()
    assert p.min() == pytest.approx(1 / 44)  # a class that no tree has seen
    linear = logistic_of().logits(linear_table(50, seed=1).inputs()).exp()
    assert linear[:, 3].min() >= 0.999 / (CLASSES * 61)
    for result in (p, linear):
        assert result.sum(1).numpy() == pytest.approx(1.0)
    for model in (forest(), logistic_of()):
        assert model.logits(table(0).inputs()).shape == (0, 4)


@pytest.mark.slow
def test_they_come_back_from_a_file(tmp_path: Path):
    x = table(50, seed=1).inputs()
    for model, restored in (
        (forest(), PublicForest.restored),
        (logistic_of(), PublicLogistic.restored),
    ):
        write_tensors(tmp_path / "model.safetensors", model.arrays(), {})
        arrays, _ = read_tensors(tmp_path / "model.safetensors")
        assert torch.equal(restored(arrays).logits(x), model.logits(x))


def test_there_is_none_of_one_class_or_of_nothing():
    one = table(20)
    for samples in (table(0), Samples(one.x, torch.zeros_like(one.y), 4)):
        assert fit_public_forest(samples) is None
        assert fit_public_logistic(samples) is None


def test_an_average_follows_it_where_it_is_better():
    y = table(60, seed=1).y
    logits = {"forest": forest().logits(table(60, seed=1).inputs()), "head": torch.zeros(60, 4)}
    shares = average(logits, y, log_prior(torch.full((4,), 50.0)), worth=200.0).shares()
    assert shares["forest"] > 0.8  # a head that says nothing keeps what it weighed beforehand


def test_even_votes_are_sharpened_and_then_likelier():
    public, test = table(600), table(2000, seed=1)
    result = fit_public_forest(public)
    values = result.logits(test.inputs())
    assert result.temperature < 0.8
    assert F.cross_entropy(values, test.y) < 0.95 * F.cross_entropy(
        values * result.temperature, test.y
    )


def test_the_temperature_is_of_votes_by_trees_that_have_not_seen_a_row():
    public = table(200)
    model = fit_baselines([public], "public", SEED, ("random forest",)).models[0][1]
    again = RandomForestClassifier(10, random_state=model.random_state, oob_score=True)
    x = public.inputs().flatten(1).numpy()
    with pytest.warns(UserWarning, match="too few trees"):
        again.fit(x, public.y.numpy())
    unseen = sum(
        np.isin(np.arange(200), s, invert=True).astype(int) for s in again.estimators_samples_
    )
    some = torch.from_numpy(unseen > 0)
    votes = np.zeros((200, 4))
    votes[:, again.classes_] = np.nan_to_num(again.oob_decision_function_) * unseen[:, None]
    p = torch.from_numpy((votes + 1 / 4) / (unseen[:, None] + 1))[some]
    losses = [
        F.cross_entropy(p.log() / t, public.y[some], reduction="sum") + 0.5 * t.log() ** 2
        for t in TEMPERATURES
    ]
    assert forest().temperature == float(TEMPERATURES[int(torch.stack(losses).argmin())])


def test_few_rows_hardly_move_the_temperature():
    votes = torch.eye(3)[[0, 0, 1]].expand(2, 3, 3)  # two of three trees say class 0
    all_trees, y = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    assert fitted_temperature(votes, y, ~all_trees) == pytest.approx(1.0)
    assert 0.5 < fitted_temperature(votes, y, all_trees) < 1
    # No tree that has not seen the one row of a class can vote for it.
    assert fitted_temperature(votes, torch.tensor([1, 2]), all_trees) == pytest.approx(1.0)


CLASSES = 4  # of which no row has the last


def linear_table(n: int, seed: int = 0) -> Samples:
    """Rows of four numbers, one of which never varies; classes are linear in the others."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1, 2, 2)).astype(np.float32)
    x[:, 0, 1, 1] = 0.5
    noised = x[:, 0, 0, 0] - 0.3 * x[:, 0, 1, 0] + 0.1 * rng.standard_normal(n)
    return Samples(torch.from_numpy(x), torch.from_numpy(np.digitize(noised, (-0.3, 0.3))), CLASSES)


@cache
def logistic_of(n: int = 60) -> PublicLogistic:
    return fit_public_logistic(linear_table(n))


@pytest.mark.slow
def test_it_says_what_the_library_says_at_the_same_penalty(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(residual, "PENALTIES", (1.0,))
    train, test = linear_table(60), linear_table(300, seed=1)
    result = fit_public_logistic(train)
    x, v = (s.inputs().flatten(1).numpy() for s in (train, test))
    scale = StandardScaler().fit(x)
    oracle = LogisticRegression(C=1.0, max_iter=1000, tol=1e-8)
    p = oracle.fit(scale.transform(x), train.y.numpy()).predict_proba(scale.transform(v))
    said = (result.logits(test.inputs()).exp() * 61 - 1 / CLASSES) / 60
    assert said[:, :3].numpy() == pytest.approx(p, abs=2e-3)


@pytest.mark.slow
def test_the_penalty_is_for_rows_that_are_not_seen():
    """Of twelve rows, which a plane parts, little of it is believed."""
    test = linear_table(2000, seed=1)
    assert F.cross_entropy(logistic_of(12).logits(test.inputs()), test.y) < np.log(CLASSES)


@pytest.mark.slow
def test_they_are_fitted_once_for_the_same_rows():
    first, second = table(40), table(40, 1)
    models = public_models(first, table=True)
    assert models.forest is not None
    assert models.logistic is not None
    assert public_models(first, table=True) is models
    other = public_models(second, table=True)
    assert other is not models
    assert public_models(second, table=True) is other
    assert public_models(first, table=False) == PublicModels()  # of pictures
