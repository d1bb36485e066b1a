"""A hyperparameter search that was killed, on any number of workers and threads, ends the same."""

import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_accuracy import search, smooth

from panas.runtime.errors import BadInput
from panas.runtime.journal import open_journal
from panas.runtime.store import write_json
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import TrialRecord, TuningResult


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


@pytest.mark.slow
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
    write_json(Path(path).with_suffix(".json"), {"best": result.best.to_json()})


@pytest.mark.thorough
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
