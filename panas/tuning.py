"""Hyperparameters under a privacy budget, by Bayesian optimisation: Algorithm 1, second half.

| paper | here |
|---|---|
| eta, sigma, C, B | `Setting`: learning_rate, noise_multiplier, clip, batch_size |
| surrogate | Gaussian process, Matern 5/2, one length scale each, standardised outcomes |
| acquisition | expected improvement, as its logarithm (the same maximiser, better gradients) |
| epsilon(theta) <= budget | noise_multiplier >= the least that the whole plan can afford |

The constraint holds by construction: for each batch size the noise is searched from the least that
fits the budget upwards. The accountant is asked again before a trial trains. Inputs of the process
are logarithms, scaled to the unit cube. BoTorch and GPyTorch live only here, loaded on first use.

Privacy: the winner releases whatever the objective reads. The constraint prices the training that
follows, not the trials; if they read private data, the caller must account for every one.

Source: DPFNAS, section III-A3 and equation 1; Ament et al. 2023 for the logarithm.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from panas.errors import BadInput, BudgetExhausted

Proposer = Literal["random", "ei"]
RESTARTS, RAW_SAMPLES = 4, 32  # effort of maximising the acquisition, for each batch size


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The hyperparameters of DP-SGD."""

    learning_rate: float
    """Step size, above 0."""
    noise_multiplier: float
    """Standard deviation of the noise over the clipping norm, above 0."""
    clip: float
    """Clipping norm C of a sample's gradient, above 0."""
    batch_size: int
    """Expected samples a batch, at least 1."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "noise_multiplier", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"expected {name} finite and above 0, got {value}; raise it")
        if self.batch_size < 1 or self.batch_size != int(self.batch_size):
            raise BadInput(f"expected batch_size as an integer >= 1, got {self.batch_size}; fix it")

    def as_dict(self) -> dict[str, float | int]:
        """The setting as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class TuningSpace:
    """Where to look; all ranges are searched on a log scale, and lowest = highest fixes a value."""

    learning_rate: tuple[float, float] = (1e-3, 1.0)
    """Lowest and highest step size, above 0."""
    clip: tuple[float, float] = (0.1, 10.0)
    """Lowest and highest clipping norm, above 0."""
    noise_factor: tuple[float, float] = (1.0, 4.0)
    """Noise over the least that the budget affords at that batch size, at least 1."""
    batch_sizes: tuple[int, ...] = (16, 32, 64)
    """Batch sizes to choose from, distinct, at least 1."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip", "noise_factor"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf or (name == "noise_factor" and low < 1):
                raise BadInput(
                    f"expected {name} as 0 < low <= high, finite, and noise_factor from 1 on, "
                    f"got ({low}, {high}); fix the range"
                )
        sizes = self.batch_sizes
        if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
            raise BadInput(f"expected distinct batch_sizes of at least 1, got {sizes}; fix them")


@dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """Length of the search."""

    initial: int = 5
    """Trials at random settings before the surrogate guides, at least 1."""
    trials: int = 30
    """All trials, the initial ones and refused ones included, at least 1."""

    def __post_init__(self) -> None:
        if min(self.initial, self.trials) < 1:
            raise BadInput(f"expected initial and trials of at least 1, got {self}; raise them")


@dataclass(frozen=True)
class TrialRecord:
    """One trial; `value` is None where the accountant refused, 0 where the objective failed."""

    number: int
    setting: Setting
    value: float | None
    status: Literal["done", "failed", "over budget"]
    proposed_by: Proposer


@dataclass(frozen=True)
class TuningResult:
    """The winner, its predicted value (posterior mean), and every trial in order."""

    best: Setting
    predicted: float
    trials: tuple[TrialRecord, ...]


Bounds = Mapping[int, Float[np.ndarray, "2 4"]]
"""Batch size -> lowest and highest values of the setting's four fields, in their order."""


def tune(
    objective: Callable[[Setting], float],
    *,
    space: TuningSpace,
    config: TuningConfig,
    minimum_noise: Callable[[int], float | None],
    is_affordable: Callable[[Setting], bool],
    rng: np.random.Generator,
    on_trial: Callable[[TrialRecord], None] | None = None,
) -> TuningResult:
    """Search for the setting with the best validation accuracy that the budget allows.

    Args:
        objective: accuracy after training with a setting; one that is not finite is recorded as
            failed, with value 0. Its exceptions propagate.
        space: ranges of the search.
        config: number of trials.
        minimum_noise: least noise multiplier whose whole plan fits the budget at a batch size, or
            None if none does; that batch size is then left out.
        is_affordable: the accountant, asked once before each trial; a trial that it refuses is
            recorded as over budget, never trained, and the next one is drawn at random.
        rng: source of every draw; the result is a function of it and of the callables.
        on_trial: called after each trial, refused ones included.

    Returns:
        The setting with the highest posterior mean among those that were trained.

    Raises:
        BudgetExhausted: if the budget fits no batch size, or the accountant refused every trial.
        BadInput: if every trial that was trained failed.

    """
    bounds = _bounds(space, minimum_noise)
    trials: list[TrialRecord] = []
    for number in range(config.trials):
        guided = number >= config.initial and trials[-1].status != "over budget"
        proposal = _improve(trials, bounds, rng) if guided else None
        setting = proposal or _random(bounds, rng)
        value = float(objective(setting)) if is_affordable(setting) else None
        trials.append(_record(number, setting, value, "ei" if proposal else "random"))
        if on_trial is not None:
            on_trial(trials[-1])
    best, predicted = _winner(trials, bounds, rng)
    return TuningResult(best, predicted, tuple(trials))


def _record(number: int, setting: Setting, value: float | None, by: Proposer) -> TrialRecord:
    if value is None:
        return TrialRecord(number, setting, None, "over budget", by)
    if not math.isfinite(value):
        return TrialRecord(number, setting, 0.0, "failed", by)
    return TrialRecord(number, setting, value, "done", by)


def _bounds(space: TuningSpace, minimum_noise: Callable[[int], float | None]) -> Bounds:
    bounds = {}
    for size in space.batch_sizes:
        least = minimum_noise(size)
        if least is None:
            continue
        if not 0 < least < math.inf:
            raise BadInput(f"expected a least noise above 0, got {least}; set a finite epsilon")
        noise = tuple(least * factor for factor in space.noise_factor)
        bounds[size] = np.array((space.learning_rate, noise, space.clip, (size, size)), float).T
    if not bounds:
        raise BudgetExhausted(
            f"the budget fits no batch size of {space.batch_sizes} even with the largest noise; "
            "raise epsilon or plan fewer steps"
        )
    return bounds


def _random(bounds: Bounds, rng: np.random.Generator) -> Setting:
    size = list(bounds)[rng.integers(len(bounds))]
    low, high = np.log(bounds[size])
    return _setting(rng.uniform(low, high), size, bounds)


def _setting(logs: Float[np.ndarray, " 4"], size: int, bounds: Bounds) -> Setting:
    """The setting of logarithms, not a rounding error outside its bounds."""
    rate, noise, clip, _ = np.clip(np.exp(logs), *bounds[size]).tolist()
    return Setting(learning_rate=rate, noise_multiplier=noise, clip=clip, batch_size=size)


def _improve(trials: list[TrialRecord], bounds: Bounds, rng: np.random.Generator) -> Setting | None:
    """The setting of highest expected improvement, or None if no surrogate can be fitted."""
    low, span = _cube(bounds)
    with _quiet(rng):
        import botorch

        surrogate = _fit(trials, bounds)
        if surrogate is None:
            return None
        best = max(t.value for t in trials if t.value is not None)
        acquisition = botorch.acquisition.LogExpectedImprovement(surrogate, best_f=best)
        proposals = []
        for size, box in bounds.items():
            unit = torch.from_numpy((np.log(box) - low) / span)
            fixed = {i: unit[0, i].item() for i in range(4) if unit[0, i] == unit[1, i]}
            x, score = botorch.optim.optimize_acqf(
                acquisition, unit, 1, RESTARTS, RAW_SAMPLES, fixed_features=fixed
            )
            proposals.append((torch.as_tensor(score).item(), size, x.detach().numpy()[0]))
    _, size, x = max(proposals, key=lambda proposal: proposal[0])
    return _setting(low + span * x, size, bounds)


def _winner(
    trials: list[TrialRecord], bounds: Bounds, rng: np.random.Generator
) -> tuple[Setting, float]:
    """The trained setting of highest posterior mean; without a surrogate, of highest value."""
    done = [(t.setting, t.value) for t in trials if t.status == "done" and t.value is not None]
    if all(t.value is None for t in trials):
        raise BudgetExhausted("the accountant refused every trial; raise epsilon")
    if not done:
        raise BadInput("expected a finite accuracy, but every trial failed; lower the rates")
    with _quiet(rng):
        surrogate = _fit(trials, bounds)
        if surrogate is None:
            return max(done, key=lambda pair: pair[1])
        means = surrogate.posterior(_inputs([s for s, _ in done], bounds)).mean[:, 0].tolist()
    k = int(np.argmax(means))
    return done[k][0], means[k]


def _fit(trials: list[TrialRecord], bounds: Bounds) -> Any:
    """A fitted BoTorch model of value given inputs, or None where the data allow none."""
    import botorch
    from botorch.models.transforms import Standardize
    from gpytorch import kernels, mlls, priors
    from linear_operator.utils.errors import NanError, NotPSDError

    observed = [t for t in trials if t.value is not None]
    values = torch.tensor([[t.value] for t in observed], dtype=torch.float64)
    if len(values) < 2 or values.std() == 0:
        return None
    # Matern 5/2 with BoTorch's classical priors for standardised outcomes on a unit cube: without
    # any, five points fit every length scale.
    matern = kernels.MaternKernel(ard_num_dims=4, lengthscale_prior=priors.GammaPrior(3.0, 6.0))
    surrogate = botorch.models.SingleTaskGP(
        _inputs([t.setting for t in observed], bounds),
        values,
        covar_module=kernels.ScaleKernel(matern, outputscale_prior=priors.GammaPrior(2.0, 0.15)),
        outcome_transform=Standardize(m=1),
    )
    try:
        botorch.fit_gpytorch_mll(mlls.ExactMarginalLogLikelihood(surrogate.likelihood, surrogate))
        surrogate.posterior(surrogate.train_inputs[0])
    except (botorch.exceptions.ModelFittingError, NotPSDError, NanError, torch.linalg.LinAlgError):
        return None
    return surrogate


def _cube(bounds: Bounds) -> tuple[Float[np.ndarray, " 4"], Float[np.ndarray, " 4"]]:
    """Origin and sides of the box that becomes the unit cube; a fixed value gets side 1."""
    boxes = np.stack(list(bounds.values()))
    low, high = np.log(boxes[:, 0].min(axis=0)), np.log(boxes[:, 1].max(axis=0))
    return low, np.where(high > low, high - low, 1.0)


def _inputs(settings: list[Setting], bounds: Bounds) -> Float[Tensor, "n 4"]:
    low, span = _cube(bounds)
    return torch.from_numpy((np.log([astuple(setting) for setting in settings]) - low) / span)


@contextmanager
def _quiet(rng: np.random.Generator) -> Iterator[None]:
    """Seed BoTorch's draws from `rng`, leave torch's global state as it was, and hush warnings."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # The CPU generator only: torch.manual_seed would reseed every accelerator as well.
        torch.default_generator.manual_seed(int(rng.integers(2**63)))
        warnings.simplefilter("ignore")
        yield
