"""Does a generator with a seed of 16 bits explain noise? All of them are tried.

Tried are the first numbers that torch's CPU generator, NumPy's `default_rng` and `RandomState`, and
Python's `random` draw after seeding. Other generators, longer seeds and later numbers are not: who
knows neither cannot tell such noise from true noise, and only a replay shows that it repeats.
"""

import random
from functools import cache

import numpy as np
import torch

PREFIX, SEEDS = 16, 2**16  # numbers that are compared; seeds that are tried
LIKE = 1 - 1e-6
"""Cosine of 16 numbers with those of a seed: chance brings one of 2^16 as near below 1e-25."""


def seed_of(z: np.ndarray) -> str | None:
    """A generator and its seed that explain noise up to its scale, in words; None if none does.

    Args:
        z: its first `PREFIX` numbers; of fewer, of zeros and of what is not finite none is known.
    """
    if len(z) < PREFIX or not np.isfinite(z).all() or not z.any():
        return None
    direction = (z / np.linalg.norm(z)).astype(np.float32)
    for name, table in _tables().items():
        like = np.abs(table @ direction) / np.sqrt(np.einsum("ij,ij->i", table, table))
        if like.max() > LIKE:
            return f"{name} with seed {int(like.argmax())}"
    return None


@cache
def _tables() -> dict[str, np.ndarray]:
    torchs = np.empty((SEEDS, PREFIX), dtype=np.float32)
    doubles, new, old, python = (np.empty_like(torchs) for _ in range(4))
    generator, state, plain = torch.Generator(), np.random.RandomState(), random.Random()
    for seed in range(SEEDS):
        generator.manual_seed(seed)
        torchs[seed] = torch.randn(PREFIX, generator=generator).numpy()
        generator.manual_seed(seed)
        doubles[seed] = torch.randn(PREFIX, generator=generator, dtype=torch.float64).numpy()
        new[seed] = np.random.Generator(np.random.PCG64(seed)).standard_normal(PREFIX)
        state.seed(seed)
        old[seed] = state.standard_normal(PREFIX)
        plain.seed(seed)
        python[seed] = [plain.gauss(0, 1) for _ in range(PREFIX)]
    return {
        "torch": torchs,
        "torch in float64": doubles,
        "numpy.random.default_rng": new,
        "numpy.random.RandomState": old,
        "Python's random": python,
    }
