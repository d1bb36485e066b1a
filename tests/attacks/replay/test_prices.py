"""A lower bound of epsilon: near the truth, below every accountant, above one that is wrong."""

import pytest

from attacks.replay import prices
from attacks.replay.prices import findings_of_prices, least_epsilon
from panas.privacy.accounting.closed_form import gaussian_epsilon
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Gaussian, SampledGaussian


@pytest.mark.parametrize("m", [0.7, 1.3, 4.0])
def test_of_a_gaussian_it_is_nearly_the_closed_form(m: float):
    exact = gaussian_epsilon(1 / m, 1e-5)
    assert exact * 0.999 < least_epsilon([Gaussian(m)], 1e-5, ADD_OR_REMOVE) <= exact


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
def test_of_dp_sgd_it_is_nearly_what_the_accountant_says(relation):
    events = [SampledGaussian(0.1, 1.0, 30), Gaussian(3.0)]
    said = epsilon(events, 1e-5, relation=relation)
    assert said * 0.995 < least_epsilon(events, 1e-5, relation) <= said


def test_more_steps_cost_more():
    few, many = (
        least_epsilon([SampledGaussian(0.1, 1.0, steps)], 1e-5, ADD_OR_REMOVE) for steps in (1, 50)
    )
    assert 0 < few < many


@pytest.mark.slow
def test_every_accountant_keeps_above_it():
    assert [f for f in findings_of_prices() if f.p < 1] == []


@pytest.mark.slow
def test_an_accountant_that_says_less_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        prices.accountant, "epsilon", lambda *args, **terms: 0.99 * epsilon(*args, **terms)
    )
    assert len([f for f in findings_of_prices() if f.p < 1]) >= 5
