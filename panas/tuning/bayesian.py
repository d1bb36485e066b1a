"""Hyperparameters under a privacy budget, by Bayesian optimisation: Algorithm 1, second half.

| paper | here |
|---|---|
| theta = (eta, sigma, C, B) | `DPSGDSettings`, a point u of `TuningSpace`'s cube |
| surrogate | Gaussian process, Matern 5/2, one length scale each, standardised outcomes |
| noise of an observation p | p (1 - p) / n_validation, and a learnt part for the training's own |
| acquisition | augmented expected improvement over the best posterior mean, as its logarithm |
| epsilon(theta) <= budget | sigma = factor x the least that the whole plan affords, factor >= 1 |

The constraint holds by construction, in closed form over the cube; the accountant is asked again
before a trial trains. Augmented is expected improvement times 1 - sqrt(v / (v + s^2)), with noise v
and posterior variance s^2: it soon leaves what another look would not show any better. The
surrogate's hyperparameters are the likeliest of `DRAWN` that fill their priors.

Trial j draws from its own stream, named by one draw of `rng` and j, so that a search goes on from
its trials alone; torch computes on one thread meanwhile. BoTorch and GPyTorch live only here,
loaded on first use.

Privacy: the winner releases whatever the objective reads. The constraint prices the training that
follows, not the trials; if they read private data, the caller must account for every one.

Source: DPFNAS, section III-A3 and equation 1; Huang et al. 2006 for the augmentation; Ament et al.
2023 for the logarithm.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from scipy.stats import qmc
from torch import Tensor

from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.journal import Journal
from panas.runtime.pool import Pool
from panas.runtime.seeds import one_thread
from panas.tuning.space import (
    FIXED_CONFIGURATIONS,
    BudgetedSpace,
    DPSGDSettings,
    FixedConfiguration,
    TuningSpace,
)
from panas.tuning.trial import (
    DRAWS,
    Objective,
    Proposal,
    Proposer,
    TrialRecord,
    TuningConfig,
    TuningResult,
    climb,
    design,
    random_setting,
    run,
)

__all__ = [
    "FIXED_CONFIGURATIONS",
    "DPSGDSettings",
    "FixedConfiguration",
    "TrialRecord",
    "TuningConfig",
    "TuningResult",
    "TuningSpace",
    "tune",
]

DRAWN = 512
"""Hyperparameters of the surrogate that are compared, a power of 2."""

LENGTHS = (2.0, 8.0, 1.0, 2.2, 1.1)
"""Prior medians of the length scales, by axis, in natural logarithms: accuracy depends most on how
long the path is and on how many passes it takes, least on clip (once below most gradients).
"""

LEAST_VARIANCE = 0.05
"""Of an answer that is right or wrong, p (1 - p), since an accuracy of 0 or 1 is not certain."""


def tune(
    objective: Objective,
    *,
    space: TuningSpace,
    config: TuningConfig,
    minimum_noise: Callable[[int, int | None], float | None],
    is_affordable: Callable[[DPSGDSettings], bool],
    rng: np.random.Generator,
    validation_samples: int | None = None,
    on_trial: Callable[[TrialRecord], None] | None = None,
    journal: Journal | None = None,
    workers: int = 1,
) -> TuningResult:
    """Search for the setting with the best validation accuracy that the budget allows.

    Args:
        objective: accuracy in [0, 1] after training with a setting. What is not finite, and any
            exception but a `PanasError`, is recorded as failed, with value 0. It must be picklable
            if there is more than one worker.
        space: ranges of the search.
        config: number of trials, and how many are proposed at once.
        minimum_noise: least noise multiplier whose whole plan fits the budget at a batch size and
            passes a round (None: the schedule's), or None if none does.
        is_affordable: the accountant, asked once before each trial; a trial that it refuses is
            recorded as over budget, never trained, and the next one is drawn at random.
        rng: names every draw; the result is a function of it and of the callables.
        validation_samples: how many samples an accuracy is the share of; None if that is unknown.
        on_trial: called after each new trial, refused ones included.
        journal: where trials are stored before the next begins; those that it holds are not run
            again, and the outcome is that of a search which was never interrupted.
        workers: processes that train the trials proposed at once.

    Returns:
        The setting with the highest posterior mean among those that were trained.

    Raises:
        BudgetExhausted: if the budget fits no batch size, or the accountant refused every trial.
        BadInput: if every trial that was trained failed, or the journal is another search's.

    """
    if not config.trials:
        raise BadInput("expected at least 1 trial to tune by, got 0; raise trials")
    root = int(rng.integers(2**63))
    known = list(journal.lines) if journal else []
    if any(line["stream"] != root for line in known):
        raise BadInput("expected a journal of this search, got another's; give another folder")
    trials = [TrialRecord.from_dict(line["trial"]) for line in known[: config.trials]]
    problem = BudgetedSpace(space, cache(minimum_noise), validation_samples)
    with Pool(workers, objective) as pool:
        for start in range(0, config.trials, config.parallel):
            numbers = range(start, min(start + config.parallel, config.trials))
            if numbers.stop <= len(trials):
                continue
            # Where a batch was interrupted, all of it is proposed again: what is missing depends
            # on what came before the batch alone.
            batch = _propose(problem, trials[:start], numbers, config, root, is_affordable)
            missing = batch[len(trials) - start :]
            size = 1 if workers == 1 else len(missing)
            for k in range(0, len(missing), size):
                for trial in run(pool, missing[k : k + size]):
                    if journal:
                        journal.append({"stream": root, "trial": trial.as_dict()})
                    trials.append(trial)
                    if on_trial is not None:
                        on_trial(trial)
    best, predicted = _winner(problem, trials)
    return TuningResult(best, predicted, tuple(trials))


def _propose(
    problem: BudgetedSpace,
    trials: list[TrialRecord],
    numbers: range,
    config: TuningConfig,
    root: int,
    is_affordable: Callable[[DPSGDSettings], bool],
) -> list[Proposal]:
    """The trials of one batch, by what came of those before it."""
    refused = any(t.status == "over budget" for t in trials[-config.parallel :])
    guided = numbers.stop > config.first and not refused
    surrogate = _fit(problem, trials) if guided else None
    proposals: list[Proposal] = []
    for number in numbers:
        rng = np.random.default_rng((root, number))
        setting: DPSGDSettings | None = None
        by: Proposer = "random"
        if number < config.first:
            setting = problem.setting(design(config.first, root)[number])
        elif surrogate is not None:
            pending = [p.setting for p in proposals]
            setting, by = _improve(problem, surrogate, trials, pending, rng), "ei"
        if setting is None:
            setting, by = random_setting(problem, rng), "random"
        proposals.append(Proposal(number, setting, by, is_affordable(setting)))
    return proposals


def _improve(
    problem: BudgetedSpace,
    surrogate: "_Surrogate",
    trials: list[TrialRecord],
    pending: list[DPSGDSettings],
    rng: np.random.Generator,
) -> DPSGDSettings | None:
    """The affordable setting of highest expected improvement; None if it finds none."""
    known = problem.points([t.setting for t in trials if t.value is not None] + pending)
    best = surrogate.mean(known).max().item()
    score = surrogate.improvement(best, problem.points(pending) if pending else None)
    for u in climb(score, known, rng)[:DRAWS]:
        if (setting := problem.setting(u)) is not None:
            return setting
    return None


def _winner(problem: BudgetedSpace, trials: list[TrialRecord]) -> tuple[DPSGDSettings, float]:
    """The trained setting of highest posterior mean; without a surrogate, of highest value."""
    done = [(t.setting, t.value) for t in trials if t.status == "done" and t.value is not None]
    if all(t.value is None for t in trials):
        raise BudgetExhausted("the accountant refused every trial; raise epsilon")
    if not done:
        raise BadInput("expected a finite accuracy, but every trial failed; lower the rates")
    surrogate = _fit(problem, trials)
    if surrogate is None:
        return max(done, key=lambda pair: pair[1])
    means = surrogate.mean(problem.points([s for s, _ in done]))
    k = int(means.argmax())
    return done[k][0], means[k].item()


@dataclass(frozen=True)
class _Surrogate:
    """A Gaussian process of value given point; it counts in standard deviations of the values."""

    model: Any
    problem: BudgetedSpace
    centre: float
    scale: float
    noise: float
    """Mean variance of an observation."""

    def mean(self, u: Float[np.ndarray, "n 5"]) -> Float[Tensor, " n"]:
        """Posterior mean of the value at points."""
        with _quiet(), torch.no_grad():
            posterior = self.model.posterior(_inputs(self.problem, u))
            return self.centre + self.scale * posterior.mean[:, 0]

    def improvement(
        self, best: float, pending: Float[np.ndarray, "p 5"] | None
    ) -> Callable[[Float[np.ndarray, "n 5"]], Float[np.ndarray, " n"]]:
        """The logarithm of augmented expected improvement over a value, as a function of points.

        Points that are pending count as observed at their posterior mean: the mean stays as it
        is, and the variance near them shrinks.
        """
        import botorch

        model = self.model
        if pending is not None:
            with _quiet(), torch.no_grad():
                x = _inputs(self.problem, pending)
                y = model.posterior(x).mean
                model = model.condition_on_observations(x, y, noise=torch.full_like(y, self.noise))
        gain = botorch.acquisition.LogExpectedImprovement(
            model, best_f=(best - self.centre) / self.scale
        )

        def score(u: Float[np.ndarray, "n 5"]) -> Float[np.ndarray, " n"]:
            with _quiet(), torch.no_grad():
                x = _inputs(self.problem, u)[:, None]
                variance = model.posterior(x).variance[:, 0, 0]
                # Where the value is known better than one more look would show it, nothing is won.
                news = 1 - (self.noise / (self.noise + variance)).sqrt()
                return (gain(x) + news.clamp(min=1e-12).log()).numpy()

        return score


def _fit(problem: BudgetedSpace, trials: list[TrialRecord]) -> _Surrogate | None:
    """The likeliest of many surrogates drawn from the priors; None where the data allow none."""
    from linear_operator.utils.errors import NanError, NotPSDError

    observed = [(t, t.value) for t in trials if t.value is not None]
    done = [v for t, v in observed if t.status == "done"]
    if len(done) < 2 or min(done) == max(done) or not problem.free:
        return None
    # A failure says that a setting is bad, not how bad: it counts as the worst that was seen.
    values = torch.tensor([v if t.status == "done" else min(done) for t, v in observed]).double()
    centre, scale = values.mean().item(), values.std().item()
    y = (values - centre) / scale
    x = _inputs(problem, problem.points([t.setting for t, _ in observed]))
    binomial = torch.zeros_like(y)
    if problem.validation_samples:
        p = values.clamp(0, 1)
        binomial = (p * (1 - p)).clamp(min=LEAST_VARIANCE) / problem.validation_samples / scale**2
    drawn = _hyperparameters(tuple(LENGTHS[i] / problem.spans[i] for i in problem.free))
    with _quiet(), torch.no_grad():
        try:
            k = int(_evidence(x, y, binomial, drawn).argmax())
            model = _model(x, y, binomial, [h[k] for h in drawn])
            finite = bool(model.posterior(x).mean.isfinite().all())
        except (NotPSDError, NanError, torch.linalg.LinAlgError):
            return None
    noise = (binomial + drawn[-1][k]).mean().item()
    return _Surrogate(model, problem, centre, scale, noise) if finite else None


@cache
def _hyperparameters(medians: tuple[float, ...]) -> list[Tensor]:
    """Length scales (k, d), variances (k,) and noises (k,), spread over their priors.

    Inputs fill the unit cube, in which length scales have these medians, and values have variance
    1. Without priors, five points fit every length scale.
    """
    d = len(medians)
    u = qmc.Sobol(d + 2, rng=np.random.default_rng(0)).random(DRAWN)
    lengths = stats.lognorm(0.7, scale=medians).ppf(u[:, :d])
    variances = stats.lognorm(0.7, scale=1.5).ppf(u[:, d])
    noises = stats.lognorm(1.2, scale=0.05).ppf(u[:, d + 1])
    return [torch.from_numpy(h) for h in (lengths, variances, noises + 1e-4)]


def _evidence(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    binomial: Float[Tensor, " n"],
    drawn: list[Tensor],
) -> Float[Tensor, " k"]:
    """Marginal likelihood of the values, its logarithm over n, under each of k draws."""
    from gpytorch import mlls

    model = _model(x, y, binomial, drawn)
    model.train()
    likelihood = mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return likelihood(model(*model.train_inputs), model.train_targets).nan_to_num(nan=-math.inf)


def _model(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    binomial: Float[Tensor, " n"],
    h: list[Tensor],
) -> Any:
    """BoTorch's model with given hyperparameters; k at once if they are."""
    import botorch
    from gpytorch import kernels, likelihoods

    lengths, variance, noise = h
    k = variance.shape
    likelihood = likelihoods.FixedNoiseGaussianLikelihood(
        binomial.expand(*k, -1), learn_additional_noise=True, batch_shape=k
    )
    matern = kernels.MaternKernel(ard_num_dims=x.shape[1], batch_shape=k)
    model = botorch.models.SingleTaskGP(
        x.expand(*k, -1, -1),
        y[:, None].expand(*k, -1, -1),
        likelihood=likelihood,
        covar_module=kernels.ScaleKernel(matern, batch_shape=k),
        outcome_transform=None,
    )
    model.covar_module.outputscale = variance
    matern.lengthscale = lengths[..., None, :]
    likelihood.second_noise_covar.noise = noise[..., None]
    return model


def _inputs(problem: BudgetedSpace, u: Float[np.ndarray, "n 5"]) -> Float[Tensor, "n d"]:
    return torch.from_numpy(problem.inputs(u))


@contextmanager
def _quiet() -> Iterator[None]:
    """One thread, so that sums come in one order, and no warnings."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
