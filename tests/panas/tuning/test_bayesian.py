"""The hyperparameter search: bounds, budget, order of the questions; killed, it ends the same."""

import json
import math
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_accuracy import LEAST, SPACE, search, smooth

from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.journal import open_journal
from panas.runtime.seeds import one_thread
from panas.tuning import surrogate as surrogates
from panas.tuning.bayesian import design
from panas.tuning.space import DPSGDSettings, Range, TuningSpace
from panas.tuning.trial import TrialRecord, TuningResult


def assert_inside(setting: DPSGDSettings, space: TuningSpace, noise: float) -> None:
    assert space.learning_rate[0] <= setting.learning_rate <= space.learning_rate[1]
    assert space.clip[0] <= setting.clip <= space.clip[1]
    assert setting.batch_size in space.batch_sizes
    low, high = (noise * factor for factor in space.noise_factor)
    assert low <= setting.noise_multiplier <= high


@pytest.mark.slow
def test_every_proposal_is_inside_its_bounds_and_affordable() -> None:
    seen: list[TrialRecord] = []
    result = search(trials=12, on_trial=seen.append)
    assert tuple(seen) == result.trials
    assert [t.number for t in result.trials] == list(range(12))
    assert [t.proposed_by for t in result.trials] == ["random"] * 4 + ["ei"] * 8
    for trial in result.trials:
        assert_inside(trial.setting, SPACE, LEAST[trial.setting.batch_size])
        assert trial.status == "done"
        assert trial.value == smooth(trial.setting)


@pytest.mark.slow
def test_fixed_values_stay_fixed_and_a_space_of_one_setting_is_tuned_to_it() -> None:
    # The budget binds exactly: noise at its least, where one rounding error would overspend.
    space = TuningSpace(clip=(0.3, 0.3), noise_factor=(1.0, 1.0), batch_sizes=(7,))
    result = search(space=space, minimum_noise=lambda batch, epochs: 0.7123456789)
    for trial in result.trials:
        assert trial.setting.clip == 0.3
        assert trial.setting.noise_multiplier == 0.7123456789
        assert trial.setting.batch_size == 7
    assert len({trial.setting.learning_rate for trial in result.trials}) > 5
    space = TuningSpace(
        learning_rate=(0.1, 0.1), clip=(1.0, 1.0), noise_factor=(1.0, 1.0), batch_sizes=(16,)
    )
    values = iter([0.5, 0.6, 0.4, 0.5, 0.7])
    result = search(lambda _: next(values), space=space, trials=5, initial=3)
    assert {trial.setting for trial in result.trials} == {result.best}
    assert DPSGDSettings(**json.loads(json.dumps(asdict(result.best)))) == result.best
    one = search(trials=1, initial=1)  # is enough
    assert (one.best, one.predicted) == (one.trials[0].setting, one.trials[0].value)


@pytest.mark.slow
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


@pytest.mark.slow
def test_batch_sizes_that_do_not_fit_are_left_out() -> None:
    result = search(minimum_noise=lambda size, _: 2.0 if size == 32 else None)
    assert {trial.setting.batch_size for trial in result.trials} == {32}
    with pytest.raises(BudgetExhausted, match="fits a batch size"):
        search(minimum_noise=lambda size, _: None)
    with pytest.raises(BadInput, match="least noise"):
        search(minimum_noise=lambda size, _: 0.0)


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_constant_objective_survives_and_an_accountant_that_refuses_all_does_not() -> None:
    result = search(lambda _: 0.25)
    assert result.predicted == 0.25
    assert result.best == result.trials[0].setting
    assert {t.proposed_by for t in result.trials} == {"random"}  # no surrogate to improve upon

    def objective(_: DPSGDSettings) -> float:
        raise AssertionError("trained without the accountant's leave")

    with pytest.raises(BudgetExhausted, match="refused every trial"):
        search(objective, is_affordable=lambda _: False, trials=7)


def test_a_surrogate_that_cannot_be_fitted_falls_back_to_the_best_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise torch.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(surrogates, "_evidence", fail)
    result = search()
    assert {t.proposed_by for t in result.trials} == {"random"}
    assert result.predicted == max(t.value for t in result.trials if t.value is not None)
    assert smooth(result.best) == result.predicted


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_failures_are_recorded_as_zero_and_never_win(bad: float) -> None:
    def objective(setting: DPSGDSettings) -> float:
        return bad if setting.learning_rate > 0.05 else -0.1  # below a failure's 0

    result = search(objective, seed=2, trials=8)
    failed = [t for t in result.trials if t.status == "failed"]
    assert failed
    assert all(t.value == 0 and t.setting.learning_rate > 0.05 for t in failed)
    assert result.best.learning_rate <= 0.05


@pytest.mark.slow
def test_what_a_trial_died_of_is_recorded_and_where_all_fail_the_search_is_refused() -> None:
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
    with pytest.raises(BadInput, match="every trial failed"):
        search(lambda _: math.nan, trials=6)


@pytest.mark.slow
def test_passes_are_tuned_where_the_space_has_them() -> None:
    def objective(setting: DPSGDSettings) -> float:
        assert setting.epochs is not None
        return math.exp(-(math.log2(setting.epochs / 6) ** 2)) * smooth(setting)

    requested = set[tuple[int, int | None]]()

    def noise(batch_size: int, epochs: int | None) -> float:
        requested.add((batch_size, epochs))
        return 0.1 * batch_size**0.5 * (epochs or 0) ** 0.5

    space = TuningSpace(epochs=range(1, 25), noise_factor=(1.0, 1.0))
    result = search(objective, space=space, minimum_noise=noise, trials=16)
    for trial in result.trials:
        s = trial.setting
        assert s.epochs in range(1, 25)
        assert s.noise_multiplier == noise(s.batch_size, s.epochs)  # derived from the budget
    assert requested == {(t.setting.batch_size, t.setting.epochs) for t in result.trials}
    assert all(t.setting.epochs is None for t in search(trials=4).trials)


def test_the_first_trials_cover_every_axis_evenly() -> None:
    u = design(8, stream=3)
    assert sorted((8 * u[:, 0]).astype(int)) == list(range(8))
    rates = sorted(t.setting.learning_rate for t in search(trials=8, initial=8).trials)
    for k, rate in enumerate(rates):
        assert k <= 8 * Range(*SPACE.learning_rate).coordinates(np.array([rate]))[0] <= k + 1


@pytest.mark.parametrize("error", [BudgetExhausted("the ledger is full"), KeyboardInterrupt()])
def test_what_is_no_failure_of_a_trial_propagates(error: BaseException) -> None:
    def objective(_: DPSGDSettings) -> float:
        raise error

    with pytest.raises(type(error)):
        search(objective)


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_search_that_dies_at_any_trial_goes_on_as_if_it_had_not(parallel: int, tmp_path: Path):
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


@pytest.mark.slow
def test_what_a_journal_holds_is_not_trained_again_and_a_longer_search_goes_on(tmp_path: Path):
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
    with open_journal(tmp_path / "j", {}) as journal:
        assert search(trials=9, journal=journal) == search(trials=9)


def test_proposals_do_not_depend_on_the_threads_that_torch_has() -> None:
    with one_thread():
        first = search(trials=6)
        torch.set_num_threads(2)
        assert search(trials=6) == first
        assert torch.get_num_threads() == 2


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
