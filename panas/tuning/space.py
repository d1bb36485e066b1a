"""Hyperparameters of DP-SGD: one choice of them, and the space to look in.

| paper | here |
|---|---|
| eta, sigma, C, B | `DPSGDSettings`: learning_rate, noise_multiplier, clip, batch_size |
| (not tuned) | `DPSGDSettings.epochs`, passes over the data a round |
| u in [0, 1]^5 | a point of the cube, one coordinate an axis of `TuningSpace` |

Source: DPFNAS, section III-A3.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from panas.runtime.errors import BadInput
from panas.runtime.typed import check_fields

Menu = tuple[int, ...] | range
"""Integers to choose from: all alike (a tuple), or all of a range, alike on a log scale."""


@dataclass(frozen=True, kw_only=True)
class DPSGDSettings:
    """The hyperparameters of DP-SGD."""

    learning_rate: float
    """Step size, above 0."""
    noise_multiplier: float
    """Standard deviation of the noise over the clipping norm, above 0."""
    clip: float
    """Clipping norm C of a sample's gradient, above 0."""
    batch_size: int
    """Expected samples a batch, at least 1."""
    epochs: int | None = None
    """Passes over the data a round, at least 1; None leaves them to the schedule."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("learning_rate", "noise_multiplier", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"expected {name} finite and above 0, got {value}; raise it")
        for name in ("batch_size", "epochs"):
            value = getattr(self, name)
            if value is not None and (value < 1 or value != int(value)):
                raise BadInput(f"expected {name} as an integer >= 1, got {value}; fix it")


@dataclass(frozen=True, kw_only=True)
class TuningSpace:
    """Where to look; ranges are searched on a log scale, and lowest = highest fixes a value."""

    learning_rate: tuple[float, float] = (1e-3, 1.0)
    """Lowest and highest step size, above 0."""
    clip: tuple[float, float] = (0.1, 10.0)
    """Lowest and highest clipping norm, above 0."""
    noise_factor: tuple[float, float] = (1.0, 4.0)
    """Noise over the least that the budget affords, at least 1; (1, 1) derives sigma from it."""
    batch_sizes: Menu = (16, 32, 64)
    """Batch sizes to choose from, distinct, at least 1: a tuple, or `range(low, high + 1)`."""
    epochs: Menu = ()
    """Passes a round to choose from, likewise; none leaves them to the schedule."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("learning_rate", "clip", "noise_factor"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf or (name == "noise_factor" and low < 1):
                raise BadInput(
                    f"expected {name} as 0 < low <= high, finite, and noise_factor from 1 on, "
                    f"got ({low}, {high}); fix the range"
                )
        for name in ("batch_sizes", "epochs"):
            menu = getattr(self, name)
            empty = not len(menu) and name == "batch_sizes"
            if empty or (len(menu) and min(menu) < 1) or len(set(menu)) < len(menu):
                raise BadInput(f"expected distinct {name} of at least 1, got {menu}; fix them")

    @cached_property
    def axes(self) -> tuple["Axis", ...]:
        """The cube's axes: learning rate, clip, noise factor, batch size, passes."""
        ranges = (Range(*pair) for pair in (self.learning_rate, self.clip, self.noise_factor))
        # 0 passes stand for those of the schedule; they are no axis to look along.
        return (*ranges, choice(self.batch_sizes), choice(self.epochs or (0,)))


@dataclass(frozen=True)
class Range:
    """A real number on a log scale."""

    low: float
    high: float

    def value(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Values of coordinates in [0, 1], kept in the range against rounding."""
        logs = math.log(self.low) + u * math.log(self.high / self.low)
        return np.clip(np.exp(logs), self.low, self.high)

    def coordinates(self, value: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Coordinates of values; 1/2 if there is but one."""
        if self.high == self.low:
            return np.full(len(value), 0.5)
        return np.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class Choice:
    """One of some integers, in ascending order; each owns a part of [0, 1]."""

    low: float
    high: float
    values: Float[np.ndarray, " k"]
    edges: Float[np.ndarray, " k+1"]

    def value(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Values of coordinates in [0, 1]."""
        return self.values[np.searchsorted(self.edges[1:-1], u, side="right")]

    def coordinates(self, value: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Coordinates of values: the middle of what each owns."""
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        return middle[np.searchsorted(self.values, value)]


Axis = Range | Choice


def choice(menu: Menu) -> Choice:
    """The axis of a menu."""
    values = np.array(sorted(menu), dtype=np.float64)
    if isinstance(menu, range):
        logs = np.log(np.append(values, values[-1] + abs(menu.step)))
        edges = (logs - logs[0]) / (logs[-1] - logs[0])
    else:
        edges = np.linspace(0.0, 1.0, len(values) + 1)
    return Choice(values[0].item(), values[-1].item(), values, edges)
