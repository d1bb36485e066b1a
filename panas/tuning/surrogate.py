"""The surrogate of a hyperparameter search: a Gaussian process of accuracy given settings.

| paper | here |
|---|---|
| surrogate | Matern 5/2, one length scale each, standardised outcomes |
| noise of an observation p | p (1 - p) / n_validation, and a learnt part for the training's own |
| acquisition | augmented expected improvement over the best posterior mean, as its logarithm |

Augmented is expected improvement times 1 - sqrt(v / (v + s^2)), with noise v and posterior variance
s^2: it leaves what another look would not show any better. BoTorch and GPyTorch are loaded on first
use.

Source: DPFNAS, section III-A3 and equation 1; Huang et al. 2006 for the augmentation; Ament et al.
2023 for the logarithm.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor

from panas.runtime.seeds import one_thread
from panas.tuning.space import BudgetedSpace
from panas.tuning.trial import TrialRecord

DRAWN = 512  # hyperparameters of the surrogate that are compared, a power of 2

LENGTHS = (2.0, 8.0, 1.0, 2.2, 1.1)
"""Prior medians of the length scales, by axis, in natural logarithms: accuracy depends most on how
long the path is and on how many passes it takes, least on clip (once below most gradients)."""

LEAST_VARIANCE = 0.05  # of right or wrong, p (1 - p): an accuracy of 0 or 1 is not certain


@dataclass(frozen=True)
class Hyperparameters:
    """Of one Gaussian process, or of k at once, for values of variance 1 on the unit cube."""

    lengths: Float[Tensor, "*k d"]
    variance: Float[Tensor, "*k"]
    noise: Float[Tensor, "*k"]


@dataclass(frozen=True)
class Observations:
    """Standardised values at points of the unit cube, with their binomial variances."""

    x: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    binomial: Float[Tensor, " n"]


@dataclass(frozen=True)
class Surrogate:
    """A Gaussian process of value given point; it counts in standard deviations of the values."""

    model: Any
    space: BudgetedSpace
    centre: float
    scale: float
    noise: float  # mean variance of an observation

    def mean(self, u: Float[np.ndarray, "n 5"]) -> Float[Tensor, " n"]:
        """Posterior mean of the value at points."""
        with quiet(), torch.no_grad():
            posterior = self.model.posterior(self._inputs(u))
            return self.centre + self.scale * posterior.mean[:, 0]

    def improvement(
        self, best: float, pending: Float[np.ndarray, "p 5"] | None
    ) -> Callable[[Float[np.ndarray, "n 5"]], Float[np.ndarray, " n"]]:
        """The logarithm of augmented expected improvement over a value, as a function of points.

        Pending points count as observed at their posterior mean: the variance near them shrinks.
        """
        import botorch

        model = self.model
        if pending is not None:
            with quiet(), torch.no_grad():
                x = self._inputs(pending)
                y = model.posterior(x).mean
                model = model.condition_on_observations(x, y, noise=torch.full_like(y, self.noise))
        gain = botorch.acquisition.LogExpectedImprovement(
            model, best_f=(best - self.centre) / self.scale
        )

        def score(u: Float[np.ndarray, "n 5"]) -> Float[np.ndarray, " n"]:
            with quiet(), torch.no_grad():
                x = self._inputs(u)[:, None]
                variance = model.posterior(x).variance[:, 0, 0]
                # Where the value is known better than one more look would show it, nothing is won.
                news = 1 - (self.noise / (self.noise + variance)).sqrt()
                return (gain(x) + news.clamp(min=1e-12).log()).numpy()

        return score

    def _inputs(self, u: Float[np.ndarray, "n 5"]) -> Float[Tensor, "n d"]:
        return torch.from_numpy(self.space.inputs(u))


def fit_surrogate(
    space: BudgetedSpace, trials: Sequence[TrialRecord], validation_samples: int | None
) -> Surrogate | None:
    """The likeliest of `DRAWN` surrogates drawn from the priors; None where the data allow none.

    Args:
        space: its cube.
        trials: all so far; those without a value are left out.
        validation_samples: those that a value is the share of; None if that is unknown.
    """
    with quiet():
        from linear_operator.utils.errors import NanError, NotPSDError

    observed = [(t, t.value) for t in trials if t.value is not None]
    done = [v for t, v in observed if t.status == "done"]
    if len(done) < 2 or min(done) == max(done) or not space.free:
        return None
    # A failure says that a setting is bad, not how bad: it counts as the worst that was seen.
    values = torch.tensor([v if t.status == "done" else min(done) for t, v in observed]).double()
    centre, scale = values.mean().item(), values.std().item()
    x = torch.from_numpy(space.inputs(space.points([t.setting for t, _ in observed])))
    binomial = torch.zeros_like(values)
    if validation_samples:
        p = values.clamp(0, 1)
        binomial = (p * (1 - p)).clamp(min=LEAST_VARIANCE) / validation_samples / scale**2
    data = Observations(x, (values - centre) / scale, binomial)
    drawn = draw_hyperparameters(tuple(LENGTHS[i] / space.spans[i] for i in space.free))
    with quiet(), torch.no_grad():
        try:
            k = _evidence(data, drawn).argmax()
            likeliest = Hyperparameters(drawn.lengths[k], drawn.variance[k], drawn.noise[k])
            model = _model(data, likeliest)
            finite = bool(model.posterior(x).mean.isfinite().all())
        except (NotPSDError, NanError, torch.linalg.LinAlgError):
            return None
    noise = (binomial + likeliest.noise).mean().item()
    return Surrogate(model, space, centre, scale, noise) if finite else None


@cache
def draw_hyperparameters(medians: tuple[float, ...]) -> Hyperparameters:
    """Hyperparameters spread over their priors, length scales with these medians."""
    d = len(medians)
    u = scipy.stats.qmc.Sobol(d + 2, rng=np.random.default_rng(0)).random(DRAWN)
    lengths = scipy.stats.lognorm(0.7, scale=medians).ppf(u[:, :d])
    variances = scipy.stats.lognorm(0.7, scale=1.5).ppf(u[:, d])
    noises = scipy.stats.lognorm(1.2, scale=0.05).ppf(u[:, d + 1])
    return Hyperparameters(*map(torch.from_numpy, (lengths, variances, noises + 1e-4)))


def _evidence(data: Observations, drawn: Hyperparameters) -> Float[Tensor, " k"]:
    """Marginal likelihood of the values, its logarithm over n, under each of k draws."""
    from gpytorch import mlls

    model = _model(data, drawn)
    model.train()
    likelihood = mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return likelihood(model(*model.train_inputs), model.train_targets).nan_to_num(nan=-math.inf)


def _model(data: Observations, h: Hyperparameters) -> Any:
    """BoTorch's model with given hyperparameters; k at once if they are."""
    import botorch
    from gpytorch import kernels, likelihoods

    k = h.variance.shape
    likelihood = likelihoods.FixedNoiseGaussianLikelihood(
        data.binomial.expand(*k, -1), learn_additional_noise=True, batch_shape=k
    )
    matern = kernels.MaternKernel(ard_num_dims=data.x.shape[1], batch_shape=k)
    model = botorch.models.SingleTaskGP(
        data.x.expand(*k, -1, -1),
        data.y[:, None].expand(*k, -1, -1),
        likelihood=likelihood,
        covar_module=kernels.ScaleKernel(matern, batch_shape=k),
        outcome_transform=None,
    )
    model.covar_module.outputscale = h.variance
    matern.lengthscale = h.lengths[..., None, :]
    likelihood.second_noise_covar.noise = h.noise[..., None]
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """One thread, so that sums come in one order, and no warnings."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
