"""A mechanism as a function of rows and a noise source, and the rows that it is run on.

Whoever adds Gaussian noise to a statistic can be run here: a release, a step of DP-SGD, a
histogram, or a mechanism of a user's own. It must take all its randomness from the source that it
is given, and give noised numbers: what is done with them afterwards needs no audit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Relation
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import Rows
from panas.privacy.unit import number_units
from panas.runtime.errors import BadInput

Output = Tensor | Mapping[str, Tensor]
WILD = 1e3  # norm of rows that must be clipped
MANY, FEW = 1000, 3  # rows of the largest data, and neighbours of those


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Code that is run again, and what was charged for it.

    >>> import torch
    >>> def noised_sum(rows, noise):
    ...     u = rows.z / rows.z.norm(dim=1, keepdim=True).clamp(min=1)
    ...     return u.double().sum(0) + 2.0 * noise.normal(rows.z.shape[1])
    >>> mechanism = Mechanism(name="sum", run=noised_sum, noise_multiplier=2.0)
    """

    name: str
    run: Callable[[Rows, NoiseSource], Output]
    """What leaves, from representations z (n, d) and labels y of n >= 0 rows, and groups or
    None."""
    noise_multiplier: float  # charged: standard deviation of the noise over the sensitivity
    width: int = 6  # d, at least 1
    classes: int = 3  # C, at least 2; labels are 0 to C - 1
    relation: Relation = ADD_OR_REMOVE
    rate: float = 1.0  # q: a unit counts where its uniform number is below that
    grouped: bool = False  # whether a unit has several rows
    hostile: bool = False  # whether rows may hold NaN and infinity, as where nothing was checked

    def __post_init__(self) -> None:
        if not (
            callable(self.run)
            and self.noise_multiplier > 0
            and self.width >= 1
            and self.classes >= 2
            and 0 < self.rate <= 1
            and self.relation in (ADD_OR_REMOVE, REPLACE)
        ):
            raise BadInput(
                "expected a mechanism with a function, noise_multiplier > 0, width >= 1, classes "
                f">= 2, rate in (0, 1] and a known relation, got {self.name!r:.40} without"
            )

    def arrays(self, rows: Rows, noise: NoiseSource) -> dict[str, Tensor]:
        """What leaves, by name.

        Args:
            rows: to run on.
            noise: what it draws from.
        """
        output = self.run(Rows(rows.z.clone(), rows.y.clone(), rows.groups), noise)
        named = {"output": output} if isinstance(output, Tensor) else dict(output)
        for name, array in named.items():
            if not isinstance(array, Tensor):
                raise BadInput(
                    f"expected tensors of {self.name}, got {type(array).__name__} as {name!r:.40}; "
                    "return a tensor, or tensors by name"
                )
        return named


@dataclass(frozen=True)
class Neighbour:
    """Data that differ in one unit."""

    about: str  # what the unit is, in words
    rows: Rows
    without: int | None  # the unit's number, if it is gone


@dataclass(frozen=True)
class World:
    """Data and all their neighbours."""

    name: str
    rows: Rows
    neighbours: tuple[Neighbour, ...]


def worlds_of(mechanism: Mechanism, rng: np.random.Generator) -> tuple[World, ...]:
    """Data to run a mechanism on: rows of many kinds, tame ones alone, a single one, and many.

    Args:
        mechanism: which says their width and classes.
        rng: draws the rows; no privacy rests on it.
    """
    d, draw = mechanism.width, torch.from_numpy(rng.standard_normal((16, mechanism.width)))
    unit = draw / draw.norm(dim=1, keepdim=True)
    kinds = {
        "of norm 1": unit[:6],
        f"of norm {WILD:g}": WILD * unit[6:8],
        "of norm 0.3": 0.3 * unit[8:10],
        "of zeros": torch.zeros(1, d, dtype=torch.float64),
        "along one axis": torch.eye(d, dtype=torch.float64)[:2],
        "that comes three times": unit[:1].repeat(2, 1),
    }
    if mechanism.hostile:
        kinds["not finite"] = torch.tensor([[torch.nan], [torch.inf]]).double().repeat(1, d)
    about = [f"a row {kind}" for kind, rows in kinds.items() for _ in rows]
    z = torch.cat(list(kinds.values())).float()
    y = torch.from_numpy(rng.integers(mechanism.classes - 1, size=len(z)))
    y[3] = mechanism.classes - 1  # the only one of its class
    groups = None
    if mechanism.grouped:  # of three rows, one of them of several classes
        groups = torch.arange(len(z)) // 3
        y[9:12] = torch.arange(3) % mechanism.classes
    whole = Rows(z, y, groups)
    tame = [k for k, text in enumerate(about) if "of norm 1" in text and text[-1] == "1"]
    places = {"rows of all kinds": list(range(len(z))), "tame rows": tame}
    places |= {"one wild row": [6], "one row": [0]}
    result = []
    for name, at in places.items():
        rows, texts = _taken(whole, torch.tensor(at)), [about[k] for k in at]
        result.append(World(name, rows, tuple(_neighbours(mechanism, rows, texts))))
    return (*result, _many(mechanism, rng))


def _many(mechanism: Mechanism, rng: np.random.Generator) -> World:
    """So many rows that a branch on their number shows, and the neighbours without some of them."""
    z = torch.from_numpy(rng.standard_normal((MANY, mechanism.width))).float()
    y = torch.from_numpy(rng.integers(mechanism.classes, size=MANY))
    groups = torch.arange(MANY) // 3 if mechanism.grouped else None
    rows = Rows(z / z.norm(dim=1, keepdim=True), y, groups)
    return World("many rows", rows, tuple(_neighbours(mechanism, rows, ["a row"] * MANY, FEW)))


def _neighbours(
    mechanism: Mechanism, rows: Rows, about: list[str], most: int = MANY
) -> list[Neighbour]:
    units = torch.arange(len(rows.y)) if rows.groups is None else number_units(rows.groups)
    result = []
    for unit in range(min(most, int(units.max()) + 1)):
        own = units == unit
        text = "a group of " + str(int(own.sum())) if mechanism.grouped else about[unit]
        if mechanism.relation == ADD_OR_REMOVE:
            result.append(Neighbour(text, _taken(rows, (~own).nonzero().flatten()), unit))
            continue
        y = torch.where(own, (rows.y + 1) % mechanism.classes, rows.y)
        z = torch.where(own[:, None], -rows.z, rows.z)
        result.append(Neighbour(text, Rows(z, y, rows.groups), None))
    return result


def _taken(rows: Rows, at: Tensor) -> Rows:
    return Rows(rows.z[at], rows.y[at], None if rows.groups is None else rows.groups[at])


def flat(arrays: Mapping[str, Tensor]) -> Float[Tensor, "k"]:
    """All numbers of an output, by the order of their names; float64."""
    return torch.cat([arrays[name].detach().double().flatten() for name in sorted(arrays)])
