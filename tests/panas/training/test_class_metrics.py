"""AUROC, recall and F1, counted by hand, also where a split lacks classes."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panas.training.metrics import Metrics, measure


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


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 30))
def test_as_counted_by_hand_for_any_split(seed: int, classes: int, n: int):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=g)
    labels = torch.randint(classes, (n,), generator=g)
    found = measure(logits, labels)
    for name, value in by_hand(logits, labels).items():
        assert getattr(found, name) == pytest.approx(value)
    for c in range(classes):
        assert (found.recall[c] is None) == (found.f1[c] is None) == (not (labels == c).any())


def test_a_rare_class_that_is_never_named_shows():
    labels = torch.tensor([0] * 98 + [1] * 2)
    logits = torch.tensor([[1.0, 0.0]] * 98 + [[1.0, 0.5]] * 2)
    found = measure(logits, labels)
    assert found.accuracy == 0.98
    assert found.balanced_accuracy == 0.5
    assert found.auroc == 1.0  # it ranks them above all others all the same
    assert found.recall == (1.0, 0.0)
    assert found.f1[1] == 0.0


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
    for found in (one, none, broken):
        text = json.dumps(found.to_json(), allow_nan=False)
        assert Metrics.from_json(json.loads(text)) == found
