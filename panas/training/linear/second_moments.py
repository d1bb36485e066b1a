"""Second moments of the pooled samples, from noised ones and from public samples.

Public samples without labels tell A = sum u u^T too, but for how sites differ from them. So what a
release says of it is drawn to what they say, the more, the larger its noise:

    A0 = N (M sum_i u_i u_i^T / M + m I / d) / (M + m)
    A  = A0 + k (A_noised - A0),   k = v / (v + s^2 / a^2)
    v  = .06 N / d + (N / d)^2 / (M + m)

| symbol | name |
|---|---|
| u_i, M | public rows on the common map, and how many there are |
| m | `ISOTROPIC`: what the guess counts that all directions are alike |
| N | pooled samples |
| s^2 / a^2 | variance of a number of the noised A (`Moments.variance`, `SECOND_MOMENTS`) |
| v | variance of a number of A around A0: of samples from site to site, and of public samples |

Without noise k is 1, and without public samples near it: then a release is all that tells of A.
Linear estimate of the least variance, as James and Stein's. It is post-processing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from panas.privacy.release.estimate import SECOND_MOMENTS, Moments

ISOTROPIC = 5.0  # public samples that the guess of equal directions counts as
SPREAD = 0.06  # of exact moments from public ones, a sample and coordinate
FEWEST = 20.0  # samples that a noised number of them stands for at least


@dataclass(frozen=True)
class PublicMoments:
    """Sum of u u^T over public rows on the common map, float64, and how many these are."""

    A: Float[Tensor, "d d"]
    rows: int


def public_moments(z: Float[Tensor, "n d"]) -> PublicMoments:
    """The second moments of n >= 0 public rows; labels have no part in them."""
    u = z.double()
    return PublicMoments(u.T @ u, len(u))


def spread_of(samples: float, width: int) -> float:
    """Variance of a number of the exact moments of so many samples, between draws of them."""
    return SPREAD * samples / width


def denoised(m: Moments, samples: float, public: PublicMoments | None = None) -> Tensor:
    """A (d, d) of the formula above; exactly `m.A` where it has no noise.

    Args:
        m: noised moments, of one site or pooled.
        samples: N, how many they are of; may be noised.
        public: what public rows say, if there are any.
    """
    if not m.variance:
        return m.A
    d, n = len(m.A), max(samples, FEWEST)
    total = ISOTROPIC / d * torch.eye(d, dtype=torch.float64)
    rows = ISOTROPIC
    if public is not None:
        total, rows = total + public.A, rows + public.rows
    expected = n / rows * total
    variance = spread_of(n, d) + (n / d) ** 2 / rows
    return expected + variance / (variance + m.variance / SECOND_MOMENTS**2) * (m.A - expected)
