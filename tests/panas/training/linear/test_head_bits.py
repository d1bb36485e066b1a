"""Logits of heads and residuals, and gradients of residuals, have their bits whatever is beside."""

import math

import pytest
import torch
from torch import Tensor, nn

from panas.data.samples import Samples
from panas.privacy.gradients.per_sample import PerSample
from panas.training.linear.averaging import average
from panas.training.linear.public_models import fit_public_forest, fit_public_logistic
from panas.training.linear.residual import _loss_over_offset, residual_logits, zero_residual
from panas.training.linear.ridge import logits

SIZES = (1, 2, 3, 4, 15, 16, 17, 63, 255, 256, 257, 259, 516, 600)
D, CLASSES = 40, 5


def rows(n: int, seed: int = 0) -> Tensor:
    return torch.nn.functional.normalize(
        torch.randn(n, D, generator=torch.Generator().manual_seed(seed)), dim=1
    )


def weights(hostile: bool) -> Tensor:
    result = torch.randn(CLASSES, D, generator=torch.Generator().manual_seed(3))
    if hostile:  # what is left of a sum is rounding
        result = 1e8 * result
        result[:, 1::2] = -result[:, 0::2]
    return result


@pytest.mark.parametrize("hostile", [False, True])
def test_logits_have_their_bits_at_every_size_in_every_order_and_beside_any_row(hostile: bool):
    z, w = rows(600), weights(hostile)
    z[:, 1::2] = z[:, 0::2] if hostile else z[:, 1::2]
    residual = nn.Linear(D, CLASSES)
    with torch.no_grad():
        residual.weight.copy_(w)
    for of in (lambda z: logits(w, z), lambda z: residual_logits(residual, z)):
        whole = of(z)
        for n in SIZES:
            assert torch.equal(of(z[:n]), whole[:n])
        assert torch.equal(of(z.flip(0)), whole.flip(0))
        for value in (math.nan, math.inf, 1e30):
            beside = torch.cat([z[:257], torch.full_like(z[:2], value)])
            assert torch.equal(of(beside)[:257], whole[:257])


def test_logits_are_the_product_up_to_the_last_bits_of_32():
    z, w = rows(50), weights(False)
    assert torch.allclose(logits(w, z), 12 * z @ w.T, atol=1e-4)


@pytest.mark.parametrize("hostile", [False, True])
def test_a_residual_s_gradient_has_its_bits_at_every_size_and_place(hostile: bool):
    residual = zero_residual(D, CLASSES)
    with torch.no_grad():
        residual.weight.copy_(weights(hostile))
    z, y = rows(600), torch.arange(600) % CLASSES
    targets = torch.cat([y[:, None].float(), torch.randn(600, CLASSES)], 1)

    def gradients(at: Tensor) -> list[Tensor]:
        return [g.values for g in PerSample(residual, _loss_over_offset)(z[at], targets[at])]

    whole = gradients(torch.arange(600))
    for n in SIZES:
        at = torch.randperm(600, generator=torch.Generator().manual_seed(n))[:n]
        assert all(torch.equal(a, b[at]) for a, b in zip(gradients(at), whole, strict=True))


@pytest.mark.slow
def test_public_models_and_averages_have_their_bits_at_every_size():
    x = torch.rand(300, 1, 3, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    public = Samples(x[:80], (x[:80, 0, 0, 0] > 0).long() + (x[:80, 0, 1, 1] > 0.5), 3)
    forest, logistic = fit_public_forest(public), fit_public_logistic(public)
    said = {"forest": forest.logits, "logistic": logistic.logits}
    whole = {name: of(x) for name, of in said.items()}
    prior = torch.tensor([0.2, 0.5, 0.3]).log()
    result = average({k: v[:80] for k, v in whole.items()}, public.y, prior, worth=10.0)
    p = result.probabilities(whole, prior)
    for n in (1, 2, 3, 7, 16, 33, 255, 299):
        part = {name: of(x[:n]) for name, of in said.items()}
        assert all(torch.equal(part[k], whole[k][:n]) for k in said)
        assert torch.equal(result.probabilities(part, prior), p[:n])
