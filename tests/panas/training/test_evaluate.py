"""Accuracy and representations, counted by hand."""

import math

import pytest
import torch
from tiny_networks import data, networks
from torch.nn import functional as F

from panas.training.evaluate import accuracy, head_scores, represent


def test_accuracy_counts_by_hand_whatever_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    bottom, head = networks()
    samples = data(23)
    logits = head.eval()(bottom.eval()(samples.inputs()))
    hits = sum(int(row.argmax()) == int(y) for row, y in zip(logits, samples.y, strict=True))
    assert accuracy(bottom, head, samples) == pytest.approx(hits / 23)
    whole = represent(bottom, samples)
    monkeypatch.setattr("panas.training.evaluate.EVALUATION_BATCH", 5)
    torch.testing.assert_close(represent(bottom, samples), whole)
    monkeypatch.setattr("panas.training.evaluate.CHUNK_BYTES", 1)
    torch.testing.assert_close(represent(bottom, samples), whole)
    right, loss = head_scores(whole, samples, head)
    assert right == pytest.approx(hits / 23)
    assert loss == pytest.approx(float(F.cross_entropy(logits, samples.y).detach()), rel=1e-5)
    assert all(math.isnan(x) for x in head_scores(whole[:0], data(0), head))
    assert represent(bottom, data(0)).shape == (0, 5)
    assert math.isnan(accuracy(bottom, head, data(0)))
