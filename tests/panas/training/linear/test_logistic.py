"""A residual without noise, against scikit-learn and against what it should choose."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from panas.runtime.seeds import stream, torch_generator
from panas.training.linear.logistic import cross_validated, fit_logistic


def blobs(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch_generator(stream(seed, "blobs"))
    y = torch.randint(3, (n,), generator=g)
    return torch.eye(3)[y].repeat(1, 2) + torch.randn(n, 6, generator=g), y


def test_without_an_offset_it_is_logistic_regression():
    z, y = blobs(200)
    mine = fit_logistic(z, y, torch.zeros(200, 3), 2.0)
    theirs = LogisticRegression(C=0.5, tol=1e-8, max_iter=1000).fit(z.numpy(), y.numpy())
    with torch.no_grad():
        found = mine(z).softmax(1)
    torch.testing.assert_close(
        found, torch.from_numpy(theirs.predict_proba(z.numpy())).float(), atol=2e-3, rtol=1e-2
    )


@pytest.mark.slow
def test_a_good_head_is_kept_and_a_bad_one_is_not():
    z, y = blobs(60)
    good, bad = 6 * torch.eye(3)[y], 6 * torch.eye(3)[(y + 1) % 3]
    chosen = cross_validated(z, y, {"good": good, "bad": bad, "": 0 * good}, stream(0))
    assert chosen.over == "good"
    assert cross_validated(z, y, {"bad": bad, "": 0 * bad}, stream(0)).over == ""


def test_as_few_samples_as_folds_are_enough():
    z, y = blobs(3)
    assert (
        cross_validated(z, y, {"": torch.zeros(3, 3)}, stream(0)).residual.weight.isfinite().all()
    )


def test_without_samples_the_first_offset_stands():
    z, y = blobs(0)
    chosen = cross_validated(z, y, {"shared": torch.zeros(0, 3), "": torch.zeros(0, 3)}, stream(0))
    assert chosen.over == "shared"
    assert not chosen.residual.weight.any()
    assert not chosen.residual.bias.any()
