"""FedGH's five networks: sizes as published, and images of all sizes."""

import pytest
import torch
from torch import nn

from baselines.networks.cnns import Five, Scaled, one_of_five, parameters_of
from panas.privacy.gradients.per_sample import PerSample, cross_entropy

PUBLISHED = Five(kernels=16, hidden=(2000, 2000, 1000, 800, 500), width=500, unit=False)
SMALL = Five(kernels=2, hidden=(6, 5), width=4, unit=True)


@pytest.mark.parametrize(("which", "second"), [(0, 32), (1, 16), (2, 32), (3, 32), (4, 32)])
def test_sizes_are_the_published_ones(which: int, second: int):
    hidden = PUBLISHED.hidden[which]
    convolutions = 16 * (3 * 25 + 1) + second * (16 * 25 + 1)
    layers = hidden * (second * 5 * 5 + 1) + 500 * (hidden + 1)
    bottom = one_of_five((3, 32, 32), which, PUBLISHED)
    assert parameters_of(bottom) == convolutions + layers


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 16, 16), (1, 3, 3)])
def test_images_of_all_sizes_have_representations_of_one_width(shape: tuple[int, int, int]):
    for which in range(5):
        z = one_of_five(shape, which, SMALL)(torch.randn(3, *shape))
        assert z.shape == (3, 4)
        norms = z.norm(dim=1)
        assert bool(((norms - 2).abs() < 1e-5).logical_or(norms == 0).all())


def test_a_representation_of_zeros_stays_one():
    assert torch.equal(Scaled(3.0)(torch.zeros(2, 5)), torch.zeros(2, 5))


def test_gradients_a_sample_go_by_rules_and_are_those_of_each_alone():
    model = nn.Sequential(one_of_five((1, 8, 8), 2, SMALL), nn.Linear(4, 3))
    x, y = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    gradients = PerSample(model, cross_entropy)
    assert gradients.by_rules
    values = gradients(x, y)
    for i in range(4):
        loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        alone = torch.autograd.grad(loss, list(model.parameters()))
        for g, wanted in zip(values, alone, strict=True):
            torch.testing.assert_close(g.values[i], wanted, rtol=1e-4, atol=1e-6)
