"""The space of DP-SGD hyperparameters, and its surrogate against closed forms."""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float
from made_samples import one_at_a_time
from torch import Tensor
from toy_accuracy import budgeted, search

from panas.runtime.errors import BadInput
from panas.tuning.bayesian import Strategy
from panas.tuning.space import DPSGDSettings, Menu, Range, TuningSpace, choice
from panas.tuning.surrogate import DRAWN, LENGTHS, Surrogate, draw_hyperparameters, fit_surrogate
from panas.tuning.trial import TrialRecord, TuningConfig


@pytest.mark.parametrize("menu", [range(16, 257), range(1, 2), (8, 32, 64), (7,)])
def test_every_integer_of_a_menu_can_be_drawn_and_found_again(menu: Menu) -> None:
    axis = choice(menu)
    values = np.array(sorted(menu), dtype=float)
    np.testing.assert_array_equal(axis.value(axis.coordinates(values)), values)
    drawn = axis.value(np.random.default_rng(0).random(20_000))
    assert set(drawn) <= set(values)
    if isinstance(menu, tuple):
        share = np.mean(drawn == values[0])
        assert share == pytest.approx(1 / len(menu), abs=0.02)
    elif len(menu) > 1:
        # Alike on a log scale: half of the draws are below the geometric mean of the ends.
        assert np.mean(drawn < math.sqrt(16 * 257)) == pytest.approx(0.5, abs=0.02)


@given(u=st.floats(0, 1), low=st.floats(1e-6, 1e3), ratio=st.floats(1, 1e6))
def test_a_range_is_never_left_by_a_rounding_error(u: float, low: float, ratio: float) -> None:
    axis = Range(low, low * ratio)
    value = axis.value(np.array([u, 0.0, 1.0]))
    assert np.all((axis.low <= value) & (value <= axis.high))
    assert Range(low, low).coordinates(value).tolist() == [0.5] * 3
    if ratio > 1.01:
        np.testing.assert_allclose(axis.coordinates(value), [u, 0, 1], atol=1e-9)


GOOD = {"learning_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "batch_size": 16}


@pytest.mark.parametrize(
    ("of", "fields"),
    [
        *(
            (DPSGDSettings, GOOD | wrong)
            for wrong in one_at_a_time(
                learning_rate=(0.0, math.nan),
                noise_multiplier=[-1.0],
                clip=[math.inf],
                batch_size=[0],
                epochs=[0],
            )
        ),
        *(
            (TuningSpace, wrong)
            for wrong in one_at_a_time(
                learning_rate=((0.0, 1.0), (1.0, 0.1)),
                clip=[(1.0, math.inf)],
                noise_factor=[(0.9, 2.0)],
                batch_sizes=((), (16, 16), (0,), range(0)),
                epochs=((3, 3), range(5)),
            )
        ),
        *((TuningConfig, wrong) for wrong in ({"trials": -1}, {"initial": 0}, {"parallel": 0})),
    ],
)
def test_bad_settings_spaces_and_configs_are_refused(of: type, fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="at least 1" if of is TuningConfig else "expected"):
        of(**fields)


def fitted(trials: Sequence[TrialRecord], validation_samples: int | None = None) -> Surrogate:
    surrogate = fit_surrogate(budgeted(), list(trials), validation_samples)
    assert surrogate is not None
    return surrogate


def inputs(u: Float[np.ndarray, "n 5"]) -> Float[Tensor, "n d"]:
    return torch.from_numpy(budgeted().inputs(u))


def test_augmented_expected_improvement_is_the_closed_form() -> None:
    surrogate = fitted(search(trials=8, initial=8).trials, validation_samples=50)
    u = np.random.default_rng(1).random((6, 5))
    posterior = surrogate.model.posterior(inputs(u))
    mean, variance = posterior.mean[:, 0].detach(), posterior.variance[:, 0].detach()
    torch.testing.assert_close(surrogate.mean(u), surrogate.centre + surrogate.scale * mean)
    std = variance.sqrt()
    z = (mean - (0.6 - surrogate.centre) / surrogate.scale) / std
    normal = torch.distributions.Normal(0.0, 1.0)
    closed = std * (z * normal.cdf(z) + normal.log_prob(z).exp())
    closed *= 1 - (surrogate.noise / (surrogate.noise + variance)) ** 0.5
    log_ei = torch.from_numpy(surrogate.improvement(0.6, None)(u))
    torch.testing.assert_close(log_ei.exp(), closed, rtol=1e-5, atol=1e-9)


def posterior_by_hand(
    surrogate: Surrogate, x: Tensor, noise: Tensor, at: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance by the textbook, from kernel, observations and noise."""
    model = surrogate.model
    kernel = lambda a, b: model.covar_module(a, b).to_dense().detach()  # noqa: E731
    mean = model.mean_module.constant.detach()
    K = kernel(x, x) + noise.diag()
    cross = kernel(at, x)
    weights = torch.linalg.solve(K, model.train_targets.detach() - mean)
    variance = kernel(at, at).diag() - (cross * torch.linalg.solve(K, cross.T).T).sum(1)
    return mean + cross @ weights, variance


@pytest.mark.slow
@pytest.mark.parametrize("validation_samples", [None, 20, 2000])
def test_the_surrogate_is_a_gaussian_process_with_the_noise_of_an_accuracy(
    validation_samples: int | None,
) -> None:
    trials = search(trials=12, initial=12).trials
    surrogate = fitted(trials, validation_samples=validation_samples)
    x, y = surrogate.model.train_inputs[0], surrogate.model.train_targets
    p = torch.tensor([t.value for t in trials], dtype=torch.float64)
    binomial = torch.zeros(12, dtype=torch.float64)
    if validation_samples:
        binomial = (p * (1 - p)).clamp(min=0.05) / validation_samples / surrogate.scale**2
    noise = binomial + surrogate.model.likelihood.second_noise.detach()
    assert surrogate.noise == pytest.approx(noise.mean().item())
    at = inputs(np.random.default_rng(2).random((5, 5)))
    mean, variance = posterior_by_hand(surrogate, x, noise, at)
    posterior = surrogate.model.posterior(at)
    torch.testing.assert_close(posterior.mean[:, 0].detach(), mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(posterior.variance[:, 0].detach(), variance, rtol=1e-3, atol=1e-5)
    # No other of the hyperparameters that were drawn makes the values likelier.
    spans = budgeted().spans
    drawn = draw_hyperparameters(tuple(LENGTHS[i] / spans[i] for i in budgeted().free))
    evidence = []
    parts = drawn.lengths, drawn.variance, drawn.noise
    for lengths, variance, learnt in zip(*parts, strict=True):
        r = 5**0.5 * ((x[:, None] - x[None]) / lengths).norm(dim=2)
        K = variance * (1 + r + r * r / 3) * (-r).exp() + (binomial + learnt).diag()
        spread = torch.distributions.MultivariateNormal(torch.zeros_like(y), K)
        evidence.append(spread.log_prob(y).item())
    best = int(np.argmax(evidence))
    lengths = surrogate.model.covar_module.base_kernel.lengthscale.detach()[0]
    torch.testing.assert_close(lengths, drawn.lengths[best])
    assert surrogate.model.likelihood.second_noise.item() == pytest.approx(drawn.noise[best].item())


def test_hyperparameters_fill_their_priors() -> None:
    drawn = draw_hyperparameters((0.2, 0.5, 1.0))
    lengths, variances, noises = drawn.lengths, drawn.variance, drawn.noise
    assert lengths.shape == (DRAWN, 3)
    assert lengths.median(0).values.tolist() == pytest.approx([0.2, 0.5, 1.0], rel=0.02)
    assert variances.log().std().item() == pytest.approx(0.7, rel=0.05)
    assert noises.min() >= 1e-4
    assert torch.corrcoef(lengths.log().T).triu(1).abs().max() < 0.1


def test_few_validation_samples_make_the_surrogate_doubt_what_it_saw() -> None:
    trials = search(trials=12, initial=12).trials
    spread = {}
    for n in (3, 10_000):
        means = fitted(trials, validation_samples=n).mean(budgeted().points(settings_of(trials)))
        spread[n] = means.std().item()
    assert spread[3] < 0.9 * spread[10_000]


def settings_of(trials: Sequence[TrialRecord]) -> list[DPSGDSettings]:
    return [t.setting for t in trials]


@pytest.mark.slow
def test_the_surrogate_is_the_papers_and_predicts_the_posterior_mean_of_the_best() -> None:
    surrogate = fitted(search(trials=8, initial=8).trials)
    kernel = surrogate.model.covar_module.base_kernel
    assert kernel.nu == 2.5
    assert kernel.lengthscale.shape == (1, 4)  # passes are not looked for
    x, y = surrogate.model.train_inputs[0], surrogate.model.train_targets
    assert x.dtype == torch.float64
    assert x.min() >= 0
    assert x.max() <= 1
    assert y.mean().abs() < 1e-9
    assert y.std().item() == pytest.approx(1)
    result = search(trials=10)
    means = fitted(result.trials).mean(budgeted().points(settings_of(result.trials)))
    assert result.predicted == pytest.approx(means.max().item(), abs=1e-6)
    assert result.best == result.trials[int(means.argmax())].setting


def test_settings_of_equal_path_share_the_surrogates_first_input() -> None:
    space = TuningSpace(
        learning_rate=(0.01, 1.0), clip=(0.1, 10.0), batch_sizes=(10, 100), epochs=(1, 10)
    )
    known = budgeted(space, lambda batch, epochs: 1.0)
    rows = [(0.1, 1.0, 10, 1), (1.0, 0.1, 100, 10), (0.01, 10.0, 10, 1), (0.1, 0.1, 10, 10)]
    ends = [(0.01, 0.1, 100, 1), (1.0, 10.0, 10, 10)]

    def first(rows: list[tuple[float, float, int, int]]) -> list[float]:
        points = known.points(
            [
                DPSGDSettings(learning_rate=a, noise_multiplier=1.1, clip=c, batch_size=b, epochs=e)
                for a, c, b, e in rows
            ]
        )
        return known.inputs(points)[:, 0].tolist()

    assert first(rows) == pytest.approx([0.5] * 4, abs=0.01)
    assert first(ends) == pytest.approx([0, 1], abs=1e-9)


def test_what_is_pending_is_not_proposed_again() -> None:
    surrogate = fitted(search(trials=10, initial=10).trials, validation_samples=300)
    u = np.random.default_rng(3).random((200, 5))
    incumbent = surrogate.mean(u).max().item()
    before = surrogate.improvement(incumbent, None)(u)
    best = u[[before.argmax()]]
    after = surrogate.improvement(incumbent, best)(u)
    assert after[before.argmax()] < before.max() - 0.5
    assert np.all(after <= before + 1e-6)  # the mean stays, and no variance grows
    far = (inputs(u) - inputs(best)).abs().max(1).values.argmax()
    assert after[far] == pytest.approx(before[far], abs=0.3)


def test_the_winner_has_the_highest_posterior_mean_not_the_luckiest_score() -> None:
    # A crowd of plain scores around one fluke, and a peak elsewhere that is a bit lower.
    def trial(number: int, rate: float, value: float) -> TrialRecord:
        setting = DPSGDSettings(learning_rate=rate, noise_multiplier=1.0, clip=1.0, batch_size=16)
        return TrialRecord(number, setting, value, "done", "random")

    crowd = [(0.003 * 1.01**i, 0.3 + 0.01 * (-1) ** i) for i in range(12)]
    crowd[6] = (crowd[6][0], 0.85)
    peak = [(0.3 * 1.01**i, 0.8 + 0.01 * (-1) ** i) for i in range(12)]
    trials = [trial(i, *pair) for i, pair in enumerate(crowd + peak)]
    space = TuningSpace(batch_sizes=(16,))
    strategy = Strategy(budgeted(space, lambda size, _: 0.7), TuningConfig(), 0, None)
    best, predicted = strategy.winner(trials)
    assert best.learning_rate >= 0.3
    assert predicted == pytest.approx(0.8, abs=0.05)


@pytest.mark.slow
def test_the_libraries_warn_nobody_when_they_are_loaded() -> None:
    code = (
        "from panas.tuning.surrogate import fit_surrogate\n"
        "try: fit_surrogate(None, None, None)\n"
        "except TypeError: pass\n"
        "import botorch, gpytorch\n"
    )
    root = Path(__file__).parents[3]
    call = [sys.executable, "-W", "error::FutureWarning", "-c", code]
    subprocess.run(call, cwd=root, check=True)
