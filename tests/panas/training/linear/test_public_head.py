"""The head of public samples: its penalty is theirs."""

import numpy as np
import torch
from torch.nn import functional as F

from panas.privacy.release.estimate import Rows
from panas.training.linear.public_head import FOR_FEW, PENALTIES, best_penalty, fit_public_head
from panas.training.linear.ridge import exact_moments, logits, ridge


def rows(n: int, spread: float, seed: int = 0) -> Rows:
    """Unit rows around one direction a class, the wider the harder."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(5, size=n))
    noise = torch.from_numpy(rng.standard_normal((n, 32))).float()
    return Rows(F.normalize(torch.eye(32)[y] + spread * noise, dim=1), y)


def test_hard_samples_ask_for_more_ridge_than_easy_ones():
    assert best_penalty(rows(200, 0.8), 5) > best_penalty(rows(200, 0.1), 5)


def test_unseen_samples_are_likelier_than_with_the_least_penalty():
    public, test = rows(200, 0.8), rows(4000, 0.8, seed=1)
    least = ridge(exact_moments(public.z, public.y, 5), PENALTIES[0])
    losses = [
        float(F.cross_entropy(logits(head, test.z), test.y))
        for head in (fit_public_head(public, 5), least)
    ]
    assert losses[0] < losses[1] - 0.02


def test_few_samples_decide_nothing():
    public = rows(10, 0.8)
    assert best_penalty(public, 5) == FOR_FEW
    expected = ridge(exact_moments(public.z, public.y, 5), FOR_FEW)
    assert torch.equal(fit_public_head(public, 5), expected)
