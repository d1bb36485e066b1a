"""Trials of a hyperparameter search: how they are drawn and run, what came of them, as records.

A trial whose training fails is recorded with the error's text and survived; one that the
accountant refuses is recorded and never trained.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.stats import qmc

from panas.runtime.errors import BadInput, BudgetExhausted, PanasError
from panas.runtime.pool import Pool, WorkerDied
from panas.tuning.space import BudgetedSpace, DPSGDSettings

CANDIDATES = 1000
"""Points at which a score is compared, before the best ones are refined."""

REFINEMENTS = (0.1, 0.03, 0.01)
"""Spread of the candidates around the best ones so far, in sides of the cube, round by round."""

DRAWS = 100
"""Points that are tried before there seems to be none that the budget affords."""

Proposer = Literal["random", "ei"]
Status = Literal["done", "failed", "over budget"]
Objective = Callable[[DPSGDSettings], float]
"""Accuracy in [0, 1] after training with a setting."""


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
    """One trial; `value` is None where the accountant refused, 0 where the objective failed."""

    number: int
    setting: DPSGDSettings
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
        return TrialRecord(**{**record, "setting": DPSGDSettings(**record["setting"])})


@dataclass(frozen=True)
class TuningResult:
    """The winner, its predicted value (posterior mean), and every trial in order."""

    best: DPSGDSettings
    predicted: float
    trials: tuple[TrialRecord, ...]


@dataclass(frozen=True)
class Proposal:
    """A trial before it has run."""

    number: int
    setting: DPSGDSettings
    by: Proposer
    affordable: bool


def attempt(objective: Objective, setting: DPSGDSettings) -> float | str:
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


def run(pool: Pool[Objective], proposals: Sequence[Proposal]) -> list[TrialRecord]:
    """The trials of proposals, all at once; a worker process that dies takes one trial with it."""
    asked = [p for p in proposals if p.affordable]
    outcomes = iter(pool.survive(attempt, [p.setting for p in asked]))
    trials = []
    for p in proposals:
        outcome = next(outcomes) if p.affordable else None
        trials.append(record(p, outcome.error if isinstance(outcome, WorkerDied) else outcome))
    return trials


def design(initial: int, root: int) -> Float[np.ndarray, "initial 5"]:
    """The first points: a Latin hypercube, so that each axis is covered evenly."""
    return qmc.LatinHypercube(5, rng=np.random.default_rng((root, 0, 0))).random(initial)


def random_setting(problem: BudgetedSpace, rng: np.random.Generator) -> DPSGDSettings:
    """A setting drawn from all that the budget affords.

    Raises:
        BudgetExhausted: if it affords none that is drawn, nor the cheapest one.

    """
    for u in (*rng.random((DRAWS, 5)), np.zeros(5)):
        if (setting := problem.setting(u)) is not None:
            return setting
    raise BudgetExhausted(
        f"the budget fits no batch size of {problem.space.batch_sizes}, even with the largest "
        "noise; raise epsilon or plan fewer steps"
    )


def climb(
    score: Callable[[Float[np.ndarray, "n 5"]], Float[np.ndarray, " n"]],
    known: Float[np.ndarray, "k 5"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "m 5"]:
    """Points of the cube by falling score: drawn everywhere, then around the best, ever closer."""
    u = np.concatenate([rng.random((CANDIDATES, 5)), known])
    values = score(u)
    for spread in REFINEMENTS:
        near = np.repeat(u[np.argsort(-values, kind="stable")[:10]], 20, axis=0)
        moved = np.clip(near + spread * rng.standard_normal(near.shape), 0, 1)
        # Some coordinates stay, and some jump: a step within a menu needs more than a small move.
        moved = np.where(rng.random(near.shape) < 0.3, near, moved)
        moved = np.where(rng.random(near.shape) < 0.1, rng.random(near.shape), moved)
        u, values = np.concatenate([u, moved]), np.concatenate([values, score(moved)])
    return u[np.argsort(-values, kind="stable")]
