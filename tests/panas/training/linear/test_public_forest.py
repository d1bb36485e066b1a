"""The forest of public samples as arrays: scikit-learn's is the oracle."""

import numpy as np
import pytest
import torch

from panas.data.samples import Samples
from panas.runtime.store import read_tensors, write_tensors
from panas.training import baselines
from panas.training.baselines import fit_baselines
from panas.training.linear.averaging import average, log_prior
from panas.training.linear.public_forest import SEED, PublicForest, fit_public_forest


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(baselines, "TREES", 10)


def table(n: int, seed: int = 0) -> Samples:
    """Rows of four numbers; the class is a corner that no straight line cuts off."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1, 2, 2)).astype(np.float32)
    y = (x[:, 0, 0].prod(1) > 0).astype(np.int64) + (x[:, 0, 1, 0] > 0.5)
    return Samples(torch.from_numpy(x), torch.from_numpy(y), 4)


def forest(n: int = 200) -> PublicForest:
    found = fit_public_forest(table(n))
    assert found is not None
    return found


def test_it_says_what_the_library_says():
    test = table(300, seed=1)
    oracle = fit_baselines([table(200)], "public", SEED, ("random forest",)).probabilities(test)
    votes = 10 * torch.from_numpy(oracle["random forest"])
    torch.testing.assert_close(forest().logits(test.inputs()).exp().double(), (votes + 1 / 4) / 11)


def test_all_is_possible_and_sums_to_one():
    p = forest().logits(table(50, seed=1).inputs()).exp()
    assert p.sum(1).numpy() == pytest.approx(1.0)
    assert p.min() == pytest.approx(1 / 44)  # a class that no tree has seen
    assert forest().logits(table(0).inputs()).shape == (0, 4)


def test_it_comes_back_from_a_file(tmp_path):
    write_tensors(tmp_path / "forest.safetensors", forest().arrays(), {})
    arrays, _ = read_tensors(tmp_path / "forest.safetensors")
    test = table(50, seed=1)
    assert torch.equal(
        PublicForest.restored(arrays).logits(test.inputs()), forest().logits(test.inputs())
    )


def test_there_is_none_of_one_class_or_of_nothing():
    assert fit_public_forest(table(0)) is None
    one = table(20)
    assert fit_public_forest(Samples(one.x, torch.zeros_like(one.y), 4)) is None


def test_an_average_follows_it_where_it_is_better():
    y = table(60, seed=1).y
    logits = {"forest": forest().logits(table(60, seed=1).inputs()), "head": torch.zeros(60, 4)}
    shares = average(logits, y, log_prior(torch.full((4,), 50.0))).shares()
    assert shares["forest"] > 0.99
