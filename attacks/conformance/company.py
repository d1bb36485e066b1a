"""Tests of releases beside each other: sites of one round, rounds of a site, a run and former runs.

| test | what it notices |
|---|---|
| shared noise | two releases with the same noise, or part of it, or its negative |
| cancelling noise | noise that vanishes, or grows, in the sum over sites |
"""

import math
from collections.abc import Mapping, Sequence

import scipy.stats
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.conformance.finding import Finding, of_many
from attacks.conformance.tests import two_sided

LEAST = 30  # numbers that two releases must have to be compared


def tests_between(releases: Mapping[str, Float[Tensor, "numbers"]]) -> list[Finding]:
    """Compare the noise of releases, two by two, and all of one size in their sum.

    Args:
        releases: noise in standard deviations, flat, by a name for people.
    """
    found = list[Finding]()
    for names in _of_one_size(releases):
        z = torch.stack([releases[name] for name in names])
        found += _pairs(names, z)
        total = z.sum(0).square().sum() / len(names)
        p = two_sided(scipy.stats.chi2, float(total), z.shape[1])
        says = f"the noise of {len(names)} releases does not add up as independent noise does"
        found.append(Finding("cancelling noise", f"{names[0]} and others", p, says))
    return found


def _of_one_size(releases: Mapping[str, Tensor]) -> list[list[str]]:
    sizes: dict[int, list[str]] = {}
    for name, z in releases.items():
        if len(z) >= LEAST:
            sizes.setdefault(len(z), []).append(name)
    return [names for names in sizes.values() if len(names) > 1]


def _pairs(names: Sequence[str], z: Float[Tensor, "k numbers"]) -> list[Finding]:
    """The two that are most alike: a correlation of independent noise is about normal."""
    k, n = z.shape
    unit = z / z.norm(dim=1, keepdim=True).clamp(min=1e-300)
    alike = (unit @ unit.T).tril(-1).abs()
    at = int(alike.argmax())
    i, j, r = at // k, at % k, min(1.0, float(alike.max()))
    pairs = k * (k - 1) // 2
    t = r * math.sqrt((n - 1) / max(1 - r * r, 1e-300))
    p = of_many(2 * float(scipy.stats.t.sf(t, n - 1)), pairs)
    says = f"{names[i]} and {names[j]} have noise in common"
    return [Finding("shared noise", f"{names[i]}, {names[j]}", p, says)]
