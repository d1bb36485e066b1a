"""The hyperparameter search: bounds, budget, order of the questions, and that it searches."""

import json
import math
import random
from collections.abc import Callable
from typing import Any

import botorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panas import tuning
from panas.errors import BadInput, BudgetExhausted
from panas.tuning import Setting, TrialRecord, TuningConfig, TuningResult, TuningSpace, tune

SPACE = TuningSpace()
LEAST = {16: 0.7, 32: 1.1, 64: 1.7}


def smooth(setting: Setting) -> float:
    """An accuracy with one peak, at learning rate 0.1, clip 1 and as little noise as can be."""
    x = (
        math.log10(setting.learning_rate) + 1,
        math.log10(setting.clip),
        0.4 * math.log(setting.noise_multiplier),
        0.2 * math.log2(setting.batch_size / 64),
    )
    return math.exp(-sum(v * v for v in x))


def search(
    objective: Callable[[Setting], float] = smooth,
    *,
    seed: int = 0,
    trials: int = 9,
    initial: int = 4,
    space: TuningSpace = SPACE,
    minimum_noise: Callable[[int], float | None] = LEAST.get,
    is_affordable: Callable[[Setting], bool] = lambda _: True,
    on_trial: Callable[[TrialRecord], None] | None = None,
) -> TuningResult:
    return tune(
        objective,
        space=space,
        config=TuningConfig(initial=initial, trials=trials),
        minimum_noise=minimum_noise,
        is_affordable=is_affordable,
        rng=np.random.default_rng(seed),
        on_trial=on_trial,
    )


def assert_inside(setting: Setting, space: TuningSpace, least: float) -> None:
    assert space.learning_rate[0] <= setting.learning_rate <= space.learning_rate[1]
    assert space.clip[0] <= setting.clip <= space.clip[1]
    assert setting.batch_size in space.batch_sizes
    low, high = (least * factor for factor in space.noise_factor)
    assert low <= setting.noise_multiplier <= high


def test_every_proposal_is_inside_its_bounds_and_affordable() -> None:
    result = search(trials=12)
    assert [t.number for t in result.trials] == list(range(12))
    assert [t.proposed_by for t in result.trials] == ["random"] * 4 + ["ei"] * 8
    for trial in result.trials:
        assert_inside(trial.setting, SPACE, LEAST[trial.setting.batch_size])
        assert trial.status == "done"
        assert trial.value == smooth(trial.setting)


@settings(max_examples=50, deadline=None)
@given(
    least=st.floats(1e-3, 1e3),
    factors=st.tuples(st.floats(1, 2), st.floats(2, 5)),
    seed=st.integers(0, 2**32),
)
def test_random_settings_never_fall_below_the_least_noise(
    least: float, factors: tuple[float, float], seed: int
) -> None:
    space = TuningSpace(noise_factor=factors)
    bounds, rng = tuning._bounds(space, lambda _: least), np.random.default_rng(seed)
    for _ in range(5):
        assert_inside(tuning._random(bounds, rng), space, least)


def test_fixed_values_stay_fixed_to_the_last_bit() -> None:
    # The budget binds exactly: noise at its least, where one rounding error would overspend.
    space = TuningSpace(clip=(0.3, 0.3), noise_factor=(1.0, 1.0), batch_sizes=(7,))
    result = search(space=space, minimum_noise=lambda _: 0.7123456789)
    for trial in result.trials:
        assert trial.setting.clip == 0.3
        assert trial.setting.noise_multiplier == 0.7123456789
        assert trial.setting.batch_size == 7
    assert len({trial.setting.learning_rate for trial in result.trials}) > 5


def test_a_space_of_one_setting_is_tuned_to_it() -> None:
    space = TuningSpace(
        learning_rate=(0.1, 0.1), clip=(1.0, 1.0), noise_factor=(1.0, 1.0), batch_sizes=(16,)
    )
    values = iter([0.5, 0.6, 0.4, 0.5, 0.7])
    result = search(lambda _: next(values), space=space, trials=5, initial=3)
    assert {trial.setting for trial in result.trials} == {result.best}


def test_the_accountant_is_asked_before_each_trial_trains() -> None:
    log: list[tuple[str, Setting]] = []

    def affordable(setting: Setting) -> bool:
        log.append(("asked", setting))
        return setting.learning_rate < 0.3

    def objective(setting: Setting) -> float:
        log.append(("trained", setting))
        return smooth(setting)

    result = search(objective, is_affordable=affordable, trials=12, seed=3)
    refused = [t for t in result.trials if t.status == "over budget"]
    assert refused
    expected: list[tuple[str, Setting]] = []
    for trial in result.trials:
        expected.append(("asked", trial.setting))
        if trial.status != "over budget":
            expected.append(("trained", trial.setting))
    assert log == expected
    assert len(result.trials) == 12  # a refused one counts as a trial
    assert all(t.value is None and t.setting.learning_rate >= 0.3 for t in refused)
    assert result.best.learning_rate < 0.3
    for before, after in zip(result.trials, result.trials[1:], strict=False):
        if before.status == "over budget":
            assert after.proposed_by == "random"  # or the same refused maximiser came for ever


def test_an_accountant_that_refuses_all_exhausts_the_budget() -> None:
    def objective(_: Setting) -> float:
        raise AssertionError("trained without the accountant's leave")

    with pytest.raises(BudgetExhausted, match="refused every trial"):
        search(objective, is_affordable=lambda _: False, trials=7)


def test_batch_sizes_that_do_not_fit_are_left_out() -> None:
    result = search(minimum_noise=lambda size: 2.0 if size == 32 else None)
    assert {trial.setting.batch_size for trial in result.trials} == {32}
    with pytest.raises(BudgetExhausted, match="no batch size"):
        search(minimum_noise=lambda _: None)
    with pytest.raises(BadInput, match="least noise"):
        search(minimum_noise=lambda _: 0.0)


def test_the_result_is_a_function_of_the_rng_and_global_states_are_left_alone() -> None:
    torch.manual_seed(1)
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1]
    first = search(seed=5, trials=6)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    torch.manual_seed(2)
    random.seed(2)
    assert search(seed=5, trials=6) == first
    assert search(seed=6, trials=6) != first


def test_it_beats_random_search() -> None:
    guided, blind = [], []
    space = TuningSpace(batch_sizes=(64,))
    for seed in range(3):
        guided.append(smooth(search(seed=seed, trials=13, space=space).best))
        # As many initial trials as trials is random search, its best as observed.
        trials = search(seed=100 + seed, trials=13, initial=13, space=space).trials
        blind.append(max(t.value for t in trials if t.value is not None))
    assert np.median(guided) > np.median(blind)
    assert min(guided) > 0.9


def test_expected_improvement_is_the_closed_form() -> None:
    trials = list(search(trials=8, initial=8).trials)
    bounds = tuning._bounds(SPACE, LEAST.get)
    surrogate = tuning._fit(trials, bounds)
    best = max(t.value for t in trials if t.value is not None)
    x = tuning._inputs([t.setting for t in search(seed=1, trials=6, initial=6).trials], bounds)
    posterior = surrogate.posterior(x)
    mean, std = posterior.mean[:, 0], posterior.variance[:, 0].sqrt()
    z = (mean - best) / std
    normal = torch.distributions.Normal(0.0, 1.0)
    closed = std * (z * normal.cdf(z) + normal.log_prob(z).exp())
    log_ei = botorch.acquisition.LogExpectedImprovement(surrogate, best_f=best)(x[:, None])
    torch.testing.assert_close(log_ei.exp(), closed, rtol=1e-6, atol=1e-9)


def test_the_surrogate_is_the_papers() -> None:
    trials = list(search(trials=8, initial=8).trials)
    bounds = tuning._bounds(SPACE, LEAST.get)
    surrogate = tuning._fit(trials, bounds)
    kernel = surrogate.covar_module.base_kernel
    assert kernel.nu == 2.5
    assert kernel.lengthscale.shape == (1, 4)
    x = surrogate.train_inputs[0]
    assert x.dtype == torch.float64
    assert x.min() >= 0
    assert x.max() <= 1
    assert surrogate.train_targets.mean().abs() < 1e-9
    assert surrogate.train_targets.std().item() == pytest.approx(1)


def test_the_winner_has_the_highest_posterior_mean_not_the_luckiest_score() -> None:
    # A crowd of plain scores around one fluke, and a peak elsewhere that is a bit lower.
    def trial(number: int, rate: float, value: float) -> TrialRecord:
        setting = Setting(learning_rate=rate, noise_multiplier=1.0, clip=1.0, batch_size=16)
        return TrialRecord(number, setting, value, "done", "random")

    crowd = [(0.003 * 1.01**i, 0.3 + 0.01 * (-1) ** i) for i in range(12)]
    crowd[6] = (crowd[6][0], 0.85)
    peak = [(0.3 * 1.01**i, 0.8 + 0.01 * (-1) ** i) for i in range(12)]
    trials = [trial(i, *pair) for i, pair in enumerate(crowd + peak)]
    bounds = tuning._bounds(TuningSpace(batch_sizes=(16,)), lambda _: 0.7)
    best, predicted = tuning._winner(trials, bounds, np.random.default_rng(0))
    assert best.learning_rate >= 0.3
    assert predicted == pytest.approx(0.8, abs=0.05)


def test_the_prediction_is_the_posterior_mean_of_the_best() -> None:
    result = search(trials=10)
    bounds = tuning._bounds(SPACE, LEAST.get)
    surrogate = tuning._fit(list(result.trials), bounds)
    means = surrogate.posterior(tuning._inputs([t.setting for t in result.trials], bounds)).mean
    assert result.predicted == pytest.approx(means.max().item(), abs=1e-6)
    assert result.best == result.trials[int(means.argmax())].setting


def test_a_constant_objective_survives() -> None:
    result = search(lambda _: 0.25)
    assert result.predicted == 0.25
    assert result.best == result.trials[0].setting
    assert {t.proposed_by for t in result.trials} == {"random"}  # no surrogate to improve upon


def test_a_surrogate_that_cannot_be_fitted_falls_back_to_the_best_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> None:
        raise botorch.exceptions.ModelFittingError("not positive definite")

    monkeypatch.setattr(botorch, "fit_gpytorch_mll", fail)
    result = search()
    assert result.predicted == max(t.value for t in result.trials if t.value is not None)
    assert smooth(result.best) == result.predicted


def test_one_trial_is_enough() -> None:
    result = search(trials=1, initial=1)
    assert result.best == result.trials[0].setting
    assert result.predicted == result.trials[0].value


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_failures_are_recorded_as_zero_and_never_win(bad: float) -> None:
    def objective(setting: Setting) -> float:
        return bad if setting.learning_rate > 0.05 else -0.1  # below a failure's 0

    result = search(objective, seed=2, trials=8)
    failed = [t for t in result.trials if t.status == "failed"]
    assert failed
    assert all(t.value == 0 and t.setting.learning_rate > 0.05 for t in failed)
    assert result.best.learning_rate <= 0.05


def test_a_search_where_all_fail_is_refused() -> None:
    with pytest.raises(BadInput, match="every trial failed"):
        search(lambda _: math.nan, trials=6)


def test_errors_of_the_objective_propagate() -> None:
    def objective(_: Setting) -> float:
        raise BudgetExhausted("the ledger is full")

    with pytest.raises(BudgetExhausted, match="ledger"):
        search(objective)


def test_trials_are_reported_as_they_end() -> None:
    seen: list[TrialRecord] = []
    result = search(on_trial=seen.append, is_affordable=lambda s: s.clip < 5)
    assert tuple(seen) == result.trials


def test_a_setting_is_json() -> None:
    setting = search(trials=6).best
    assert Setting(**json.loads(json.dumps(setting.as_dict()))) == setting


@pytest.mark.parametrize(
    "fields",
    [
        {"learning_rate": 0.0},
        {"noise_multiplier": -1.0},
        {"clip": math.inf},
        {"learning_rate": math.nan},
        {"batch_size": 0},
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any]) -> None:
    good = {"learning_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "batch_size": 16}
    with pytest.raises(BadInput, match="expected"):
        Setting(**{**good, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"learning_rate": (0.0, 1.0)},
        {"learning_rate": (1.0, 0.1)},
        {"clip": (1.0, math.inf)},
        {"noise_factor": (0.9, 2.0)},
        {"batch_sizes": ()},
        {"batch_sizes": (16, 16)},
        {"batch_sizes": (0,)},
    ],
)
def test_bad_spaces_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        TuningSpace(**fields)


@pytest.mark.parametrize("fields", [{"trials": 0}, {"initial": 0}])
def test_bad_configs_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        TuningConfig(**fields)
