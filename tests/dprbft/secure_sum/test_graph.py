"""What is left to chance where sites draw their holders, against exact fractions and draws."""

from fractions import Fraction
from math import comb, inf, log2

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import hypergeom

from dprbft.secure_sum.graph import (
    CERTAINTY,
    FEWEST_SPARSE,
    SECURITY,
    Graph,
    apart_bits,
    exposed_bits,
    graph_of,
    stuck_bits,
)
from dprbft.secure_sum.session import most_missing


def exact_tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """The oracle: counted subsets."""
    hits = range(least, min(marked, drawn) + 1)
    ways = sum(comb(marked, h) * comb(population - marked, drawn - h) for h in hits)
    return Fraction(ways, comb(population, drawn))


@pytest.mark.parametrize(("n", "t", "k", "opens"), [(100, 10, 22, 12), (1000, 100, 48, 28)])
def test_the_tails_are_the_exact_ones(n: int, t: int, k: int, opens: int):
    exposed = n * exact_tail(n - 1, t, k, opens)
    assert exposed_bits(n, t, k, opens) == pytest.approx(-log2(exposed) if exposed else inf)
    stuck = n * exact_tail(n - 1, t, k, k - opens + 1)
    assert stuck_bits(n, t, k, opens) == pytest.approx(-log2(stuck) if stuck else inf)


@pytest.mark.parametrize(("n", "t", "k", "opens"), [(30, 3, 6, 5), (60, 5, 8, 7)])
def test_the_bound_of_sums_apart_is_its_formula(n: int, t: int, k: int, opens: int):
    total = Fraction(0)
    for s in range(1, (n - t) // 2 + 1):
        quiet = min(s, t)
        both = max(0, 2 * opens - 2 - k)
        chance = exact_tail(n - 1, min(s - 1 + t, n - 1), k, both) ** quiet
        if s > quiet:
            inside = Fraction(comb(min(s - 1 + 2 * t, n - 1), k), comb(n - 1, k))
            chance *= comb(n, t) * inside ** (s - quiet)
        total += comb(n - t, s) * comb(s, quiet) * chance
    assert apart_bits(n, t, k, opens) == pytest.approx(-log2(total), abs=1e-6)


def test_few_sites_all_hold():
    for n in (4, 10, 50, FEWEST_SPARSE - 1):
        for t in (0, 1, most_missing(n)):
            assert graph_of(n, t) == Graph(n - 1, n - t, False)


@pytest.mark.parametrize("n", [100, 150, 300, 1000, 4096])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.2])
def test_a_graph_keeps_its_bounds(n: int, share: float):
    t = int(n * share)
    graph = graph_of(n, t)
    if not graph.sparse:
        assert graph == Graph(n - 1, n - t, False)
        return
    k, opens = graph.degree, graph.opens
    apart, exposed = apart_bits(n, t, k, opens), exposed_bits(n, t, k, opens)
    assert 2.0**-apart + 2.0**-exposed <= 2.0**-SECURITY
    assert stuck_bits(n, t, k, opens) >= CERTAINTY
    assert k <= n // 3


def rest_bits(n: int, t: int, k: int, opens: int) -> float:
    """Minus log2 of a bound of the chance that c sites are cut off from the sum of all others.

    Where a are off the list, q = t - a may not have signed it. Of the c > q others, who have, T - 1
    holders each are among the c and the helpers, none is outside of these and the a, and of those
    who are summed none has drawn one of the c. The q have T - 1 among the c, helpers, and the a.
    """

    def chosen(n: int | np.ndarray, k: int | np.ndarray) -> np.ndarray:
        n, k = np.maximum(n, 0), np.asarray(k)
        some = np.where(k <= n, k, 0)
        return np.where(k <= n, gammaln(n + 1) - gammaln(some + 1) - gammaln(n - some + 1), -1e9)

    def sure(marked: np.ndarray) -> np.ndarray:
        marked, hits = np.minimum(marked, n - 1)[:, None], np.arange(opens - 1, k + 1)
        each = chosen(marked, hits) + chosen(n - 1 - marked, k - hits)
        return np.minimum(logsumexp(each, axis=1) - chosen(n - 1, k), 0)

    total, step = [], max(1, t // 20)
    for off in {*range(0, t, step), t}:
        q = t - off
        c = np.arange(q + 1, (n - t) // 2 + 1)
        signed, those = sure(c - 1 + t), chosen(n - t, c) + chosen(c, q)
        inside = chosen(c - 1 + t + off, k) - chosen(n - 1, k)
        undrawn = chosen(n - 1 - c, k) - chosen(n - 1, k)
        all_of_it = chosen(n, off) + q * sure(c - 1 + t + off)
        all_of_it += (c - q) * np.minimum(signed, inside) + (n - t - off - c).clip(0) * undrawn
        bound = those + np.minimum(all_of_it, (c - q) * signed)
        total.append(logsumexp(bound) + np.log(step))
    return -logsumexp(total) / np.log(2)


@pytest.mark.parametrize("n", [150, 1000, 4096])
@pytest.mark.parametrize("share", [0.01, 0.1])
def test_nobody_is_cut_off_from_the_sum_of_all_others(n: int, share: float):
    t = int(n * share)
    graph = graph_of(n, t)
    assert rest_bits(n, t, graph.degree, graph.opens) > SECURITY + 1


def test_holders_grow_like_the_logarithm():
    degrees = [graph_of(n, n // 10).degree for n in (250, 500, 1000, 2000, 4000)]
    grown = np.diff(degrees)
    assert (grown <= 20).all()
    assert (degrees[-1] / degrees[0]) < 2  # of 16 times the sites


@pytest.mark.parametrize("n", [100, 1000])
def test_where_no_site_may_be_missing_few_hold(n: int):
    graph = graph_of(n, 0)
    assert graph.sparse
    assert graph.degree < graph_of(n, 1).degree
    assert apart_bits(n, 0, graph.degree, graph.opens) >= SECURITY


def test_where_a_third_may_help_everybody_holds():
    assert not graph_of(300, most_missing(300)).sparse


def test_draws_fail_as_often_as_the_tail_says():
    """The planted case: a graph far too small, whose failures are counted."""
    rng, n, t, k, opens = np.random.default_rng(0), 40, 10, 6, 4
    draws = np.array([(rng.permutation(n - 1)[:k] < t).sum() for _ in range(20_000)])
    expected = 2.0 ** -exposed_bits(n, t, k, opens) / n
    assert (draws >= opens).mean() == pytest.approx(expected, rel=0.1)
    assert expected == pytest.approx(hypergeom.sf(opens - 1, n - 1, t, k))
    assert exposed_bits(n, t, k, opens) < SECURITY
