"""A federation for `benchmarks.joining`: everybody's samples as rows of one common map."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from panas.data.facts import fit, infer
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.features.images import POWER
from panas.features.map import WIDTH, FeatureMap, fit_map
from panas.features.projection import Projection, cloud, principal, unit_rows
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.noise import NoiseSource, ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.training.linear.rules import Pooling, histogram_share, map_width
from panas.training.linear.second_moments import PublicMoments, public_moments

DELTA = 1e-5
PUBLIC, TEST = 2000, 5000  # samples; of few a sixth to test on
CLASSES = 10  # of each data set here
VECTORS = ".npz"


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
    samples: Samples  # those of `train`, as a forest reads them
    held: Samples  # those of `validation`


@dataclass(frozen=True)
class World:
    """All that the rows of one seed share."""

    sites: tuple[Site, ...]
    public: Rows  # labelled
    test: Rows
    classes: int
    epsilon: float
    noise: NoiseSource
    public_samples: Samples  # those of `public` and `test`, as a forest reads them
    test_samples: Samples
    table: bool  # whether these are rows of a table: then a public forest is a candidate, too
    seed: int
    seen: PublicMoments  # of all public samples, with labels and without

    @property
    def labelled(self) -> int:
        """Number of labelled public samples."""
        return len(self.public.y)


@dataclass(frozen=True)
class Shares:
    """Which samples are whose."""

    public: Samples  # labelled
    test: Samples
    sites: tuple[tuple[Samples, Samples, Tensor], ...]  # training, validation, share of each class
    table: bool = False
    unlabelled: Samples | None = None  # all public samples; None: those with labels


def width_of(setting: Setting, *, secure: bool) -> int:
    """Coordinates of the map of a run whose owners declare how many samples they have."""
    pooling = Pooling(
        sites=setting.sites,
        samples=setting.n,
        classes=CLASSES,
        budget=Budget(setting.epsilon, DELTA),
        secure_sum=secure,
    )
    return map_width(pooling, setting.labelled, WIDTH)


def draw(setting: Setting, root: str, seed: int, features: int | None = None) -> World:
    """Public, test and each site's samples, as rows of one map; histograms are noised.

    Args:
        setting: what the federation is like.
        root: folder of the data set, or an .npz file of its vectors x and labels y.
        seed: draws samples and noise.
        features: coordinates of the map; None: by rule, without a secure sum.
    """
    pool, rng = samples_of(setting.dataset, root), stream(seed, "joining")
    order, tested = rng.permutation(len(pool)), min(TEST, len(pool) // 6)
    public, test = pool.take(order[:PUBLIC]), pool.take(order[PUBLIC : PUBLIC + tested])
    width = features or width_of(setting, secure=False)
    phi: FeatureMap | Axes
    if root.endswith(VECTORS):
        phi = axes_of(public, width)
    else:
        phi = fit_map(infer(read(setting.dataset, Reading(data_root=root))), public, width)
    by_class = [
        list(order[PUBLIC + tested :][pool.y[order[PUBLIC + tested :]] == c])
        for c in range(pool.classes)
    ]
    validation, sites = 30 if setting.n < 500 else 100, []
    for _ in range(setting.sites):
        level = np.full(pool.classes, 1 / pool.classes)
        mix = rng.dirichlet(np.full(pool.classes, setting.alpha)) if setting.alpha else level
        wanted = rng.multinomial(setting.n + validation, mix)
        if any(k > len(by_class[c]) for c, k in enumerate(wanted)):
            raise BadInput(
                f"expected samples of each class for {setting.sites} sites of {setting.n}, got too "
                "few: a site's test mix would not be its training mix; ask for fewer"
            )
        drawn = [by_class[c].pop() for c, k in enumerate(wanted) for _ in range(k)]
        taken = rng.permutation(drawn)
        train, held = pool.take(taken[validation:]), pool.take(taken[:validation])
        sites.append((train, held, torch.from_numpy(mix)))
    labelled = public.take(range(setting.labelled))
    shares = Shares(labelled, test, tuple(sites), unlabelled=public)
    return world(shares, phi, setting.epsilon, seed)


def world(shares: Shares, phi: Callable[[Tensor], Tensor], epsilon: float, seed: int) -> World:
    """A federation of these samples, as rows of one map; histograms are noised."""
    noise = ReproducibleNoise(stream(seed, "joining", "noise"))
    m = release_multiplier(Budget(epsilon, DELTA), 1, histogram_share(epsilon))

    def rows(samples: Samples) -> Rows:
        return Rows(phi(samples.inputs()), samples.y)

    sites = []
    for train, held, mix in shares.sites:
        histogram = (train.histogram() + m * noise.normal(train.classes)).float()
        sites.append(Site(rows(train), rows(held), mix, histogram, train, held))
    return World(
        sites=tuple(sites),
        public=rows(shares.public),
        test=rows(shares.test),
        classes=shares.test.classes,
        epsilon=epsilon,
        noise=noise,
        public_samples=shares.public,
        test_samples=shares.test,
        table=shares.table,
        seed=seed,
        seen=public_moments(phi((shares.unlabelled or shares.public).inputs())),
    )


@dataclass(frozen=True)
class Axes:
    """Vectors as rows of the map: on principal axes of public ones, of length 1."""

    projection: Projection

    def __call__(self, x: Tensor) -> Tensor:
        """Unit rows (n, d) of vectors (n, 1, 1, f)."""
        z = self.projection(x.flatten(1).double())
        return unit_rows(z, torch.ones(len(x), dtype=torch.bool))


def axes_of(public: Samples, width: int) -> Axes:
    """The map of vectors, with axes scaled as those of pictures."""
    return Axes(principal(cloud(public.x.flatten(1)), width, POWER))


@lru_cache(maxsize=2)
def samples_of(dataset: str, root: str) -> Samples:
    """All samples of a named set, or of a file with arrays x, vectors of samples, and y."""
    if root.endswith(VECTORS):
        with np.load(root) as file:
            x, y = torch.from_numpy(file["x"]).float(), torch.from_numpy(file["y"]).long()
        return Samples(x[:, None, None, :], y, CLASSES)
    raw = read(dataset, Reading(data_root=root))
    return fit(raw, infer(raw))
