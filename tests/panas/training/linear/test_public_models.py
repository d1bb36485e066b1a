"""What public rows alone have made: once for all sites, and nothing of pictures."""

import pytest
import torch

from panas.data.samples import Samples
from panas.training import baselines
from panas.training.linear.public_models import PublicModels, public_models


def rows(seed: int = 0) -> Samples:
    x = torch.rand(40, 1, 2, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return Samples(x, (x[:, 0, 0, 0] > 0).long(), 2)


def test_they_are_fitted_once_for_the_same_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(baselines, "TREES", 5)
    first, second = rows(), rows(1)
    found = public_models(first, table=True)
    assert found.forest is not None
    assert found.logistic is not None
    assert public_models(first, table=True) is found
    other = public_models(second, table=True)
    assert other is not found
    assert public_models(second, table=True) is other


def test_pictures_have_none():
    assert public_models(rows(), table=False) == PublicModels()
