"""The figures of the tuning benchmark, against numpy's and those of the stored trainings."""

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.tuners import PROPOSERS, Found, Task
from benchmarks.tuning import interval, summary
from benchmarks.tuning_live import FIXED, with_regret
from benchmarks.tuning_table import TABLE, Table, fixed_rows, replay
from panas.runtime.seeds import stream
from panas.tuning.space import DPSGDSettings

TABLE_READ = Table.read()
EPSILONS = TABLE_READ.epsilons
AXES = TABLE_READ.about["axes"]
NAMES = ("learning_rate", "clip", "batch", "epochs", "noise_factor")
GRID = [*itertools.product(*(range(len(AXES[name])) for name in NAMES))]
TEST = TABLE_READ.about["samples"]["test"]


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


ROWS = rows_of(searched=False) + rows_of(searched=True, repetitions=4) + fixed_rows(TABLE_READ)
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


def test_regret_is_to_the_best_at_that_seed():
    rng = stream(0, "regret")
    rows = [
        {"proposer": name, "seed": seed, "accuracy": float(rng.random())}
        for seed in range(3)
        for name in (*PROPOSERS, *FIXED)
    ]
    result = with_regret(rows)
    for row, before in zip(result, rows, strict=True):
        best = max(r["accuracy"] for r in rows if r["seed"] == row["seed"])
        assert row == before | {"regret": best - before["accuracy"]}
    assert sum(row["regret"] == 0 for row in result) == 3


def at(table: Table, e: int, cell: tuple[int, ...]) -> DPSGDSettings:
    """The setting that a place of the grid stands for."""
    rate, clip, batch, epochs, factor = (AXES[name][i] for name, i in zip(NAMES, cell, strict=True))
    noise = factor * float(table.least_noise[e, cell[2], cell[3]])
    return DPSGDSettings(
        learning_rate=rate, noise_multiplier=noise, clip=clip, batch_size=batch, epochs=epochs
    )


def stored(path: Path, **changed: np.ndarray) -> Path:
    """The table with some arrays replaced, as a file of its own."""
    with np.load(TABLE, allow_pickle=False) as f:
        np.savez(path, **{**f, **changed})
    return path


def three_seeds(path: Path) -> Path:
    """A table where half of the settings are trained thrice, with answers that all differ."""
    rng = stream(0, "three seeds")
    shape = TABLE_READ.test.shape[:-1]
    right = rng.permuted(np.tile(np.arange(TEST), (*shape, 1)), axis=-1)[..., :3].astype(np.int16)
    right[rng.random(shape) < 0.5, 1:] = -1
    return stored(path, test=right, validation=right)


def replayed(
    monkeypatch: pytest.MonkeyPatch, path: Path, settings: list[DPSGDSettings], e: int = 1
) -> dict[str, Any]:
    """The row of a proposer that tries these settings, and chooses the first."""

    def search(task: Task, trials: int, seed: int) -> Found:
        for s in settings:
            task.objective(s)
        return Found(settings[0], settings, [0.0] * len(settings))

    monkeypatch.setitem(PROPOSERS, "planted", search)
    return replay((path, len(settings)), (False, "planted", e, 0))


def test_the_best_setting_has_no_regret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = three_seeds(tmp_path / "three.npz")
    with np.load(path, allow_pickle=False) as f:
        test, least = f["test"].astype(float), f["least_noise"]
    mean = np.ma.masked_less(test, 0).mean(axis=-1) / TEST
    for e in range(len(test)):
        within = [cell for cell in GRID if cell[-1] == 0]  # sigma is derived
        ranked = sorted(within, key=lambda cell, e=e: mean[(e, *cell)])
        for cell in (ranked[-1], ranked[0], ranked[len(ranked) // 2]):
            setting = at(TABLE_READ, e, cell)
            assert least[e, cell[2], cell[3]] <= setting.noise_multiplier
            row = replayed(monkeypatch, path, [setting], e)
            assert row["regret"] == pytest.approx(mean[e, ..., 0].max() - mean[(e, *cell)])
            assert row["accuracy"] == pytest.approx(mean[(e, *cell)])
            assert (row["epsilon"], row["over"]) == (TABLE_READ.epsilons[e], 0)
            assert row["regret"] == 0 or cell != ranked[-1]


def test_a_setting_over_the_budget_is_counted(monkeypatch: pytest.MonkeyPatch):
    fair = [at(TABLE_READ, 1, cell) for cell in GRID[::60]]
    cheats = [
        DPSGDSettings(**{**asdict(s), "noise_multiplier": share * TABLE_READ.least(1, *where)})
        for s, share in zip(fair, (0.99, 0.7, 0.1), strict=False)
        if (where := (s.batch_size, s.epochs))
    ]
    assert replayed(monkeypatch, TABLE, fair)["over"] == 0
    assert replayed(monkeypatch, TABLE, fair + cheats)["over"] == len(cheats) == 3
