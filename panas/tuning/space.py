"""Hyperparameters of DP-SGD: one choice of them, and the space to look in.

| paper | here |
|---|---|
| eta, sigma, C, B | `DPSGDSettings`: learning_rate, noise_multiplier, clip, batch_size |
| (not tuned) | `DPSGDSettings.epochs`, passes over the data a round |
| u in [0, 1]^5 | a point of the cube, one coordinate an axis of `TuningSpace` |

Under a privacy budget every point of the cube respects it: sigma is looked for as a factor, at
least 1, over the least noise that the whole plan affords at that batch size and those passes.

Source: DPFNAS, section III-A3 (epsilon(theta) <= budget).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, fits
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.errors import BadInput, BudgetExhausted
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


@runtime_checkable
class PrivacyConstraint(Protocol):
    """What a budget affords."""

    def least_noise(self, batch_size: int, epochs: int | None) -> float | None:
        """Least noise multiplier at a batch size and passes (None: the schedule's), if any."""

    def allows(self, settings: DPSGDSettings) -> bool:
        """Whether the accountant lets the settings train."""


@dataclass(frozen=True)
class ScheduleConstraint:
    """All that a schedule will charge fits a budget, which is finite."""

    budget: Budget
    schedule: TrainingSchedule

    def least_noise(self, batch_size: int, epochs: int | None) -> float | None:
        """The noise of the schedule's plan."""
        plan = self._plan(batch_size, epochs)
        return plan.noise_multiplier if plan else None

    def allows(self, settings: DPSGDSettings) -> bool:
        """Whether the schedule's plan with these settings costs no more than the budget."""
        plan = self._plan(settings.batch_size, settings.epochs)
        if plan is None:
            return False
        if settings.noise_multiplier >= plan.noise_multiplier:
            return True  # the plan was calibrated to fit, and more noise costs no more
        plan = replace(plan, noise_multiplier=settings.noise_multiplier, clip=settings.clip)
        return fits(plan.events(), self.budget, self.schedule.spent)

    @cached_property
    def _plan(self) -> Callable[[int, int | None], Plan | None]:
        @cache
        def plan(batch_size: int, epochs: int | None) -> Plan | None:
            try:
                return calibrate(
                    self.budget, self.schedule, batch_size=batch_size, clip=1.0, epochs=epochs
                )
            except BudgetExhausted:
                return None

        return plan


@dataclass(frozen=True)
class BudgetedSpace:
    """A space of settings with what its budget affords."""

    space: TuningSpace
    constraint: PrivacyConstraint

    def settings(self, u: Float[np.ndarray, " 5"]) -> DPSGDSettings | None:
        """The settings of a point; None where no noise is enough."""
        values = (axis.value(u[i : i + 1]).item() for i, axis in enumerate(self.space.axes))
        rate, clip, factor, batch, epochs = values
        passes = int(epochs) or None
        least = self.constraint.least_noise(int(batch), passes)
        if least is None:
            return None
        if not 0 < least < math.inf:
            raise BadInput(f"expected a least noise above 0, got {least}; set a finite epsilon")
        return DPSGDSettings(
            learning_rate=rate,
            noise_multiplier=factor * least,
            clip=clip,
            batch_size=int(batch),
            epochs=passes,
        )

    def points(self, settings: Sequence[DPSGDSettings]) -> Float[np.ndarray, "n 5"]:
        """Where in the cube settings lie."""
        rows = []
        for s in settings:
            least = self.constraint.least_noise(s.batch_size, s.epochs)
            assert least is not None
            factor = s.noise_multiplier / least
            rows.append((s.learning_rate, s.clip, factor, s.batch_size, s.epochs or 0))
        columns = np.array(rows, dtype=np.float64).T
        pairs = zip(self.space.axes, columns, strict=True)
        return np.clip(np.stack([axis.coordinates(c) for axis, c in pairs], axis=1), 0, 1)

    @cached_property
    def free(self) -> list[int]:
        """The axes along which there is anything to choose."""
        return [i for i, axis in enumerate(self.space.axes) if axis.high > axis.low]

    @cached_property
    def spans(self) -> list[float]:
        """How far `inputs` reach along each axis, as a natural logarithm; 0 where fixed."""
        spans = [0.0 if a.high == a.low else math.log(a.high / a.low) for a in self.space.axes]
        path = spans[0] + spans[1] + spans[3] + spans[4]
        return [path if spans[0] else 0.0, *spans[1:]]

    def inputs(self, u: Float[np.ndarray, "n 5"]) -> Float[np.ndarray, "n d"]:
        """A surrogate's inputs at points: logarithms, in [0, 1], of the free axes.

        The learning rate's place is taken by the length of the whole path, eta C epochs / B, if all
        gradients are clipped. At the least noise, the noise along the path grows with that length
        alone.
        """
        logs = [
            np.log(a.value(u[:, i]) / a.low) if a.high > a.low else np.zeros(len(u))
            for i, a in enumerate(self.space.axes)
        ]
        if self.spans[0]:
            logs[0] = logs[0] + logs[1] + logs[4] + (self.spans[3] - logs[3])
        return np.stack([logs[i] / self.spans[i] for i in self.free], axis=1)
