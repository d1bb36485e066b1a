"""Hyperparameters under a privacy budget, by Bayesian optimisation: Algorithm 1, second half.

| paper | here |
|---|---|
| theta = (eta, sigma, C, B) | `DPSGDSettings`, a point u of `TuningSpace`'s cube |
| surrogate and acquisition | `panas.tuning.surrogate` |
| epsilon(theta) <= budget | `panas.tuning.space`: sigma = factor x the least, factor >= 1 |

The constraint holds by construction; the accountant is asked again before a trial trains.

Privacy: the winner releases whatever the objective reads. The constraint prices the training that
follows, not the trials; if they read private data, the caller must account for every one.

Source: DPFNAS, section III-A3 and equation 1.

Proposals of a hyperparameter search: which settings are tried next, by what came of the others.

The first ones are spread evenly; then the surrogate's acquisition is climbed. Trial j draws from
its own stream, named by the search's and j, so that a search goes on from its trials alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import scipy
from jaxtyping import Float

from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.runtime.pool import Pool
from panas.tuning.space import BudgetedSpace, DPSGDSettings
from panas.tuning.surrogate import Surrogate, fit_surrogate
from panas.tuning.trial import (
    Objective,
    Proposer,
    Status,
    TrialRecord,
    TuningConfig,
    TuningResult,
    run,
)

CANDIDATES = 1000  # points at which a score is compared, before the best ones are refined

REFINEMENTS = (0.1, 0.03, 0.01)
"""Spread of the candidates around the best ones so far, in sides of the cube, round by round."""

DRAWS = 100  # points that are tried before there seems to be none that the budget affords


@dataclass(frozen=True)
class Strategy:
    """What decides the proposals of a search, apart from its trials; `stream` names every draw."""

    space: BudgetedSpace
    config: TuningConfig
    stream: int
    validation_samples: int | None

    def propose(self, trials: Sequence[TrialRecord], numbers: range) -> list[TrialRecord]:
        """The trials of one batch, by what came of those before it."""
        refused = any(t.status == "over budget" for t in trials[-self.config.parallel :])
        guided = numbers.stop > self.config.first and not refused
        surrogate = self._surrogate(trials) if guided else None
        proposals: list[TrialRecord] = []
        for number in numbers:
            rng = np.random.default_rng((self.stream, number))
            settings: DPSGDSettings | None = None
            by: Proposer = "random"
            if number < self.config.first:
                settings = self.space.settings(design(self.config.first, self.stream)[number])
            elif surrogate is not None:
                pending = [p.setting for p in proposals]
                settings, by = improve(surrogate, trials, pending, rng), "ei"
            if settings is None:
                settings, by = random_settings(self.space, rng), "random"
            allowed = self.space.constraint.allows(settings)
            status: Status = "proposed" if allowed else "over budget"
            proposals.append(TrialRecord(number, settings, None, status, by))
        return proposals

    def winner(self, trials: Sequence[TrialRecord]) -> tuple[DPSGDSettings, float]:
        """The trained settings of highest posterior mean; without a surrogate, of highest value."""
        done = [(t.setting, t.value) for t in trials if t.status == "done" and t.value is not None]
        if all(t.value is None for t in trials):
            raise BudgetExhausted("the accountant refused every trial; raise epsilon")
        if not done:
            raise BadInput("expected a finite accuracy, but every trial failed; lower the rates")
        surrogate = self._surrogate(trials)
        if surrogate is None:
            return max(done, key=lambda pair: pair[1])
        means = surrogate.mean(self.space.points([s for s, _ in done]))
        k = int(means.argmax())
        return done[k][0], means[k].item()

    def _surrogate(self, trials: Sequence[TrialRecord]) -> Surrogate | None:
        return fit_surrogate(self.space, trials, self.validation_samples)


def design(initial: int, stream: int) -> Float[np.ndarray, "initial 5"]:
    """The first points: a Latin hypercube, so that each axis is covered evenly."""
    return scipy.stats.qmc.LatinHypercube(5, rng=np.random.default_rng((stream, 0, 0))).random(
        initial
    )


def random_settings(space: BudgetedSpace, rng: np.random.Generator) -> DPSGDSettings:
    """Settings drawn from all that the budget affords."""
    for settings in filter(None, map(space.settings, (*rng.random((DRAWS, 5)), np.zeros(5)))):
        return settings
    raise BudgetExhausted(
        f"expected a budget that fits a batch size of {space.space.batch_sizes}, got one that fits "
        "none, even with the largest noise; raise epsilon, or plan fewer steps"
    )


def improve(
    surrogate: Surrogate,
    trials: Sequence[TrialRecord],
    pending: Sequence[DPSGDSettings],
    rng: np.random.Generator,
) -> DPSGDSettings | None:
    """The affordable settings of highest expected improvement; None if it finds none.

    Args:
        surrogate: fitted to the trials.
        trials: those done so far.
        pending: settings proposed in the same batch, of which nothing is known yet.
        rng: draws the candidates.
    """
    space = surrogate.space
    known = space.points([*(t.setting for t in trials if t.value is not None), *pending])
    best = surrogate.mean(known).max().item()
    score = surrogate.improvement(best, space.points(pending) if pending else None)
    return next(filter(None, map(space.settings, climb(score, known, rng)[:DRAWS])), None)


def climb(
    score: Callable[[Float[np.ndarray, "n 5"]], Float[np.ndarray, " n"]],
    known: Float[np.ndarray, "k 5"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "m 5"]:
    """Points of the cube by falling score: drawn everywhere, then around the best, ever closer.

    Args:
        score: of points (n, 5) of the cube, the higher the better.
        known: points around which to look at once; k may be 0.
        rng: draws the points.
    """
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


def tune(
    objective: Objective,
    space: BudgetedSpace,
    config: TuningConfig,
    *,
    rng: np.random.Generator,
    execution: Execution[TrialRecord] | None = None,
) -> TuningResult:
    """Search for the settings with the best validation accuracy that the budget allows.

    A trial that the accountant refuses is recorded, never trained, and the next one is drawn at
    random. The winner has the highest posterior mean among the settings that were trained.
    `BudgetExhausted` if the budget fits no batch size or every trial was refused; `BadInput` if all
    trained ones failed.

    Args:
        objective: accuracy of some settings, in [0, 1].
        space: where to look, and what the budget affords there.
        config: number of trials.
        rng: names every draw: the result is a function of it, the objective and the space.
        execution: processes, journal and progress; None: here, without them.
    """
    if not config.trials:
        raise BadInput("expected at least 1 trial to tune by, got 0; raise trials")
    how: Execution[TrialRecord] = execution or Execution()
    stream = int(rng.integers(2**63))
    trials = _known(how.journal, stream)[: config.trials]
    strategy = Strategy(space, config, stream, objective.validation_samples)
    with Pool(how.workers, objective) as pool:
        for start in range(0, config.trials, config.parallel):
            numbers = range(start, min(start + config.parallel, config.trials))
            if numbers.stop <= len(trials):
                continue
            # Where a batch was interrupted, all of it is proposed again: what is missing depends
            # on what came before the batch alone.
            missing = strategy.propose(trials[:start], numbers)[len(trials) - start :]
            size = 1 if how.workers == 1 else len(missing)
            for k in range(0, len(missing), size):
                for trial in run(pool, missing[k : k + size]):
                    trials.append(trial)
                    how.finished(trial, {"stream": stream, "trial": asdict(trial)})
    best, predicted = strategy.winner(trials)
    return TuningResult(best, predicted, tuple(trials))


def _known(journal: Journal | None, stream: int) -> list[TrialRecord]:
    lines = journal.lines if journal else []
    if any(line["stream"] != stream for line in lines):
        raise BadInput("expected a journal of this search, got another's; give another folder")
    return [TrialRecord.from_json(line["trial"]) for line in lines]
