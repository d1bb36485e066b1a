"""Privacy noise: the right distribution, from nobody's seed."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from panas.privacy.randomness import NoiseSource, ReproducibleNoise, SystemNoise

DRAWS = 40_001
ALMOST_NEVER = 1e-6
"""A right source fails a test at this p-value once in a million runs."""


class HalfNoise(SystemNoise):
    """The planted bug: the variance is halved."""

    def normal(self, *shape: int) -> Tensor:
        return super().normal(*shape) * 0.5**0.5


class OneAngle(SystemNoise):
    """The planted bug: both numbers of a pair are the same one."""

    def normal(self, *shape: int) -> Tensor:
        half = super().normal(shape[0] // 2)
        return torch.cat([half, half])


def normal_p(source: NoiseSource) -> float:
    return float(stats.kstest(source.normal(DRAWS).numpy(), "norm").pvalue)


@pytest.mark.parametrize("source", [SystemNoise(), ReproducibleNoise(np.random.default_rng(1))])
def test_normal_is_standard_normal(source: NoiseSource) -> None:
    assert normal_p(source) > ALMOST_NEVER


def test_the_normality_test_catches_half_the_variance() -> None:
    assert normal_p(HalfNoise()) < ALMOST_NEVER


def halves_correlation(source: NoiseSource) -> float:
    """Correlation of the two halves, which share their radii: of the values and the squares."""
    x = source.normal(DRAWS - 1).reshape(2, -1).numpy()
    return max(abs(np.corrcoef(x)[0, 1]), abs(np.corrcoef(x**2)[0, 1]))


def test_the_two_numbers_of_a_pair_are_independent() -> None:
    assert halves_correlation(SystemNoise()) < 5 / (DRAWS / 2) ** 0.5
    assert halves_correlation(OneAngle()) > 0.1


@pytest.mark.parametrize("source", [SystemNoise(), ReproducibleNoise(np.random.default_rng(1))])
def test_uniform_is_uniform_on_zero_to_one(source: NoiseSource) -> None:
    u = source.uniform(DRAWS)
    assert u.dtype == torch.float64
    assert u.shape == (DRAWS,)
    assert 0 <= float(u.min()) <= float(u.max()) < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > ALMOST_NEVER


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (0, 4), (5, 1, 7)])
def test_shapes_even_odd_and_empty(shape: tuple[int, ...]) -> None:
    for source in (SystemNoise(), ReproducibleNoise(np.random.default_rng(1))):
        draw = source.normal(*shape)
        assert torch.as_tensor(draw).shape == shape
        assert draw.dtype == torch.float64
        assert torch.isfinite(draw).all()


def test_the_largest_word_gives_a_finite_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for byte in (b"\xff", b"\x00"):
        monkeypatch.setattr("os.urandom", lambda n, byte=byte: byte * n)
        u, x = SystemNoise().uniform(4), SystemNoise().normal(4)
        assert float(u.max()) < 1
        assert torch.isfinite(x).all()


def test_system_noise_does_not_repeat_whatever_is_seeded() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        draws.append((SystemNoise().normal(8), SystemNoise().uniform(8)))
    assert not torch.equal(draws[0][0], draws[1][0])
    assert not torch.equal(draws[0][1], draws[1][1])


def test_reproducible_noise_repeats() -> None:
    a, b = (ReproducibleNoise(np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(a.normal(4, 2), b.normal(4, 2))
    assert torch.equal(a.uniform(9), b.uniform(9))
    assert not torch.equal(a.normal(4), a.normal(4))


def test_global_random_state_is_left_alone() -> None:
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1]
    for source in (SystemNoise(), ReproducibleNoise(np.random.default_rng(0))):
        source.normal(10)
        source.uniform(10)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)
