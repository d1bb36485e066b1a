"""The benchmark of feature maps on a few digits: noise costs, and ten times the noise more."""

import numpy as np
import torch

from benchmarks.features import Draw, head, one
from panas.data.sources import Reading, read
from panas.runtime.seeds import stream


def test_noise_costs_accuracy():
    draw = Draw(public=100, train=500, width=32, labelled=True, seed=0)
    cell = one(read("digits", Reading()), "digits", draw)
    assert (cell.public, cell.train, cell.width) == (100, 500, 32)
    assert 1 > cell.exact > cell.secure > cell.joined > 0.5


def test_the_head_without_noise_is_ridge_regression():
    rng = stream(0, "test")
    z = torch.from_numpy(rng.standard_normal((60, 4)) / 10)
    y = torch.arange(60) % 3
    rows = z.numpy()
    ridge = np.linalg.inv(rows.T @ rows + 0.9 * np.eye(4))
    weights = np.eye(3)[y.numpy()].T @ rows @ ridge
    expected = torch.from_numpy(weights - weights.mean(0))
    assert torch.allclose(head(z, y, 3, 0.0, 0), expected, atol=1e-6)
