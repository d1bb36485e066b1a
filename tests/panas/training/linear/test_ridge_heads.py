"""Heads from moments: scikit-learn's ridge is the oracle, limits of noise say the rest."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from panas.privacy.release.estimate import Moments
from panas.runtime.errors import BadInput
from panas.training.linear.ridge import (
    balance,
    exact_moments,
    logits,
    noise_penalty,
    noise_weight,
    pooled,
    ridge,
    shared_head,
    trust,
)

CLASSES, D = 3, 6


def rows(n: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=g)
    z = torch.randn(n, D, generator=g) + 2 * torch.eye(CLASSES, D)[y]
    return z / z.norm(dim=1, keepdim=True), y


def noised(m: Moments, s: float, seed: int = 1) -> Moments:
    g = torch.Generator().manual_seed(seed)
    upper = torch.randn(D, D, generator=g, dtype=torch.float64).triu()
    A = m.A + s * (upper + upper.T) / 2
    B = m.B + s * torch.randn(CLASSES, D, generator=g, dtype=torch.float64)
    return Moments(A, B, s**2)


@pytest.mark.parametrize("penalty", [0.3, 5.0])
def test_a_head_of_exact_moments_is_scikit_learns_ridge(penalty: float):
    z, y = rows()
    oracle = Ridge(alpha=penalty, fit_intercept=False)
    oracle.fit(z.double().numpy(), np.eye(CLASSES)[y.numpy()] - 1 / CLASSES)
    result = ridge(exact_moments(z, y, CLASSES), penalty)
    np.testing.assert_allclose(result.numpy(), oracle.coef_, atol=1e-8)


def of_one_site(m: Moments) -> Tensor:
    """A head of the release of one site alone."""
    return ridge(m, max(noise_penalty(m), 0.9))


def test_a_head_of_loud_noise_stays_finite():
    few = exact_moments(*rows(4), CLASSES)
    loud = noised(few, 30.0)
    assert torch.linalg.eigvalsh(loud.A).min() < -1
    assert of_one_site(loud).isfinite().all()
    assert of_one_site(loud).norm() < of_one_site(noised(few, 0.01)).norm() * 10


def test_public_moments_count_fully_and_noised_ones_as_much_as_they_tell():
    z, y = rows(2000)
    pooled, public = exact_moments(z, y, CLASSES), exact_moments(*rows(600, 9), CLASSES)
    pooled = replace(pooled, counts=torch.bincount(y, minlength=CLASSES).double())
    alone = ridge(public, 0.3)
    torch.testing.assert_close(
        shared_head(replace(pooled, variance=1e14), public, 600), alone, atol=1e-3, rtol=0
    )
    assert trust(0.0, D, 2e3) == 1.0
    assert trust(1.0, D, 2e3) > trust(9.0, D, 2e3)
    both = Moments(public.A + pooled.A, public.B + balance(pooled).B, 0.0)
    torch.testing.assert_close(shared_head(pooled, public, 600), ridge(both, 0.3))


def test_pooling_noised_moments_beats_each_site_alone():
    z, y = rows(1000)
    sites = [noised(exact_moments(z[k::10], y[k::10], CLASSES), 4.0, seed=k) for k in range(10)]
    counts = torch.bincount(y, minlength=CLASSES).double()
    pooled = Moments(sum(m.A for m in sites), sum(m.B for m in sites), 160.0, counts)  # type: ignore[arg-type]
    test, labels = rows(3000, seed=77)

    def right(weights: Tensor) -> float:
        return float((logits(weights, test).argmax(1) == labels).double().mean())

    alone = sum(right(of_one_site(m)) for m in sites) / 10
    assert right(shared_head(pooled)) > alone + 0.05


def sites(noises: list[float]) -> list[Moments]:
    """Sites of 100 rows each, with noised moments and their counts."""
    z, y = rows(100 * len(noises), seed=3)
    parts = [slice(100 * k, 100 * (k + 1)) for k in range(len(noises))]
    return [
        replace(
            noised(exact_moments(z[part], y[part], CLASSES), s, seed=k),
            counts=torch.bincount(y[part], minlength=CLASSES).float(),
            counts_variance=25.0 if s < 80 else 100.0,
        )
        for k, (part, s) in enumerate(zip(parts, noises, strict=True))
    ]


def test_of_equal_noise_moments_are_added_up_to_the_bit_and_none_are_zeros():
    sent = sites([1.7] * 10)
    A, B = torch.zeros(D, D).double(), torch.zeros(CLASSES, D).double()
    counts, variance = torch.zeros(CLASSES), 0.0
    for m in sent:
        A, B, variance, counts = A + m.A, B + m.B, variance + m.variance, counts + m.counts
    moments = pooled(iter(sent), CLASSES, D)
    assert torch.equal(moments.A, A)
    assert torch.equal(moments.B, B)
    assert torch.equal(moments.counts, counts)
    assert moments.variance == variance
    none = pooled([], CLASSES, D)
    assert not none.A.any()
    assert none.counts is not None
    assert none.B.shape == (CLASSES, D)


def test_the_noisiest_site_does_not_drown_the_others():
    noises = [4.0] * 9 + [80.0]
    sent, (test, labels) = sites(noises), rows(3000, seed=77)
    counts = torch.stack([m.counts for m in sent]).sum(0)

    def right(m: Moments) -> float:
        values = logits(shared_head(m), test)
        return float((values.argmax(1) == labels).double().mean())

    weighed, without = (pooled(some, CLASSES, D) for some in (sent, sent[:9]))
    even = Moments(sum(m.A for m in sent), sum(m.B for m in sent), 6544.0, counts)  # type: ignore[arg-type]
    best = right(without)
    assert right(weighed) > best - 0.01
    assert right(even) < best - 0.1
    # The weight of counts and noise is that of the moments.
    w = (weighed.A - without.A)[0, 0] / sent[-1].A[0, 0]
    torch.testing.assert_close(weighed.counts, without.counts + w.float() * sent[-1].counts)
    assert weighed.variance == pytest.approx(144 + 6400 * float(w) ** 2)
    assert weighed.counts_variance == pytest.approx(9 * 25 + 100 * float(w) ** 2)


def test_weights_are_those_of_the_estimate_with_the_least_variance():
    variances, spread = [1.0, 4.0, 9.0, 9.0], 2.0
    w = np.array([noise_weight(s2, 1.0, spread) for s2 in variances])

    def error(w: np.ndarray) -> float:
        return float((w**2 * (spread + np.array(variances))).sum() / w.sum() ** 2)

    for k in range(4):
        for step in (-0.01, 0.01):
            assert error(w + step * np.eye(4)[k]) > error(w)
    assert w[0] == 1.0
    assert noise_weight(0.0, 0.0, 0.0) == 1.0


def test_balance_raises_rare_classes_and_leaves_even_ones():
    m = exact_moments(*rows(), CLASSES)
    even = torch.full((CLASSES,), 50.0)
    torch.testing.assert_close(balance(replace(m, counts=even)).B, m.B)
    skewed = balance(replace(m, counts=SKEWED)).B / m.B
    assert skewed[0].min() > skewed[1].min() > 1 > skewed[2].max()
    with pytest.raises(BadInput, match="counts"):
        balance(m)


SKEWED = torch.tensor([-8.0, 100.0, 1000.0])


def test_counts_without_noise_balance_classes_as_they_are_to_the_bit():
    m = replace(exact_moments(*rows(), CLASSES), counts=SKEWED)
    known = SKEWED.double().clamp(min=0)
    factor = (known.mean() + 100) / (known + 100)
    assert torch.equal(balance(m).B, factor[:, None] * m.B)


def test_the_more_noise_counts_have_the_less_they_balance():
    m, factors = replace(exact_moments(*rows(), CLASSES), counts=SKEWED), []
    spread = float(SKEWED.double().var())
    for share in (0, 0.1, 0.25, 0.4, 0.5, 0.55, 0.6, 1, 1e9):
        noised = replace(m, counts_variance=share * spread)
        factors.append((balance(noised).B / m.B).mean(1))
    raised, lowered = (torch.stack(factors)[:, c].tolist() for c in (0, 2))
    assert raised == sorted(raised, reverse=True)
    assert lowered == sorted(lowered)
    # As known to begin with, and classes alike where noise explains all.
    assert raised[1] > 0.99 * raised[0]
    assert torch.equal(balance(replace(m, counts_variance=spread)).B, m.B)
    # By half where noise explains half of how counts differ, and 1/32 where it explains a quarter.
    for at, r in ((4, 1 / 2), (2, 1 / 32)):
        known = SKEWED.double() - r * (SKEWED.double() - SKEWED.double().mean())
        known = known.clamp(min=0)
        torch.testing.assert_close(factors[at], (known.mean() + 100) / (known + 100))
