"""Baselines of a site, AUROC, recall and F1, and which step that costs privacy had no gain."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.training import baselines as module
from panas.training.baselines import Baselines, baselines, features, fit_baselines
from panas.training.metrics import Metrics, measure


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
    result = baselines(blobs(60), blobs(60, seed=1), blobs(100, seed=2), seed=0)
    assert [(r.model, r.reads, r.private) for r in result.rivals] == [
        ("random forest", "public", True),
        ("logistic regression", "public", True),
        ("random forest", "public and own", False),
        ("logistic regression", "public and own", False),
    ]
    assert all(r.accuracy > 0.9 for r in result.rivals)
    assert all(r.auroc is not None and r.auroc > 0.9 for r in result.rivals)
    assert Baselines.from_json(json.loads(json.dumps(result.to_json()))) == result
    best = result.best(private=True)
    assert best.accuracy == max(r.accuracy for r in result.rivals[:2])


def test_the_majority_is_of_own_samples_and_unseen_classes_are_wrong():
    own, test = blobs(9, only=(1,)), blobs(40, seed=2)
    result = baselines(blobs(30), own, test, seed=0)
    assert result.majority == pytest.approx(float((test.y == 1).double().mean()))
    result = baselines(blobs(60, only=(0, 1)), blobs(60, only=(0, 1)), blobs(90, seed=3), seed=0)
    assert all(0.4 < r.accuracy < 0.9 for r in result.rivals)


def test_without_public_samples_or_with_one_class_only():
    empty = blobs(10).take([])
    result = baselines(empty, blobs(60), blobs(40, seed=2), seed=0)
    assert {r.reads for r in result.rivals} == {"public and own"}
    assert result.best(private=True) is None
    alone = baselines(empty, blobs(10, only=(2,)), blobs(10, only=(2,)), seed=0)
    assert (alone.majority, alone.rivals) == (1.0, ())
    untested = baselines(blobs(30), blobs(30), empty, seed=0)
    assert (untested.majority, untested.rivals) == (None, ())


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


def told_by_vectors(n: int, seed: int) -> Samples:
    """Pictures that say nothing of the class, and vectors whose last numbers do."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(0, 2, n))
    x = torch.from_numpy(rng.integers(0, 256, (n, 1, 30, 30)).astype(np.uint8))
    v = torch.from_numpy(rng.normal(0, 0.3, (n, 500)).astype(np.float32))
    v[:, -60:] += y[:, None]
    return Samples(x, y, 2, embeddings=v)


def test_models_look_at_embeddings_whole_where_samples_have_them():
    public, own, test = (told_by_vectors(n, seed) for n, seed in ((30, 0), (60, 1), (200, 2)))
    result = baselines(public, own, test, seed=0)
    assert {r.sees for r in result.rivals} == {"embeddings"}
    assert result.see_embeddings
    assert all(r.accuracy > 0.8 for r in result.rivals)
    assert np.array_equal(features(test), test.embeddings.numpy())
    assert Baselines.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_models_of_values_look_at_values_of_samples_that_have_embeddings_besides():
    public, test = told_by_vectors(60, 0), told_by_vectors(200, 1)
    plain = replace(public, embeddings=None)
    fitted = fit_baselines([plain, public], "public and own", 0)
    assert fitted.sees == "values"
    assert {(r.sees, r.accuracy < 0.65) for r in fitted.rivals(test)} == {("values", True)}
    with pytest.raises(BadInput, match="expected samples with embeddings"):
        fit_baselines([public], "public", 0).probabilities(plain)


def test_rivals_of_before_saw_values():
    record = baselines(blobs(30), blobs(30), blobs(30), 0).to_json()
    for rival in record["rivals"]:
        del rival["sees"]
    assert not Baselines.from_json(record).see_embeddings


def test_long_vectors_are_looked_at_whole():
    vectors = told_by_vectors(20, 0).embeddings
    samples = Samples(vectors[:, None, None], torch.zeros(20).long(), 2)
    assert np.array_equal(features(samples), vectors.numpy())


def test_models_of_public_samples_are_fitted_once_and_own_ones_may_have_groups():
    public, own, test = blobs(60), blobs(30, seed=1), blobs(40, seed=2)
    shared = fit_baselines([public], "public", 0)
    assert baselines(public, own, test, 0, shared) == baselines(public, own, test, 0)
    grouped = replace(blobs(50, seed=1), groups=torch.arange(50) // 2)
    assert fit_baselines([blobs(50), grouped], "public and own", 0).models


def test_one_model_alone_says_what_it_says_beside_the_other():
    test = blobs(20, seed=2)
    both = fit_baselines([blobs(60)], "public", 0)
    forest = fit_baselines([blobs(60)], "public", 0, ("random forest",))
    assert list(forest.probabilities(test)) == ["random forest"]
    result = forest.probabilities(test)["random forest"]
    np.testing.assert_array_equal(result, both.probabilities(test)["random forest"])
    lacking = fit_baselines([blobs(60, only=(0, 2))], "public", 0).probabilities(test)
    assert all((p[:, 1] == 0).all() for p in lacking.values())


def by_hand(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Recall, F1 and AUROC by counting, over the classes that are there."""
    answers, p = logits.argmax(1), logits.double().softmax(1)
    recalls, f1s, areas = [], [], []
    for c in labels.unique():
        hit = ((answers == c) & (labels == c)).sum().item()
        recalls.append(hit / (labels == c).sum().item())
        f1s.append(2 * hit / ((answers == c).sum() + (labels == c).sum()).item())
        own, others = p[labels == c, c], p[labels != c, c]
        if len(others):
            wins = (own[:, None] > others).double() + (own[:, None] == others).double() / 2
            areas.append(wins.mean().item())
    return {
        "balanced_accuracy": float(np.mean(recalls)),
        "macro_f1": float(np.mean(f1s)),
        **({"auroc": float(np.mean(areas))} if areas else {}),
    }


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 30))
def test_as_counted_by_hand_for_any_split(seed: int, classes: int, n: int):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=g)
    labels = torch.randint(classes, (n,), generator=g)
    metrics = measure(logits, labels)
    for name, value in by_hand(logits, labels).items():
        assert getattr(metrics, name) == pytest.approx(value)
    for c in range(classes):
        assert (metrics.recall[c] is None) == (metrics.f1[c] is None) == (not (labels == c).any())


def test_a_rare_class_that_is_never_named_shows():
    labels = torch.tensor([0] * 98 + [1] * 2)
    logits = torch.tensor([[1.0, 0.0]] * 98 + [[1.0, 0.5]] * 2)
    metrics = measure(logits, labels)
    assert metrics.accuracy == 0.98
    assert metrics.balanced_accuracy == 0.5
    assert metrics.auroc == 1.0  # it ranks them above all others all the same
    assert metrics.recall == (1.0, 0.0)
    assert metrics.f1[1] == 0.0


def test_very_sure_networks_are_still_ranked():
    """In 32 bits all of these have the probability 1."""
    logits = torch.tensor([[30.0, 0.0], [29.0, 0.0], [25.0, 0.0], [24.0, 0.0]])
    assert measure(logits, torch.tensor([0, 0, 1, 1])).auroc == 1.0


def test_one_class_no_samples_and_no_number():
    one = measure(torch.randn(4, 3), torch.ones(4, dtype=torch.int64))
    assert one.auroc is None
    assert one.recall[0] is None
    none = measure(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert (none.samples, none.accuracy, none.auroc) == (0, None, None)
    assert none.recall == (None, None, None)
    broken = measure(torch.full((4, 2), float("nan")), torch.tensor([0, 1, 0, 1]))
    assert broken.auroc == 0.5
    for result in (one, none, broken):
        text = json.dumps(result.to_json(), allow_nan=False)
        assert Metrics.from_json(json.loads(text)) == result
