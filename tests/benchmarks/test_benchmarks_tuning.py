"""The benchmark of tuning: what its rows come to, and that a kill costs what was in the air."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks import tuning
from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.kept import kept
from benchmarks.tuners import PROPOSERS, Found, Task
from benchmarks.tuning import draw, interval, main, regrets, report, summary, table_six
from benchmarks.tuning_table import Table, fixed_rows
from panas.runtime.journal import read_journal
from panas.runtime.seeds import stream
from panas.tuning.space import DPSGDSettings

ROOT = Path(__file__).resolve().parents[2]
EPSILONS = Table.read().epsilons


def rows_of(*, searched: bool, repetitions: int = 7) -> list[dict[str, Any]]:
    """Rows as searches leave them, with regrets at random."""
    rng = stream(0, "rows", str(searched))
    return [
        {
            "proposer": name,
            "searched": searched,
            "epsilon": epsilon,
            "accuracy": float(rng.random()),
            "regret": float(rng.random()),
            "over": int(rng.integers(3)),
            "seconds": [float(s) for s in rng.random(4)],
        }
        for _ in range(repetitions)
        for epsilon in EPSILONS
        for name in PROPOSERS
    ]


ROWS = rows_of(searched=False) + rows_of(searched=True, repetitions=4) + fixed_rows(Table.read())
LIVED = [
    {"proposer": "ours", "seed": 0, "accuracy": 0.5, "regret": 0.0, "over": 2, "seconds": [7.0]},
    {"proposer": "random", "seed": 0, "accuracy": 0.4, "regret": 0.1, "over": 5, "seconds": [9.0]},
    {"proposer": "fixed A", "seed": 0, "accuracy": 0.1, "regret": 0.4, "steps": 3},
]


def values(rows: list[dict[str, Any]], key: str, **wanted: Any) -> np.ndarray:
    return np.array([r[key] for r in rows if all(r.get(k) == v for k, v in wanted.items())])


def test_medians_and_means_are_those_of_numpy():
    result = summary(ROWS, LIVED)
    for searched, part in ((False, result), (True, result["sigma_searched"])):
        for name in PROPOSERS:
            mine = values(ROWS, "regret", proposer=name, searched=searched)
            assert part["median_regret"][name] == pytest.approx(np.median(mine))
            assert part["mean_regret"][name] == pytest.approx(mine.mean())
            assert part["interval"][name] == interval(mine.tolist())
            for key, by in (("regret", "median_regret_at"), ("accuracy", "accuracy_at")):
                for e in EPSILONS:
                    at = values(ROWS, key, proposer=name, searched=searched, epsilon=e)
                    assert part[by][f"{e:g}"][name] == pytest.approx(np.median(at))
    for name in FIXED_CONFIGURATIONS:
        mine = values(ROWS, "regret", proposer=f"fixed {name}")
        assert result["median_regret"][f"fixed {name}"] == pytest.approx(np.median(mine))
        assert f"fixed {name}" not in result["sigma_searched"]["median_regret"]


def test_the_rest_of_the_summary():
    result = summary(ROWS, LIVED)
    over = sum(r["over"] for r in ROWS if "over" in r)
    assert result["over_budget_trials"] == over + 7
    mine = [s for r in (*ROWS, *LIVED) if r["proposer"] == "ours" for s in r["seconds"]]
    assert result["propose_seconds"] == max(mine) == 7.0
    assert result["propose_seconds_median"] == np.median(mine)
    assert result["live"]["median_regret"] == {"ours": 0.0, "random": 0.1, "fixed A": 0.4}
    assert [set(r) for r in result["live"]["rows"]] == [
        {"proposer", "seed", "accuracy", "regret", "over"},
        {"proposer", "seed", "accuracy", "regret", "over"},
        {"proposer", "seed", "accuracy", "regret", "steps"},
    ]
    alone = summary([r for r in ROWS if not r.get("searched")], [])
    assert (alone["sigma_searched"], alone["live"]) == (None, {"rows": []})
    assert json.loads(json.dumps(result))["median_regret"] == result["median_regret"]


def exact(n: int, quantile: float) -> int:
    """The quantile of the median of n draws from 0, ..., n - 1 with replacement, for an odd n."""
    at_most = [stats.binom.sf(n // 2, n, (k + 1) / n) for k in range(n)]
    return int(np.searchsorted(at_most, quantile))


def test_the_interval_of_the_median_against_its_exact_distribution():
    low, high = interval([float(k) for k in range(101)])
    assert abs(low - exact(101, 0.025)) <= 1
    assert abs(high - exact(101, 0.975)) <= 1
    assert exact(101, 0.05) - exact(101, 0.025) > 1  # a 90 % interval would fail
    assert interval([0.25]) == (0.25, 0.25)


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


def test_table_six_has_the_papers_columns_and_a_row_each():
    plain = [r for r in ROWS if not r.get("searched")]
    record = regrets(plain)
    head, *lines, last = table_six(plain, record)
    assert head.split()[:4] == ["eta", "sigma", "C", "B/n"]
    assert head.count("steps   acc") == len(EPSILONS)
    assert [line[:18].strip() for line in lines] == [f"fixed {k}" for k in FIXED_CONFIGURATIONS]
    table = Table.read()
    for i, (line, f) in enumerate(zip(lines, FIXED_CONFIGURATIONS.values(), strict=True)):
        numbers = [float(x) for x in line[18:].split()]
        assert numbers[:4] == [f.learning_rate, f.noise_multiplier, f.clip, f.rate]
        assert numbers[4::2] == table.fixed_steps[:, i].tolist()
        right = np.ma.masked_less(table.fixed_test[:, i].astype(float), 0)
        reached = np.ma.median(right, axis=1) / table.about["samples"]["test"]
        np.testing.assert_allclose(numbers[5::2], reached, atol=6e-4)
        assert len(line) == len(head) == len(last)
    assert last.split()[0] == "ours"
    assert [float(x) for x in last.split()[1:]] == [
        round(record["accuracy_at"][f"{e:g}"]["ours"], 3) for e in EPSILONS
    ]


def test_the_report_names_everybody():
    result = summary(ROWS, LIVED)
    lines = report(result, ROWS).splitlines()
    names = [*PROPOSERS, *(f"fixed {name}" for name in FIXED_CONFIGURATIONS)]
    for name, line in zip(names, lines[1:], strict=False):
        assert line[:22].strip() == name
        assert f"{result['median_regret'][name]:.4f}" in line
    assert f"over budget: {result['over_budget_trials']};" in lines[1 + len(names)]
    assert lines[2 + len(names) :] == table_six(ROWS, result)


@pytest.mark.slow
def test_the_picture_is_a_png(tmp_path: Path):
    plain = [r for r in ROWS if not r.get("searched")]
    draw(regrets(plain), plain, str(tmp_path / "tuning.png"))
    assert (tmp_path / "tuning.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


class Stops:
    """A proposer at random, in no time; Ctrl-C comes at one of its searches."""

    def __init__(self, at: int | None = None) -> None:
        self.searches, self._at = 0, at

    def __call__(self, task: Task, trials: int, seed: int) -> Found:
        if self.searches == self._at:
            raise KeyboardInterrupt
        self.searches += 1
        rng, space = stream(seed, "stops"), task.space
        settings, told = [], []
        for _ in range(trials):
            batch, epochs = int(rng.choice(space.batch_sizes)), int(rng.choice(space.epochs))
            least = task.least(batch, epochs)
            assert least is not None
            rate = float(rng.uniform(*space.learning_rate))
            settings.append(
                DPSGDSettings(
                    learning_rate=rate,
                    noise_multiplier=least * float(rng.uniform(*space.noise_factor)),
                    clip=1.0,
                    batch_size=batch,
                    epochs=epochs,
                )
            )
            told.append(task.objective(settings[-1]))
        return Found(settings[int(np.argmax(told))], settings, rng.random(trials).tolist())


Run = Callable[..., tuple[str, Stops]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The benchmark with proposers that take no time: its stdout, and how much they did."""

    def benchmark(work: Path, *arguments: str, stop: int | None = None) -> tuple[str, Stops]:
        search = Stops(stop)
        for name in PROPOSERS:
            monkeypatch.setitem(PROPOSERS, name, search)
        optimizer = (
            "--json",
            "--repetitions",
            "2",
            "--searched",
            "1",
            "--trials",
            "3",
            "--workers",
            "1",
        )
        try:
            main([*optimizer, "--work", str(work), *arguments])
        except KeyboardInterrupt:
            assert stop is not None
        return capsys.readouterr().out, search

    return benchmark


SEARCHES = 3 * len(EPSILONS) * len(PROPOSERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop", [17, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, SEARCHES - 1))]
)
def test_an_interrupted_benchmark_goes_on_to_the_same_json(tmp_path: Path, run: Run, stop: int):
    whole, all_of_it = run(tmp_path / "whole")
    assert all_of_it.searches == SEARCHES
    nothing, before = run(tmp_path / "work", stop=stop)
    assert (nothing, before.searches) == ("", stop)
    result, after = run(tmp_path / "work")
    assert result == whole
    assert after.searches == SEARCHES - stop
    again, none = run(tmp_path / "work")
    assert (again, none.searches) == (whole, 0)
    assert json.loads(whole)["propose_seconds"] > 0


@pytest.mark.slow
def test_a_line_cut_by_a_kill_is_run_again(tmp_path: Path, run: Run):
    whole, _ = run(tmp_path)
    [file] = tmp_path.glob("table-*.jsonl")
    for cut in (1, 500, len(file.read_bytes()) // 2):
        file.write_bytes(file.read_bytes()[:-cut])
        result, search = run(tmp_path)
        assert result == whole
        assert 0 < search.searches < SEARCHES


@pytest.mark.slow
def test_only_what_was_decided_alike_is_read(tmp_path: Path, run: Run):
    with np.load(tuning.TABLE, allow_pickle=False) as f:
        np.savez(tmp_path / "other.npz", **{**f, "test": np.maximum(f["test"] - 1, -1)})
    first, _ = run(tmp_path)
    more, search = run(tmp_path, "--repetitions", "3")
    assert search.searches == SEARCHES // 3
    assert run(tmp_path / "alone", "--repetitions", "3")[0] == more
    for other in (("--trials", "4"), ("--table", str(tmp_path / "other.npz"))):
        assert run(tmp_path, *other)[1].searches == SEARCHES
    assert run(tmp_path)[0] == first
    assert len([*tmp_path.glob("table-*.jsonl")]) == 3


@pytest.mark.slow
def test_a_picture_from_the_command_line(tmp_path: Path, run: Run):
    text, _ = run(tmp_path, "--plot", str(tmp_path / "tuning.png"))
    assert json.loads(text)["live"] == {"rows": []}
    assert (tmp_path / "tuning.png").stat().st_size > 1000


def squared(context: int, task: tuple[int]) -> dict[str, Any]:
    return {"value": task[0] ** 2 + context}


def test_results_come_in_the_order_of_the_tasks_and_progress_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def ask(numbers: list[int], **facts: int) -> list[int]:
        tasks = [(k,) for k in numbers]
        rows = kept(tmp_path, "squares", facts, squared, 5, tasks, workers=1, shown=2)
        return [row["value"] for row in rows]

    assert ask([4, 2, 0]) == [21, 9, 5]
    assert capsys.readouterr().err.splitlines() == ["squares: 2 of 3 done", "squares: 3 of 3 done"]
    assert ask([3, 2, 1, 0]) == [14, 9, 6, 5]
    [known, *rest] = capsys.readouterr().err.splitlines()
    assert known.startswith("squares: 2 of 4 known from")
    assert rest == ["squares: 4 of 4 done"]
    [file] = tmp_path.glob("*.jsonl")
    assert [line["task"] for line in read_journal(file)] == [[4], [2], [0], [3], [1]]
    assert ask([1], trials=3) == [6]
    assert len([*tmp_path.glob("*.jsonl")]) == 2


@pytest.mark.thorough
def test_a_killed_benchmark_goes_on_to_the_same_json(tmp_path: Path):
    command = [sys.executable, "-m", "benchmarks.tuning", "--json"]
    command += ["--repetitions", "2", "--searched", "0", "--trials", "6"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def finished(work: str, workers: int) -> tuple[dict[str, Any], str]:
        where = ["--work", str(tmp_path / work), "--workers", str(workers)]
        done = subprocess.run(
            command + where, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout), done.stderr

    with subprocess.Popen(
        [*command, "--work", str(tmp_path / "killed")],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as victim:
        assert victim.stderr is not None
        told = next(line for line in victim.stderr if line.startswith("table: "))
        os.killpg(victim.pid, signal.SIGKILL)
    assert told.endswith("of 24 done\n")
    again, progress = finished("killed", 2)
    known = int(progress.split(" of 24 known")[0].rsplit(" ", 1)[1])
    assert 0 < known < 24
    whole, _ = finished("whole", 1)
    measured = ("propose_seconds", "propose_seconds_median")
    assert {k: v for k, v in again.items() if k not in measured} == {
        k: v for k, v in whole.items() if k not in measured
    }
    assert finished("killed", 2)[0] == again
