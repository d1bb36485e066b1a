"""The hyperparameter search: bounds, budget, order of the questions, and that it searches."""

import json
import math
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.journal import Journal, open_journal
from panas.runtime.store import write_json
from panas.tuning import bayesian as tuning
from panas.tuning.bayesian import tune
from panas.tuning.space import (
    FIXED_CONFIGURATIONS,
    BudgetedSpace,
    DPSGDSettings,
    Menu,
    Range,
    TuningSpace,
    choice,
)
from panas.tuning.trial import TrialRecord, TuningConfig, TuningResult, design

SPACE = TuningSpace()
LEAST = {16: 0.7, 32: 1.1, 64: 1.7}


def least(batch_size: int, epochs: int | None) -> float | None:
    return LEAST.get(batch_size)


def smooth(setting: DPSGDSettings) -> float:
    """An accuracy with one peak, at learning rate 0.1, clip 1 and as little noise as can be."""
    x = (
        math.log10(setting.learning_rate) + 1,
        math.log10(setting.clip),
        0.4 * math.log(setting.noise_multiplier),
        0.2 * math.log2(setting.batch_size / 64),
    )
    return math.exp(-sum(v * v for v in x))


def search(
    objective: Callable[[DPSGDSettings], float] = smooth,
    *,
    seed: int = 0,
    trials: int = 9,
    initial: int = 4,
    space: TuningSpace = SPACE,
    minimum_noise: Callable[[int, int | None], float | None] = least,
    is_affordable: Callable[[DPSGDSettings], bool] = lambda _: True,
    on_trial: Callable[[TrialRecord], None] | None = None,
    parallel: int = 1,
    validation_samples: int | None = None,
    journal: Journal | None = None,
    workers: int = 1,
) -> TuningResult:
    return tune(
        objective,
        space=space,
        config=TuningConfig(initial=initial, trials=trials, parallel=parallel),
        minimum_noise=minimum_noise,
        is_affordable=is_affordable,
        rng=np.random.default_rng(seed),
        on_trial=on_trial,
        validation_samples=validation_samples,
        journal=journal,
        workers=workers,
    )


def assert_inside(setting: DPSGDSettings, space: TuningSpace, noise: float) -> None:
    assert space.learning_rate[0] <= setting.learning_rate <= space.learning_rate[1]
    assert space.clip[0] <= setting.clip <= space.clip[1]
    assert setting.batch_size in space.batch_sizes
    low, high = (noise * factor for factor in space.noise_factor)
    assert low <= setting.noise_multiplier <= high


def test_every_proposal_is_inside_its_bounds_and_affordable() -> None:
    result = search(trials=12)
    assert [t.number for t in result.trials] == list(range(12))
    assert [t.proposed_by for t in result.trials] == ["random"] * 4 + ["ei"] * 8
    for trial in result.trials:
        assert_inside(trial.setting, SPACE, LEAST[trial.setting.batch_size])
        assert trial.status == "done"
        assert trial.value == smooth(trial.setting)


def test_fixed_values_stay_fixed_to_the_last_bit() -> None:
    # The budget binds exactly: noise at its least, where one rounding error would overspend.
    space = TuningSpace(clip=(0.3, 0.3), noise_factor=(1.0, 1.0), batch_sizes=(7,))
    result = search(space=space, minimum_noise=lambda batch, epochs: 0.7123456789)
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
    log: list[tuple[str, DPSGDSettings]] = []

    def affordable(setting: DPSGDSettings) -> bool:
        log.append(("asked", setting))
        return setting.learning_rate < 0.3

    def objective(setting: DPSGDSettings) -> float:
        log.append(("trained", setting))
        return smooth(setting)

    result = search(objective, is_affordable=affordable, trials=12, seed=3)
    refused = [t for t in result.trials if t.status == "over budget"]
    assert refused
    expected: list[tuple[str, DPSGDSettings]] = []
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
    def objective(_: DPSGDSettings) -> float:
        raise AssertionError("trained without the accountant's leave")

    with pytest.raises(BudgetExhausted, match="refused every trial"):
        search(objective, is_affordable=lambda _: False, trials=7)


def test_batch_sizes_that_do_not_fit_are_left_out() -> None:
    result = search(minimum_noise=lambda size, _: 2.0 if size == 32 else None)
    assert {trial.setting.batch_size for trial in result.trials} == {32}
    with pytest.raises(BudgetExhausted, match="no batch size"):
        search(minimum_noise=lambda size, _: None)
    with pytest.raises(BadInput, match="least noise"):
        search(minimum_noise=lambda size, _: 0.0)


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
        guided.append(smooth(search(seed=seed, trials=18, space=space).best))
        # As many initial trials as trials is random search, its best as observed.
        trials = search(seed=100 + seed, trials=18, initial=18, space=space).trials
        blind.append(max(t.value for t in trials if t.value is not None))
    assert np.median(guided) > np.median(blind)
    assert min(guided) > 0.85


def problem(
    space: TuningSpace = SPACE,
    minimum_noise: Callable[[int, int | None], float | None] = least,
    validation_samples: int | None = None,
) -> BudgetedSpace:
    return BudgetedSpace(space, minimum_noise, validation_samples)


def fitted(
    trials: Sequence[TrialRecord],
    space: TuningSpace = SPACE,
    minimum_noise: Callable[[int, int | None], float | None] = least,
    validation_samples: int | None = None,
) -> tuning._Surrogate:
    surrogate = tuning._fit(problem(space, minimum_noise, validation_samples), list(trials))
    assert surrogate is not None
    return surrogate


def test_augmented_expected_improvement_is_the_closed_form() -> None:
    surrogate = fitted(search(trials=8, initial=8).trials, validation_samples=50)
    u = np.random.default_rng(1).random((6, 5))
    posterior = surrogate.model.posterior(tuning._inputs(problem(), u))
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
    surrogate: tuning._Surrogate, x: Tensor, noise: Tensor, at: Tensor
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
    at = tuning._inputs(problem(), np.random.default_rng(2).random((5, 5)))
    mean, variance = posterior_by_hand(surrogate, x, noise, at)
    posterior = surrogate.model.posterior(at)
    torch.testing.assert_close(posterior.mean[:, 0].detach(), mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(posterior.variance[:, 0].detach(), variance, rtol=1e-3, atol=1e-5)
    # No other of the hyperparameters that were drawn makes the values likelier.
    spans = problem().spans
    drawn = tuning._hyperparameters(tuple(tuning.LENGTHS[i] / spans[i] for i in problem().free))
    evidence = []
    for lengths, variance, learnt in zip(*drawn, strict=True):
        r = 5**0.5 * ((x[:, None] - x[None]) / lengths).norm(dim=2)
        K = variance * (1 + r + r * r / 3) * (-r).exp() + (binomial + learnt).diag()
        spread = torch.distributions.MultivariateNormal(torch.zeros_like(y), K)
        evidence.append(spread.log_prob(y).item())
    best = int(np.argmax(evidence))
    lengths = surrogate.model.covar_module.base_kernel.lengthscale.detach()[0]
    torch.testing.assert_close(lengths, drawn[0][best])
    assert surrogate.model.likelihood.second_noise.item() == pytest.approx(drawn[2][best].item())


def test_hyperparameters_fill_their_priors() -> None:
    lengths, variances, noises = tuning._hyperparameters((0.2, 0.5, 1.0))
    assert lengths.shape == (tuning.DRAWN, 3)
    assert lengths.median(0).values.tolist() == pytest.approx([0.2, 0.5, 1.0], rel=0.02)
    assert variances.log().std().item() == pytest.approx(0.7, rel=0.05)
    assert noises.min() >= 1e-4
    assert torch.corrcoef(lengths.log().T).triu(1).abs().max() < 0.1


def test_few_validation_samples_make_the_surrogate_doubt_what_it_saw() -> None:
    trials = search(trials=12, initial=12).trials
    spread = {}
    for n in (3, 10_000):
        means = fitted(trials, validation_samples=n).mean(problem().points(settings_of(trials)))
        spread[n] = means.std().item()
    assert spread[3] < 0.9 * spread[10_000]


def settings_of(trials: Sequence[TrialRecord]) -> list[DPSGDSettings]:
    return [t.setting for t in trials]


def test_the_surrogate_is_the_papers() -> None:
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


def test_settings_of_equal_path_share_the_surrogates_first_input() -> None:
    space = TuningSpace(
        learning_rate=(0.01, 1.0), clip=(0.1, 10.0), batch_sizes=(10, 100), epochs=(1, 10)
    )
    known = problem(space, lambda batch, epochs: 1.0)
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
    far = (
        (tuning._inputs(problem(), u) - tuning._inputs(problem(), best))
        .abs()
        .max(1)
        .values.argmax()
    )
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
    best, predicted = tuning._winner(problem(space, lambda size, _: 0.7), trials)
    assert best.learning_rate >= 0.3
    assert predicted == pytest.approx(0.8, abs=0.05)


def test_the_prediction_is_the_posterior_mean_of_the_best() -> None:
    result = search(trials=10)
    means = fitted(result.trials).mean(problem().points(settings_of(result.trials)))
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
    def fail(*_: object) -> None:
        raise torch.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(tuning, "_evidence", fail)
    result = search()
    assert {t.proposed_by for t in result.trials} == {"random"}
    assert result.predicted == max(t.value for t in result.trials if t.value is not None)
    assert smooth(result.best) == result.predicted


def test_one_trial_is_enough() -> None:
    result = search(trials=1, initial=1)
    assert result.best == result.trials[0].setting
    assert result.predicted == result.trials[0].value


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_failures_are_recorded_as_zero_and_never_win(bad: float) -> None:
    def objective(setting: DPSGDSettings) -> float:
        return bad if setting.learning_rate > 0.05 else -0.1  # below a failure's 0

    result = search(objective, seed=2, trials=8)
    failed = [t for t in result.trials if t.status == "failed"]
    assert failed
    assert all(t.value == 0 and t.setting.learning_rate > 0.05 for t in failed)
    assert result.best.learning_rate <= 0.05


def test_a_search_where_all_fail_is_refused() -> None:
    with pytest.raises(BadInput, match="every trial failed"):
        search(lambda _: math.nan, trials=6)


def test_what_a_trial_died_of_is_recorded_and_the_search_goes_on() -> None:
    def objective(setting: DPSGDSettings) -> float:
        if setting.clip > 3:
            raise ZeroDivisionError("by\nnothing")
        return smooth(setting)

    result = search(objective, seed=2, trials=12)
    failed = [t for t in result.trials if t.status == "failed"]
    assert failed
    assert {t.error for t in failed} == {"ZeroDivisionError: by nothing"}
    assert all(t.error is None for t in result.trials if t.status == "done")
    assert result.best.clip <= 3


def test_an_interrupt_is_no_failure() -> None:
    def objective(_: DPSGDSettings) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(objective)


def test_passes_are_tuned_where_the_space_has_them() -> None:
    def objective(setting: DPSGDSettings) -> float:
        assert setting.epochs is not None
        return math.exp(-(math.log2(setting.epochs / 6) ** 2)) * smooth(setting)

    asked = set[tuple[int, int | None]]()

    def noise(batch_size: int, epochs: int | None) -> float:
        asked.add((batch_size, epochs))
        return 0.1 * batch_size**0.5 * (epochs or 0) ** 0.5

    space = TuningSpace(epochs=range(1, 25), noise_factor=(1.0, 1.0))
    result = search(objective, space=space, minimum_noise=noise, trials=16)
    for trial in result.trials:
        s = trial.setting
        assert s.epochs in range(1, 25)
        assert s.noise_multiplier == noise(s.batch_size, s.epochs)  # derived from the budget
    assert asked == {(t.setting.batch_size, t.setting.epochs) for t in result.trials}
    assert all(t.setting.epochs is None for t in search(trials=4).trials)


@pytest.mark.parametrize("menu", [range(16, 257), range(1, 2), (8, 32, 64), (7,)])
def test_every_integer_of_a_menu_can_be_drawn_and_found_again(menu: Menu) -> None:
    axis = choice(menu)
    values = np.array(sorted(menu), dtype=float)
    np.testing.assert_array_equal(axis.value(axis.place(values)), values)
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
    if ratio > 1.01:
        np.testing.assert_allclose(axis.place(value), [u, 0, 1], atol=1e-9)


def test_the_first_trials_cover_every_axis_evenly() -> None:
    u = design(8, root=3)
    assert sorted((8 * u[:, 0]).astype(int)) == list(range(8))
    rates = sorted(t.setting.learning_rate for t in search(trials=8, initial=8).trials)
    for k, rate in enumerate(rates):
        assert k <= 8 * Range(*SPACE.learning_rate).place(np.array([rate]))[0] <= k + 1


def picklable(setting: DPSGDSettings) -> float:
    if setting.clip > 8:
        raise ValueError("clip")
    return smooth(setting)


@pytest.mark.slow
def test_the_outcome_depends_on_how_many_are_proposed_at_once_and_on_no_worker() -> None:
    batches = search(picklable, trials=10, parallel=3)
    assert [t.proposed_by for t in batches.trials] == ["random"] * 4 + ["ei"] * 6
    assert len({t.setting for t in batches.trials}) == 10
    assert search(picklable, trials=10, parallel=3, workers=3) == batches
    assert search(picklable, trials=10) != batches


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_search_that_dies_at_any_trial_goes_on_as_if_it_had_not(
    parallel: int, tmp_path: Path
) -> None:
    def run(path: Path, die_at: int | None) -> TuningResult:
        calls = 0

        def objective(setting: DPSGDSettings) -> float:
            nonlocal calls
            calls += 1
            if calls == die_at:
                raise Killed
            return smooth(setting)

        with open_journal(path, {"what": "tuning"}) as journal:
            return search(
                objective,
                trials=8,
                parallel=parallel,
                journal=journal,
                validation_samples=100,
                is_affordable=lambda s: s.clip < 6,
            )

    whole = run(tmp_path / "whole.jsonl", None)
    assert any(t.status == "over budget" for t in whole.trials)
    trained = sum(t.status == "done" for t in whole.trials)
    for at in range(1, trained + 1):
        path = tmp_path / f"{at}.jsonl"
        with pytest.raises(Killed):
            run(path, at)
        # What was lost is the trial that died: it is the first one that trains now.
        assert run(path, None) == whole
        assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_what_a_journal_holds_is_not_trained_again(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j", {}) as journal:
        whole = search(trials=6, journal=journal)

    def never(_: DPSGDSettings) -> float:
        raise AssertionError("trained again")

    seen: list[TrialRecord] = []
    with open_journal(tmp_path / "j", {}) as journal:
        assert search(never, trials=6, journal=journal, on_trial=seen.append) == whole
        assert seen == []
        with pytest.raises(BadInput, match="another"):
            search(never, trials=6, journal=journal, seed=1)


def test_a_longer_search_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j", {}) as journal:
        search(trials=6, journal=journal)
    with open_journal(tmp_path / "j", {}) as journal:
        assert search(trials=9, journal=journal) == search(trials=9)


def slow_smooth(setting: DPSGDSettings) -> float:
    """Long enough that a kill falls into trials as well as between them."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    return smooth(setting)


def in_a_process(path: str) -> None:
    with open_journal(Path(path), {"what": "tuning"}) as journal:
        result = search(slow_smooth, trials=10, journal=journal, validation_samples=100)
    write_json(Path(path).with_suffix(".json"), {"best": result.best.as_dict()})


@pytest.mark.slow
def test_kills_at_random_moments_leave_no_trace(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")

    def run(path: Path, seconds: float | None) -> bool:
        process = context.Process(target=in_a_process, args=(str(path),))
        process.start()
        # The clock starts with the first line: before it there is nothing to lose.
        while seconds is not None and process.is_alive() and not path.exists():
            time.sleep(0.01)
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode == 0

    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert run(whole, None)
    moments = np.random.default_rng(4).uniform(0.0, 2.0, 5)
    died = [not run(killed, float(seconds)) for seconds in moments]
    assert any(died)
    assert run(killed, None)
    assert killed.read_bytes() == whole.read_bytes()
    assert killed.with_suffix(".json").read_bytes() == whole.with_suffix(".json").read_bytes()


def test_proposals_do_not_depend_on_the_threads_that_torch_has() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = search(trials=6)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert search(trials=6) == first
    finally:
        torch.set_num_threads(threads)


def test_table_six_is_the_papers() -> None:
    table = {name: tuple(f) for name, f in FIXED_CONFIGURATIONS.items()}
    assert table == {
        "A": (0.01, 1.0, 10.0, 0.2),
        "B": (0.01, 1.0, 1.0, 0.2),
        "C": (0.01, 2.0, 10.0, 0.2),
        "D": (0.01, 1.0, 10.0, 0.02),
        "E": (0.0001, 1.0, 10.0, 0.2),
        "DPFNAS": (0.001, 1.92, 0.5, 1.0),
    }


def test_errors_of_the_objective_propagate() -> None:
    def objective(_: DPSGDSettings) -> float:
        raise BudgetExhausted("the ledger is full")

    with pytest.raises(BudgetExhausted, match="ledger"):
        search(objective)


def test_trials_are_reported_as_they_end() -> None:
    seen: list[TrialRecord] = []
    result = search(on_trial=seen.append, is_affordable=lambda s: s.clip < 5)
    assert tuple(seen) == result.trials


def test_a_setting_is_json() -> None:
    setting = search(trials=6).best
    assert DPSGDSettings(**json.loads(json.dumps(setting.as_dict()))) == setting


@pytest.mark.parametrize(
    "fields",
    [
        {"learning_rate": 0.0},
        {"noise_multiplier": -1.0},
        {"clip": math.inf},
        {"learning_rate": math.nan},
        {"batch_size": 0},
        {"epochs": 0},
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any]) -> None:
    good = {"learning_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "batch_size": 16}
    with pytest.raises(BadInput, match="expected"):
        DPSGDSettings(**{**good, **fields})


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
        {"batch_sizes": range(0)},
        {"epochs": (3, 3)},
        {"epochs": range(5)},
    ],
)
def test_bad_spaces_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        TuningSpace(**fields)


@pytest.mark.parametrize("fields", [{"trials": -1}, {"initial": 0}, {"parallel": 0}])
def test_bad_configs_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        TuningConfig(**fields)
