"""A tuning space under a privacy budget: every point of its cube respects the budget.

Sigma is looked for as a factor, at least 1, over the least noise that the whole plan affords at
that batch size and those passes.

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
from panas.tuning.space import DPSGDSettings, TuningSpace


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
