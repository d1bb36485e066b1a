"""Hyperparameters under a privacy budget, by Bayesian optimisation: Algorithm 1, second half.

| paper | here |
|---|---|
| theta = (eta, sigma, C, B) | `DPSGDSettings`, a point u of `TuningSpace`'s cube |
| surrogate and acquisition | `panas.tuning.surrogate` |
| epsilon(theta) <= budget | `panas.tuning.budgeted`: sigma = factor x the least, factor >= 1 |

The constraint holds by construction; the accountant is asked again before a trial trains.

Privacy: the winner releases whatever the objective reads. The constraint prices the training that
follows, not the trials; if they read private data, the caller must account for every one.

Source: DPFNAS, section III-A3 and equation 1.
"""

import numpy as np

from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.runtime.pool import Pool
from panas.tuning.budgeted import BudgetedSpace
from panas.tuning.propose import Strategy
from panas.tuning.trial import Objective, TrialRecord, TuningConfig, TuningResult, run


def tune(
    objective: Objective,
    space: BudgetedSpace,
    config: TuningConfig,
    *,
    rng: np.random.Generator,
    execution: Execution[TrialRecord] | None = None,
) -> TuningResult:
    """Search for the settings with the best validation accuracy that the budget allows.

    `rng` names every draw: the result is a function of it, the objective and the space. A trial
    that the accountant refuses is recorded, never trained, and the next one is drawn at random. The
    winner has the highest posterior mean among the settings that were trained. `BudgetExhausted` if
    the budget fits no batch size or every trial was refused; `BadInput` if all trained ones failed.
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
                    how.finished(trial, {"stream": stream, "trial": trial.to_json()})
    best, predicted = strategy.winner(trials)
    return TuningResult(best, predicted, tuple(trials))


def _known(journal: Journal | None, stream: int) -> list[TrialRecord]:
    lines = journal.lines if journal else []
    if any(line["stream"] != stream for line in lines):
        raise BadInput("expected a journal of this search, got another's; give another folder")
    return [TrialRecord.from_json(line["trial"]) for line in lines]
