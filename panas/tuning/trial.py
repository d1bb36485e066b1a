"""Trials of a hyperparameter search: how they run, what came of them, as records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

from panas.runtime.errors import BadInput, PanasError
from panas.runtime.pool import Pool, WorkerDied
from panas.runtime.typed import check_fields
from panas.tuning.space import DPSGDSettings

Proposer = Literal["random", "ei"]
Status = Literal["proposed", "done", "failed", "over budget"]


@runtime_checkable
class Objective(Protocol):
    """What is tuned for; picklable if there is more than one worker."""

    @property
    def validation_samples(self) -> int | None:
        """How many samples an accuracy is the share of; None if that is unknown."""

    def __call__(self, settings: DPSGDSettings) -> float:
        """Accuracy in [0, 1]; other values, and errors but `PanasError`, make a failed trial."""


@dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """Length of the search."""

    initial: int = 5
    """Trials spread evenly over the space before the surrogate guides, at least 1, at most all."""
    trials: int = 30
    """All trials, the initial ones and refused ones included; 0 tunes nothing."""
    parallel: int = 1
    """Trials proposed at once, at least 1; the outcome depends on it, and on no worker."""

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.initial, self.parallel) < 1 or self.trials < 0:
            raise BadInput(
                "expected initial and parallel of at least 1 and trials of at least 0, got "
                f"{self}; raise them"
            )

    @property
    def first(self) -> int:
        """Trials before the surrogate guides."""
        return min(self.initial, self.trials)


@dataclass(frozen=True)
class TrialRecord:
    """One trial; `value` is 0 if the objective failed, None before it has run or if refused."""

    number: int
    setting: DPSGDSettings
    value: float | None
    status: Status
    proposed_by: Proposer
    error: str | None = None

    def __str__(self) -> str:
        s = self.setting
        value = self.status if self.value is None else f"{self.value:.3f}"
        return (
            f"trial {self.number + 1}: {value}, learning rate {s.learning_rate:.3g}, sigma "
            f"{s.noise_multiplier:.3g}, clip {s.clip:.3g}, batch {s.batch_size}"
        )

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "TrialRecord":
        """Read back what `asdict` made."""
        return TrialRecord(**{**record, "setting": DPSGDSettings(**record["setting"])})


@dataclass(frozen=True)
class TuningResult:
    """The winner, its predicted value (posterior mean), and every trial in order."""

    best: DPSGDSettings
    predicted: float
    trials: tuple[TrialRecord, ...]


def run(pool: Pool[Objective], proposals: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Run all that are proposed at once; a worker process that dies takes one trial with it."""
    proposed = [p for p in proposals if p.status == "proposed"]
    outcomes = iter(pool.survive(_attempt, [p.setting for p in proposed]))
    return [_ended(p, next(outcomes)) if p.status == "proposed" else p for p in proposals]


def _ended(trial: TrialRecord, outcome: float | str | WorkerDied) -> TrialRecord:
    if isinstance(outcome, float):
        return replace(trial, value=outcome, status="done")
    error = outcome if isinstance(outcome, str) else outcome.error
    return replace(trial, value=0.0, status="failed", error=error)


def _attempt(objective: Objective, settings: DPSGDSettings) -> float | str:
    """The objective's value at some settings, or the text of what it died of."""
    try:
        value = float(objective(settings))
    except PanasError:  # no other settings would do better
        raise
    except Exception as e:
        return " ".join(f"{type(e).__name__}: {e}".split())[:300]
    return value if math.isfinite(value) else f"the accuracy is {value}"
