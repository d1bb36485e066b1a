import math
import os
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from panas.privacy import discrete_gaussian as module
from panas.privacy.discrete_gaussian import discrete_gaussian, discrete_laplace
from panas.runtime.errors import BadInput

SIGMAS = [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(7)]


def fit(y: np.ndarray, exponent) -> float:
    """The p-value of numbers against P(y) in proportion to exp(exponent(y)), rare ones pooled."""
    reach = max(60, 12 * int(np.abs(y).max()))
    p = np.array([math.exp(exponent(k)) for k in range(-reach, reach + 1)])
    p /= p.sum()
    seen = np.bincount(y + reach, minlength=2 * reach + 1)
    common = p * len(y) >= 10
    wanted = np.append(p[common], p[~common].sum()) * len(y)
    got = np.append(seen[common], seen[~common].sum())
    if wanted[-1] < 1:  # pooled into the rarest of the others
        wanted, got = np.append(wanted[:-2], wanted[-2:].sum()), np.append(got[:-2], got[-2:].sum())
    return float(chisquare(got, wanted * len(y) / wanted.sum()).pvalue)


def gaussian_fit(y: np.ndarray, sigma: Fraction) -> float:
    return fit(y, lambda k: -(k**2) / (2 * float(sigma) ** 2))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_it_has_the_distribution(sigma: Fraction):
    assert gaussian_fit(discrete_gaussian(sigma, 40_000), sigma) > 1e-6


@pytest.mark.parametrize("scale", [1, 3])
def test_candidates_have_theirs(scale: int):
    y = discrete_laplace(scale, 20_000, os.urandom)
    assert fit(y, lambda k: -abs(k) / scale) > 1e-6


def test_the_fit_finds_planted_bugs():
    """A rounded Gaussian, a candidate taken as it is, and a zero that comes twice as often."""
    rng = np.random.default_rng(0)
    rounded = np.rint(rng.normal(0, 1 / 3, 40_000)).astype(int)
    assert gaussian_fit(rounded, Fraction(1, 3)) < 1e-6
    assert gaussian_fit(discrete_laplace(1, 20_000, os.urandom), Fraction(1)) < 1e-6
    right = discrete_gaussian(Fraction(7), 40_000)
    twice = np.append(right, np.zeros((right == 0).sum(), int))
    assert gaussian_fit(twice, Fraction(7)) < 1e-6


def test_an_acceptance_around_another_number_is_found(monkeypatch: pytest.MonkeyPatch):
    """The planted bug: candidates are kept as if they came from another Laplace."""
    near = module._near
    monkeypatch.setattr(module, "_near", lambda y, s, t, e: near(y, s, 1, e))
    assert gaussian_fit(discrete_gaussian(Fraction(5, 2), 40_000), Fraction(5, 2)) < 1e-6


def test_at_many_steps_it_is_gaussian_and_numbers_are_independent():
    sigma = 1 << 24
    y = discrete_gaussian(sigma, 20_000)
    assert kstest(y / sigma, "norm").pvalue > 1e-6
    assert kstest(y / (1.1 * sigma), "norm").pvalue < 1e-6
    parity = chisquare(np.bincount(y & 7, minlength=8)).pvalue
    assert parity > 1e-6
    assert abs(np.mean(y[1:] / sigma * y[:-1] / sigma)) < 6 / math.sqrt(len(y))


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(9, 4)])
def test_exact_decisions_agree_with_those_of_floats(
    monkeypatch: pytest.MonkeyPatch, gamma: Fraction
):
    """The same bits decide alike, in whole numbers and where float64 is sure."""
    size = 400
    pool = os.urandom(8 * size)
    values = np.full(size, float(gamma))

    def decide() -> np.ndarray:
        rest = [pool]
        return module._happens(values, lambda at: gamma, lambda n: rest.pop() if rest else bytes(n))

    sure = decide()
    monkeypatch.setattr(module, "SLACK", math.inf)
    assert (decide() == sure).all()
    assert (sure.mean() == 1) == (gamma == 0)


@pytest.mark.slow
def test_exact_decisions_alone_have_the_distribution(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SLACK", math.inf)
    assert gaussian_fit(discrete_gaussian(Fraction(5, 2), 1500), Fraction(5, 2)) > 1e-6


def test_more_bits_are_drawn_where_the_first_decide_nothing():
    """U begins as 1 / e does; the bits after decide."""
    bits = module.BITS
    with localcontext() as context:
        context.prec = 60
        u = int(Decimal(-1).exp() * 2**bits)
        rest = int(Decimal(-1).exp() * 2 ** (bits + 64)) - (u << 64)
    asked = []

    def given_bits(extra: int):
        def entropy(n: int) -> bytes:
            asked.append(n)
            return extra.to_bytes(8, "big")

        return entropy

    assert module._decided(u, bits, Fraction(1), given_bits(rest - 1))
    assert not module._decided(u, bits, Fraction(1), given_bits(rest + 1))
    assert asked == [8, 8]


@given(st.fractions(Fraction(1, 10**6), 800), st.sampled_from([53, 117, 501]))
def test_bounds_are_around_the_chance_and_close(gamma: Fraction, bits: int):
    least, most = module._exp_bounds(gamma, bits)
    with localcontext() as context:
        context.prec = 600
        truth = Fraction((-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp())
    assert 0 < most - least < Fraction(1, 2**bits)
    margin = truth / 10**500
    assert least <= truth + margin
    assert truth - margin <= most


@given(st.integers(1, 1000))
def test_numbers_below_a_limit_are_below_it(limit: int):
    result = module._below(limit, 50, os.urandom)
    assert len(result) == 50
    assert result.min() >= 0
    assert result.max() < limit


def test_sizes_and_a_source_that_repeats():
    assert discrete_gaussian(3, 0).shape == (0,)
    assert discrete_gaussian(3, 1).dtype == np.int64
    one, other = (discrete_gaussian(99, 50, np.random.default_rng(1).bytes) for _ in range(2))
    assert (one == other).all()
    assert (discrete_gaussian(99, 50) != discrete_gaussian(99, 50)).any()


@pytest.mark.parametrize("sigma", [0, -1, Fraction(-1, 2), (1 << 40) + 1])
def test_a_sigma_out_of_range_is_refused(sigma: int | Fraction):
    with pytest.raises(BadInput, match="sigma"):
        discrete_gaussian(sigma, 3)
