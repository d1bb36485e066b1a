"""Whether noise is fresh, and what explains it if it is not; and whether a noise source is one.

| test | what it notices |
|---|---|
| repeats | two runs on the same rows that have numbers in common: no noise, or noise of the data |
| global seed | noise of generators that a process seeds: torch's, NumPy's, Python's |
| short seed | noise of a generator with a seed of 16 bits, on no rows at all, whatever its scale |

The last asks runs on no rows, whose output is noise alone. A source itself gets all tests of a
release's noise (`attacks.conformance.noise`), its uniform numbers by way of the normal law.
"""

import random
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import scipy.special
import scipy.stats
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.conformance import seeds
from attacks.conformance.company import findings_between
from attacks.conformance.finding import Finding
from attacks.conformance.noise import both_sides, findings_of
from attacks.conformance.residual import Residual
from attacks.replay.mechanism import Mechanism, flat, worlds_of
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.estimate import Rows

RUNS = 3  # of which two must not agree
DRAWS, ACROSS = 2000, 200  # numbers of one call, and calls of that many
DOUBTFUL = 8  # numbers in common below which chance may have made them


def repeats(mechanism: Mechanism, rng: np.random.Generator) -> list[Finding]:
    """Whether a mechanism's noise is fresh on every run.

    Args:
        mechanism: run with the operating system's noise.
        rng: draws rows; no privacy rests on it.
    """
    rows = worlds_of(mechanism, rng)[0].rows
    alike = _most_alike([_run(mechanism, rows) for _ in range(RUNS)])
    seeded = _most_alike([_after_seeding(mechanism, rows) for _ in range(2)])
    empty = Rows(rows.z[:0], rows.y[:0], None if rows.groups is None else rows.groups[:0])
    try:
        runs = (_run(mechanism, empty)[: seeds.PREFIX].numpy() for _ in range(RUNS))
        found = next((seed for z in runs if (seed := seeds.seed_of(z))), None)
    except Exception:  # that it fails there is what `attacks.replay.frozen` finds
        found = None
    says = (
        "two runs on the same rows give the same numbers: its noise repeats, or follows from them"
    )
    return [
        _certain("repeats", mechanism.name, alike, says),
        _certain(
            "global seed", mechanism.name, seeded, "its noise repeats where a process's seed does"
        ),
        _certain("short seed", mechanism.name, found is not None, f"its noise is that of {found}"),
    ]


def _certain(test: str, part: str, found: bool, says: str) -> Finding:
    return Finding(test, part, 0.0 if found else 1.0, says)


def _run(mechanism: Mechanism, rows: Rows) -> Float[Tensor, "k"]:
    return flat(mechanism.arrays(rows, SystemNoise()))


def _most_alike(outputs: list[Tensor]) -> bool:
    """Whether two outputs have more numbers in common than rounding to 32 bits may bring."""
    for k, one in enumerate(outputs):
        for other in outputs[:k]:
            same = int((one == other).sum())
            if len(one) and same >= min(len(one), DOUBTFUL):
                return True
    return False


def _after_seeding(mechanism: Mechanism, rows: Rows) -> Float[Tensor, "k"]:
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        torch.default_generator.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        return _run(mechanism, rows)
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


@cache
def _uniform_tables() -> dict[str, Float[np.ndarray, "seeds 2"]]:
    """The first two uniform numbers after each seed of 16 bits."""
    generator, state, plain = torch.Generator(), np.random.RandomState(), random.Random()
    names = ("torch", "numpy.random.default_rng", "numpy.random.RandomState", "Python's random")
    tables = {name: np.empty((seeds.SEEDS, 2)) for name in names}
    for seed in range(seeds.SEEDS):
        generator.manual_seed(seed)
        state.seed(seed)
        plain.seed(seed)
        drawn = (
            torch.rand(2, generator=generator, dtype=torch.float64).numpy(),
            np.random.Generator(np.random.PCG64(seed)).random(2),
            state.random_sample(2),
            (plain.random(), plain.random()),
        )
        for name, numbers in zip(names, drawn, strict=True):
            tables[name][seed] = np.asarray(numbers)
    return tables


def _uniform_seed(source: NoiseSource) -> Finding:
    """Two numbers of 53 bits agree with one of 2^18 seeds by chance below 1e-26."""
    u = source.uniform(2).numpy()
    found = [name for name, table in _uniform_tables().items() if (table == u).all(1).any()]
    says = f"its uniform numbers are those of {' or '.join(found)} with a seed of 16 bits"
    return _certain("short seed", "uniform", bool(found), says)


def findings_of_source(make: Callable[[], NoiseSource]) -> list[Finding]:
    """Whether a source draws independent normal and uniform numbers, fresh in every instance.

    Args:
        make: a source, as a site makes it.
    """
    normal = torch.stack([make().normal(DRAWS // ACROSS, ACROSS).flatten() for _ in range(2)])
    uniform = torch.stack([make().uniform(DRAWS) for _ in range(2)])
    inverse = torch.from_numpy(scipy.special.ndtri(uniform.clamp(1e-300, 1 - 1e-16).numpy()))
    arrays = {"normal": normal.flatten(), "uniform": inverse.flatten()}
    found = []
    for name, z in arrays.items():
        found += findings_of(as_residual(name, z))
    within = {f"draw {k}": {"numbers": z} for k, z in enumerate([*normal, *inverse])}
    found += [*findings_between(within), *_many(make()), *_shapes(make()), _uniform_seed(make())]
    return found


def as_residual(name: str, z: Float[Tensor, "n"]) -> Residual:
    """Numbers that should be independent and normal, as what is left of a release."""
    none = torch.zeros(0, len(z), dtype=torch.float64)
    return Residual(
        arrays={name: z},
        sent={name: z.float()},
        scales={name: torch.ones_like(z)},
        fine={name: torch.ones_like(z, dtype=torch.bool)},
        units=none,
        rows=none,
    )


def _many(source: NoiseSource) -> Iterator[Finding]:
    """Size and tails of many more numbers than a shape is tested on; also repeats of words."""
    z = source.normal(DRAWS * ACROSS).numpy()
    p = both_sides(float((z**2).sum()), len(z))
    yield Finding("size", "many normal numbers", p, "its noise has another size")
    far = int((np.abs(z) > 4).sum())
    p = scipy.stats.binomtest(far, len(z), 2 * scipy.stats.norm.sf(4)).pvalue
    yield Finding("tails", "many normal numbers", float(p), "its noise has other tails")
    u = source.uniform(DRAWS * ACROSS).numpy()
    again = len(u) - len(np.unique(u))
    p = float(scipy.stats.poisson.sf(again - 1, len(u) ** 2 / 2.0**54)) if again else 1.0
    yield Finding("grid", "many uniform numbers", p, "its uniform numbers are few different ones")


def _shapes(source: NoiseSource) -> Iterator[Finding]:
    """Whether numbers depend on the shape that is asked for, and each call is a fresh one."""
    draws = [source.normal(*shape) for shape in ((1,), (1,), (7,), (3, 5), (3, 5), (2, 2, 2))]
    right = [tuple(d.shape) for d in draws] == [(1,), (1,), (7,), (3, 5), (3, 5), (2, 2, 2)]
    yield _certain("shape", "several shapes", not right, "its numbers have another shape")
    numbers = torch.cat([d.flatten() for d in draws])
    again = len(numbers) - len(numbers.abs().unique())
    yield _certain("fresh", "several shapes", again > 1, "numbers of two calls are the same")
    small = torch.cat(
        [source.normal(1) for _ in range(500)] + [source.normal(3) for _ in range(200)]
    )
    p = float(scipy.stats.kstest(small.numpy(), "norm").pvalue)
    yield Finding("shape of small calls", "normal", p, "its small draws are not normal")
