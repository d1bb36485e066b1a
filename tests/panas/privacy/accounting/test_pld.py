"""Losses and profiles that are computed as arrays are those of the library's loops."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as losses

from panas.privacy.accounting.events import ADD_OR_REMOVE, Gaussian, SampledGaussian, merge
from panas.privacy.accounting.pld import loss_distribution, profile


@pytest.mark.parametrize("sigma", [0.3, 0.8, 2.5, 30.0])
@pytest.mark.parametrize("q", [1e-3, 0.1, 0.95, 1.0])
def test_a_step_is_that_of_the_library(sigma: float, q: float) -> None:
    interval = 2e-2
    merged = merge([SampledGaussian(q, sigma, 1) if q < 1 else Gaussian(sigma)], ADD_OR_REMOVE, 1)
    assert merged is not None
    ours = loss_distribution(merged, interval)
    theirs = losses.from_gaussian_mechanism(
        sigma, value_discretization_interval=interval, sampling_prob=q
    )
    for mine, other in (
        (ours._pmf_remove, theirs._pmf_remove),
        (ours._pmf_add, theirs._pmf_add),
    ):
        mine, other = mine.to_dense_pmf(), other.to_dense_pmf()
        # Composed with nothing, the library cuts 1e-15 of the tails off.
        shift = mine._lower_loss - other._lower_loss
        assert shift >= 0
        same = other._probs[shift : shift + len(mine._probs)]
        np.testing.assert_allclose(mine._probs, same, atol=1e-11)
        assert mine._infinity_mass == pytest.approx(other._infinity_mass, abs=1e-12)


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("sigma", [0.6, 1.5, 20.0])
def test_a_profile_is_that_of_the_library(sigma: float, steps: int) -> None:
    loss = losses.from_gaussian_mechanism(
        sigma, value_discretization_interval=1e-2, sampling_prob=0.1
    ).self_compose(steps)
    e = np.linspace(0, 9, 200)
    np.testing.assert_allclose(profile(loss, e), loss.get_delta_for_epsilon(e), atol=1e-13)
