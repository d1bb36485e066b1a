"""People that an attacker names: against a simulated attacker, and what accounts were charged."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.audit.named import ALARMS, gaussian_mu, in_people, named_at_most
from panas.privacy.accounting.closed_form import gaussian_epsilon
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    REPLACE,
    Event,
    Gaussian,
    RandomizedResponse,
    Relation,
    SampledGaussian,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.charge import Charge, Entry
from panas.runtime.seeds import stream


@given(st.floats(0, 30), st.floats(0, 0.1), st.floats(0, 10))
def test_more_epsilon_names_more_and_a_gaussian_charge_never_more(e: float, d: float, mu: float):
    named = named_at_most(e, d)
    assert 50 <= named <= 99
    assert named_at_most(e + 0.5, d) >= named
    assert named_at_most(e, d, mu=mu) <= named


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_the_best_attacker_on_gaussian_noise_reaches_it_and_no_more(mu: float):
    rng, n = stream(0, "named"), 400_000
    took_part = rng.random(n) < 0.5
    scores = rng.normal(size=n) + mu * took_part
    named = scores >= np.quantile(scores[~took_part], 1 - ALARMS)
    share = 100 * float(took_part[named].mean())
    most = named_at_most(gaussian_epsilon(mu, 1e-5), 1e-5, mu=mu)
    assert most <= share + 1.0
    assert share <= most + 1.6  # of a hundred, rounded down, and of the draws


def test_randomised_response_names_as_many_as_its_epsilon_allows():
    # "Took part" is said of all who did and of e^-epsilon of the others; named at random of them.
    for e in (0.5, 1.0, 2.0):
        assert named_at_most(e, 0.0) == math.floor(100 / (1 + math.exp(-e)))


def test_the_sentence_is_said_of_a_claim_alone():
    assert in_people(None, 1e-5) == in_people(math.inf, 1e-5) == ""
    assert "at most 73 really took part" in in_people(1.0, 1e-5)
    assert "at most 66 really took part" in in_people(1.0, 1e-5, mu=0.27)


def account(*events: Event, relation: Relation = ADD_OR_REMOVE) -> Account:
    charges = (
        Charge(event=e, phase="training", mechanism="m", recipient="server", sensitivity=1.0)
        for e in events
    )
    entries = tuple(Entry(id=str(i), time=0.0, charge=charge) for i, charge in enumerate(charges))
    return Account(Budget(8.0, 1e-5), True, entries, relation)


def test_mu_is_that_of_gaussian_charges_alone():
    assert gaussian_mu(account()) == 0.0
    both = account(Gaussian(2.0), SampledGaussian(1.0, 4.0, 8))
    assert gaussian_mu(both) == pytest.approx(math.sqrt(1 / 4 + 8 / 16))
    for other in (SampledGaussian(0.1, 4.0, 8), Unprotected()):
        assert gaussian_mu(account(Gaussian(2.0), other)) is None
    assert gaussian_mu(account(RandomizedResponse(0.5, 3), relation=REPLACE)) is None
