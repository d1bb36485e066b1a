"""Tests of releases beside each other: sites of one round, rounds of a site, a run and former runs.

| test | what it notices |
|---|---|
| shared noise | two releases with the same noise, or part of it, or its negative |
| seed | noise of a generator with a seed of 16 bits |
| cancelling noise | noise that vanishes, or grows, in the sum over sites |
| size, shape of all | what each site does a little: less noise, or other noise |
"""

import math
from collections.abc import Mapping, Sequence

import scipy.stats
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.conformance.finding import Finding, of_many
from attacks.conformance.noise import anderson_darling, both_sides
from attacks.conformance.seeds import PREFIX, seed_of

LEAST = 30  # numbers that two releases must have to be compared


Noise = Mapping[str, Float[Tensor, "_"]]
"""Of a release, in standard deviations, flat, by array."""


def flat(noise: Noise) -> Float[Tensor, "numbers"]:
    """All of it in one row."""
    return torch.cat([noise[name] for name in sorted(noise)])


def findings_between(noise: Mapping[str, Noise]) -> list[Finding]:
    """Compare the noise of releases, two by two, and all of one size in their sum.

    Args:
        noise: of releases with some, by a name for people.
    """
    releases = {name: flat(arrays) for name, arrays in noise.items()}
    found = [_seed(name, arrays) for name, arrays in noise.items()]
    for names in _of_one_size(releases):
        z = torch.stack([releases[name] for name in names])
        found += _pairs(names, z)
        total = z.sum(0).square().sum() / len(names)
        p = both_sides(float(total), z.shape[1])
        says = f"the noise of {len(names)} releases does not add up as independent noise does"
        part = f"{len(names)} releases"
        found.append(Finding("cancelling noise", part, p, says, tuple(names)))
    return found + _together(releases)


def _together(releases: Mapping[str, Float[Tensor, "numbers"]]) -> list[Finding]:
    """All noise at once: what is too little to be seen in one release may be seen in all."""
    if len(releases) < 2:
        return []
    z = torch.cat(list(releases.values()))
    part, names = f"{len(releases)} releases", tuple(releases)
    p = both_sides(float(z.square().sum()), len(z))
    says = "all sites together have noise of another size than was charged"
    found = [Finding("size of all", part, p, says, names)]
    if len(z) >= LEAST:
        p, says = anderson_darling(z.sort().values.numpy()), "the noise of all sites is not normal"
        found.append(Finding("shape of all", part, p, says, names))
    return found


def _seed(name: str, noise: Noise) -> Finding:
    """All releases at once: to try all seeds takes seconds."""
    starts = (z[:PREFIX].numpy() for z in noise.values())
    seed = next((found for start in starts if (found := seed_of(start))), None)
    says = f"its noise is that of {seed or 'no seed of 16 bits'}"
    return Finding("seed", name, 0.0 if seed else 1.0, says, (name,))


def _of_one_size(releases: Mapping[str, Tensor]) -> list[list[str]]:
    sizes: dict[int, list[str]] = {}
    for name, z in releases.items():
        if len(z) >= LEAST:
            sizes.setdefault(len(z), []).append(name)
    return [names for names in sizes.values() if len(names) > 1]


def _pairs(names: Sequence[str], z: Float[Tensor, "k numbers"]) -> list[Finding]:
    """Each release beside the one most like it: a correlation of independent noise is normal."""
    k, n = z.shape
    unit = z / z.norm(dim=1, keepdim=True).clamp(min=1e-300)
    alike = (unit @ unit.T).abs().fill_diagonal_(-1.0)
    found = []
    for i, (r, j) in enumerate(zip(*(values.tolist() for values in alike.max(dim=1)), strict=True)):
        t = r * math.sqrt((n - 1) / max(1 - r * r, 1e-300))
        p = of_many(2 * float(scipy.stats.t.sf(t, n - 1)), k - 1)
        both = (names[i], names[j])
        says = f"{both[0]} and {both[1]} have noise in common"
        found.append(Finding("shared noise", ", ".join(both), p, says, both))
    return found
