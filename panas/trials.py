"""Trials of a hyperparameter search: what is asked, what came of it, and how it is stored.

A trial whose training fails is recorded with the error's text and survived; one that the
accountant refuses is recorded and never trained.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from panas.errors import BadInput, PanasError
from panas.settings import Setting

Proposer = Literal["random", "ei"]
Status = Literal["done", "failed", "over budget"]
Objective = Callable[[Setting], float]
"""Accuracy in [0, 1] after training with a setting."""


@dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """Length of the search."""

    initial: int = 5
    """Trials spread evenly over the space before the surrogate guides, at least 1."""
    trials: int = 30
    """All trials, the initial ones and refused ones included, at least 1."""
    parallel: int = 1
    """Trials proposed at once, at least 1; the outcome depends on it, and on no worker."""

    def __post_init__(self) -> None:
        if min(self.initial, self.trials, self.parallel) < 1:
            raise BadInput(
                f"expected initial, trials and parallel of at least 1, got {self}; raise them"
            )


@dataclass(frozen=True)
class TrialRecord:
    """One trial; `value` is None where the accountant refused, 0 where the objective failed."""

    number: int
    setting: Setting
    value: float | None
    status: Status
    proposed_by: Proposer
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The trial as plain JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> "TrialRecord":
        """Read back what `as_dict` made."""
        return TrialRecord(**{**record, "setting": Setting(**record["setting"])})


@dataclass(frozen=True)
class TuningResult:
    """The winner, its predicted value (posterior mean), and every trial in order."""

    best: Setting
    predicted: float
    trials: tuple[TrialRecord, ...]


@dataclass(frozen=True)
class Proposal:
    """A trial before it has run."""

    number: int
    setting: Setting
    by: Proposer
    affordable: bool


def attempt(objective: Objective, setting: Setting) -> float | str:
    """The objective's value at a setting, or the text of what it died of.

    Raises:
        PanasError: the objective's own, which say that no other setting would do better.

    """
    try:
        value = float(objective(setting))
    except PanasError:
        raise
    except Exception as e:
        return " ".join(f"{type(e).__name__}: {e}".split())[:300]
    return value if math.isfinite(value) else f"the accuracy is {value}"


def record(proposal: Proposal, outcome: float | str | None) -> TrialRecord:
    """The trial of a proposal that came to a value, died of something, or was refused (None)."""
    p = proposal
    if outcome is None:
        return TrialRecord(p.number, p.setting, None, "over budget", p.by)
    if isinstance(outcome, str):
        return TrialRecord(p.number, p.setting, 0.0, "failed", p.by, outcome)
    return TrialRecord(p.number, p.setting, outcome, "done", p.by)
