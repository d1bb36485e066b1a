"""Facts of images and tables that feature maps are tried on, and samples of them."""

import numpy as np
import torch
from torch import Tensor

from panas.data.facts import Facts
from panas.data.files.columns import Column, side_of
from panas.data.samples import Samples
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments

ROUNDING = 1e-4  # sums leave in 32 bits
NUMBERS = tuple(Column(name=f"n{i}", reach=1.0) for i in range(9))
MIXED = (
    Column(name="age", reach=1.0),
    Column(name="dose", missing=True),
    Column(name="day", kind="date", reach=3.0),
    Column(name="ward", kind="text", categories=("a", "b", "c")),
    Column(name="code", kind="text", missing=True),
)


def image_facts(*shape: int, dtype: str = "float32", classes: int = 2) -> Facts:
    return Facts(class_names=tuple("abc"[:classes]), shape=shape, dtype=dtype)


def table_facts(columns: tuple[Column, ...] = MIXED, classes: int = 2) -> Facts:
    side = side_of(sum(column.width for column in columns))
    names = tuple("abc"[:classes])
    return Facts(class_names=names, shape=(1, side, side), dtype="float32", columns=columns)


def vector_facts(e: int, classes: int = 2) -> Facts:
    names = tuple("abc"[:classes])
    return Facts(class_names=names, shape=(1, 1, e), dtype="float32", unit=False, vectors=True)


def drawn(facts: Facts, n: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform(-1, 1, (n, *facts.shape)).astype(np.float32))
    return Samples(x, torch.from_numpy(rng.integers(0, 2, n)), 2)


def sums(rows: Rows, classes: int) -> Tensor:
    """What leaves without noise, as the vector whose length the noise is for: A off its diagonal
    counts twice, as its noise is smaller by sqrt(2)."""
    exact = moments.run(rows, classes, 0.0, ReproducibleNoise(np.random.default_rng(0)))
    spread = {k: s.noise for k, s in moments.arrays(classes, rows.z.shape[1]).items()}
    return torch.cat([(exact[k].double() / spread[k]).flatten() for k in ("A", "B")])
