"""Every reproducible draw of a run: one `SeedSequence`, spawned by stable ids.

The run's seed and a path of keys, say `(7, "client", 3, "search")`, name a stream. Streams with
different keys are independent, and adding a site or a purpose moves no other stream. Privacy
noise never comes from here, except where the ledger claims no protection: see
`panas.privacy.noise`.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def _words(key: str | int) -> tuple[int, int]:
    """Two 32-bit words that stand for a key; text and integer keys cannot collide."""
    digest = hashlib.sha256(f"{type(key).__name__}:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def stream(seed: int, *keys: str | int) -> np.random.Generator:
    """A numpy generator for one purpose of a run: `seed` >= 0, `keys` its stable ids."""
    spawn_key = tuple(word for key in keys for word in _words(key))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=spawn_key))


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A CPU torch generator seeded by the next draw of `rng`."""
    generator = torch.Generator()
    generator.manual_seed(int(rng.integers(2**63)))
    return generator


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on one thread, so that sums have one order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
