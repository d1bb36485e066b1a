"""A federation for `benchmarks.joining`: everybody's samples as rows of one common map."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from panas.data.facts import fit, infer
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.features.map import fit_map
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.noise import NoiseSource, ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import stream

DELTA = 1e-5
HISTOGRAM = 0.1  # share of epsilon
PUBLIC, TEST = 2000, 5000  # samples


@dataclass(frozen=True)
class Setting:
    """What one federation is like."""

    dataset: str
    n: int
    labelled: int
    epsilon: float
    sites: int
    alpha: float | None  # of the Dirichlet draw of a site's class mix; None: all classes alike


@dataclass(frozen=True)
class Site:
    """One site's representations, and what it has released of them."""

    train: Rows
    validation: Rows
    mix: Tensor  # the true share of each class, for "own"
    histogram: Tensor  # noised


@dataclass(frozen=True)
class World:
    """All that the rows of one seed share."""

    sites: tuple[Site, ...]
    public: Rows  # labelled
    test: Rows
    classes: int
    epsilon: float
    noise: NoiseSource

    @property
    def labelled(self) -> int:
        """Number of labelled public samples."""
        return len(self.public.y)


def draw(setting: Setting, root: str, seed: int) -> World:
    """Public, test and each site's samples, as rows of one map; histograms are noised."""
    pool, rng = samples_of(setting.dataset, root), stream(seed, "joining")
    order = rng.permutation(len(pool))
    public, test = pool.take(order[:PUBLIC]), pool.take(order[PUBLIC : PUBLIC + TEST])
    phi = fit_map(infer(read(setting.dataset, Reading(data_root=root))), public)
    noise = ReproducibleNoise(stream(seed, "joining", "noise"))
    m = release_multiplier(Budget(setting.epsilon, DELTA), 1, HISTOGRAM)
    by_class = [
        list(order[PUBLIC + TEST :][pool.y[order[PUBLIC + TEST :]] == c])
        for c in range(pool.classes)
    ]
    validation, sites = 30 if setting.n < 500 else 100, []

    def rows(samples: Samples) -> Rows:
        return Rows(phi(samples.inputs()), samples.y)

    for _ in range(setting.sites):
        level = np.full(pool.classes, 1 / pool.classes)
        mix = rng.dirichlet(np.full(pool.classes, setting.alpha)) if setting.alpha else level
        wanted = rng.multinomial(setting.n + validation, mix)
        drawn = [by_class[c].pop() for c, k in enumerate(wanted) for _ in range(k) if by_class[c]]
        taken = rng.permutation(drawn)
        train = rows(pool.take(taken[validation:]))
        counts = torch.bincount(train.y, minlength=pool.classes)
        sites.append(
            Site(
                train=train,
                validation=rows(pool.take(taken[:validation])),
                mix=torch.from_numpy(mix),
                histogram=(counts + m * noise.normal(pool.classes)).float(),
            )
        )
    labelled = rows(public.take(range(setting.labelled)))
    return World(tuple(sites), labelled, rows(test), pool.classes, setting.epsilon, noise)


@lru_cache(maxsize=2)
def samples_of(dataset: str, root: str) -> Samples:
    """All samples of a named set."""
    raw = read(dataset, Reading(data_root=root))
    return fit(raw, infer(raw))
