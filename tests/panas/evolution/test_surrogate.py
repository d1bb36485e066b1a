"""The predictor: a Gaussian process as in the book, and features that are always numbers."""

import math
import subprocess
import sys
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from custom_blocks import OWN
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, spearmanr

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import score
from panas.evolution.surrogate import (
    LINEAR,
    NOISES,
    SCALES,
    Predictor,
    _kernel,
    features,
    improvement,
)
from panas.runtime.seeds import stream

N, D = 25, 6
Matrix = np.ndarray


def planted(seed: int, n: int = N, d: int = D) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [10.0**k for k in range(d)] + 5
    y = 0.5 + 0.1 * np.tanh(X[:, 0] - 5) + 0.01 * rng.normal(size=n)
    return X, y


def kernel(a: Matrix, b: Matrix, scale: float, linear: float) -> float:
    *a, x = a  # what is left of each, and its capacity
    *b, z = b
    squares = sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) / len(a)
    inner = sum(p * q for p, q in zip(a, b, strict=True)) / len(a)
    return math.exp(-squares / (2 * scale**2)) + linear * inner + 0.3 * x * z


def dense(
    X: Matrix, y: Matrix, Z: Matrix, scale: float, noise: float, linear: float
) -> tuple[Matrix, Matrix, float]:
    """Mean, deviation and log evidence, entry by entry and with an inverse."""
    centre, spread = X.mean(0), X.std(0)
    A, B = (X - centre) / spread, (Z - centre) / spread
    t = (y - y.mean()) / y.std()
    n = len(y)
    K = np.array([[kernel(a, b, scale, linear) for b in A] for a in A]) + noise * np.eye(n)
    inverse = np.linalg.inv(K)
    amplitude = t @ inverse @ t / n  # the one that makes the evidence largest
    cross = np.array([[kernel(b, a, scale, linear) for a in A] for b in B])
    own = np.array([kernel(b, b, scale, linear) for b in B])
    variance = amplitude * (own - np.einsum("ij,jk,ik->i", cross, inverse, cross))
    log_determinant = np.linalg.slogdet(amplitude * K)[1]
    evidence = -0.5 * (n + log_determinant + n * math.log(2 * math.pi))
    mean, deviation = y.mean() + y.std() * cross @ inverse @ t, y.std() * np.sqrt(variance)
    return mean, deviation, evidence


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_it_is_the_dense_formula_at_the_largest_evidence(seed: int) -> None:
    X, y = planted(seed)
    Z = planted(seed + 100, 9)[0]
    fits = {(s, e, v): dense(X, y, Z, s, e, v) for s in SCALES for e in NOISES for v in LINEAR}
    optimizer = max(fits, key=lambda p: fits[p][2])
    predictor = Predictor(X, y)
    assert predictor._hyperparameters == (optimizer[0], optimizer[1], optimizer[2])
    mean, deviation = predictor.predict(Z)
    np.testing.assert_allclose(mean, fits[optimizer][0], rtol=1e-6)
    np.testing.assert_allclose(deviation, fits[optimizer][1], rtol=1e-6)


@pytest.mark.slow
def test_the_evidence_picks_the_planted_scale() -> None:
    picked: dict[float, list[float]] = {0.5: [], 1.2: []}
    for seed, scale in product(range(9), picked):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 4)) * [1, 1, 1, 0]  # of the same capacity
        A = (X - X.mean(0)) / [*X[:, :3].std(0), 1]
        K = np.array([[kernel(a, b, scale, 0.0) for b in A] for a in A])
        y = np.linalg.cholesky(K + 0.01 * np.eye(40)) @ rng.normal(size=40)
        picked[scale].append(Predictor(X, y)._hyperparameters[0])
    assert {scale: np.median(result) for scale, result in picked.items()} == {0.5: 0.5, 1.2: 1.2}


def test_the_improvement_is_that_of_random_draws() -> None:
    X, y = planted(7)
    Z = planted(8, 6)[0]
    predictor = Predictor(X, y)
    mean, deviation = predictor.predict(Z)
    draws = mean + deviation * np.random.default_rng(0).normal(size=(400_000, len(Z)))
    for best in (float(y.max()), float(y.mean())):
        gains = np.maximum(draws - best, 0)
        error = gains.std(0) / math.sqrt(len(gains))
        result = improvement(mean, deviation, best)
        assert np.all(np.abs(result - gains.mean(0)) < 5 * error + 1e-9)
        assert np.any(np.abs(np.maximum(mean - best, 0) - gains.mean(0)) > 5 * error)  # planted
        assert np.all(result >= 0)


SPACES = {
    "plain": SearchSpace(shape=(3, 32, 32)),
    "tiny images": SearchSpace(shape=(1, 2, 3), min_blocks=1, max_blocks=4),
    "one block": SearchSpace(
        shape=(1, 8, 8), min_blocks=1, max_blocks=1, widths=(1,), kernels=(1,)
    ),
    "own blocks": SearchSpace(shape=(1, 12, 12), min_blocks=1, widths=(4, 6), blocks=OWN),
    "no pools": SearchSpace(shape=(3, 9, 9), pools=()),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**32))
def test_features_are_numbers_and_tell_genomes_apart(name: str, seed: int) -> None:
    space = SPACES[name]
    rng = np.random.default_rng(seed)
    a, b = (random_genome(space, rng) for _ in range(2))
    x = features(a, space.shape)
    assert x.shape == features(b, space.shape).shape
    assert np.isfinite(x).all()
    assert np.array_equal(x, features(a, space.shape))


def test_features_by_hand() -> None:
    x = features(Genome.parse("c16k3-max-c32k5-c32k3-avg"), (3, 16, 16))
    field = 1 + 2 + 1 + 4 * 2 + 2 * 2 + 2
    widths = [math.log(16), math.log(32), math.log(80 / 3), 2]
    expected = [3, 2, 0, (2 / 5 + 1) / 2, 0, 1, *widths]
    np.testing.assert_allclose(x[:10], expected)
    np.testing.assert_allclose(x[10:13], [11 / 3, 3, 3])
    assert x[13] > 0
    assert x[14] > x[13]
    np.testing.assert_allclose(x[15], math.log(field))
    np.testing.assert_allclose(x[16], x[13] + 2 + 2 * math.log(field))
    own = features(Genome.parse("c4k3-se2-double", OWN), (1, 12, 12))
    np.testing.assert_allclose(own[:8], [3, 0, 2, 1.0, 0, 0, math.log(4), math.log(8)])


def test_a_batch_is_chosen_as_if_each_choice_had_come_true() -> None:
    X, y = planted(2)
    known, rest = (X[:12], y[:12]), X[12:]
    predictor = Predictor(*known)
    scale, noise, linear = predictor._hyperparameters
    chosen = predictor.batch(rest, float(known[1].max()), 4)
    assert len(set(chosen)) == 4
    # The oracle adds each choice to the data, at its predicted value, with the kernel as it is.
    kept, values = known[0], known[1]
    for i in chosen:
        A = (kept - predictor._mean) / predictor._scale
        Z = (rest - predictor._mean) / predictor._scale
        inverse = np.linalg.inv(_kernel(A, A, scale, linear) + noise * np.eye(len(A)))
        cross = _kernel(Z, A, scale, linear)
        mean = known[1].mean() + cross @ inverse @ (values - known[1].mean())
        variance = np.diag(_kernel(Z, Z, scale, linear) - cross @ inverse @ cross.T)
        deviation = np.sqrt(variance * predictor._variance) * predictor._spread
        z = (mean - known[1].max()) / deviation
        gain = deviation * (z * norm.cdf(z) + norm.pdf(z))
        gain[[j for j in chosen if (rest[j] == kept).all(1).any()]] = -np.inf
        assert gain[i] == pytest.approx(gain.max(), rel=1e-6)
        kept, values = np.vstack([kept, rest[i]]), np.append(values, mean[i])


def test_what_never_varied_or_is_equal_is_no_obstacle_and_far_is_less_known() -> None:
    X, y = planted(0)
    for rows, values in [
        (X, np.full(N, 0.5)),
        (np.repeat(X[:1], 6, 0), np.linspace(0, 1, 6)),
        (np.repeat(X[:1], 6, 0), np.zeros(6)),
        (X[:2], y[:2]),
    ]:
        predictor = Predictor(rows, values)
        mean, deviation = predictor.predict(X)
        gain = improvement(mean, deviation, float(values.max()))
        assert np.isfinite([mean, deviation, gain]).all()
        assert (deviation > 0).all()
        assert (gain >= 0).all()
    # A feature that never varied does not swamp the others.
    X, y = planted(1)
    X[:, -1] = 2.0
    Z = X.copy()
    Z[:, -1] = 3.0
    predictor = Predictor(X, y)
    mean, deviation = predictor.predict(Z)
    assert (np.abs(mean - y.mean()) < 1).all()
    assert (deviation < 10 * y.std()).all()
    X, y = planted(3)
    predictor = Predictor(X, y)
    far = X + 20 * X.std(0)
    assert predictor.predict(X)[1].max() < predictor.predict(far)[1].min()


def rank_correlation(shuffle: Callable[[Matrix], Matrix]) -> float:
    """How well unseen genomes of an easy landscape are ranked, the median of several tries."""
    results = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        genomes = [random_genome(SPACES["plain"], rng) for _ in range(70)]
        X = np.array([features(g, (3, 32, 32)) for g in genomes])
        y = np.array([len(g.blocks) + 3 * str(g).count("k5") for g in genomes]) / 100
        y = y + 0.01 * rng.normal(size=len(y))
        mean, _ = Predictor(X[:30], shuffle(y[:30])).predict(X[30:])
        results.append(spearmanr(mean, y[30:]).statistic)
    return float(np.median(results))


@pytest.mark.slow
def test_it_ranks_what_it_has_not_seen() -> None:
    assert rank_correlation(lambda y: y) > 0.7
    assert rank_correlation(np.random.default_rng(0).permutation) < 0.4  # the planted bug


GENOME = Genome.parse("c16k3-max-c32k3")
BLUEPRINT = NetworkSpec(shape=(1, 8, 8), classes=10, width=16)


@pytest.mark.thorough
def test_the_score_is_a_share_and_the_same_in_every_process_at_any_number_of_threads():
    value = score(GENOME, BLUEPRINT, stream(0, "test"))
    assert 0 < value <= 1
    code = (
        "import torch; torch.set_num_threads(2)\n"
        "from panas.architecture.genome import Genome\n"
        "from panas.architecture.network import NetworkSpec\n"
        "from panas.evolution.fitness import score\n"
        "from panas.runtime.seeds import stream\n"
        "b = NetworkSpec(shape=(1, 8, 8), classes=10, width=16)\n"
        "print(repr(score(Genome.parse('c16k3-max-c32k3'), b, stream(0, 'test'))))\n"
        "assert torch.get_num_threads() == 2"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == value


@pytest.mark.slow
def test_the_score_tells_networks_that_learn_from_networks_that_hardly_do():
    # Measured on digits (`python -m benchmarks.data_free`): about .9 and .8 against .1 and .3.
    good = ("c16k3-c64k5-c16k3-c64k5", "c32k3-c64k3-c64k3-c16k5-c32k3-avg")
    bad = ("c16k3-avg-avg", "c16k5-max-max")
    spec = NetworkSpec(shape=(1, 8, 8), classes=10, width=64)

    def of(genomes: tuple[str, ...]) -> list[float]:
        return [score(Genome.parse(g), spec, stream(0, g)) for g in genomes]

    assert min(of(good)) > max(of(bad))
