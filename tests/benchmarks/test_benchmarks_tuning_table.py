"""The stored trainings that settings are tuned against: what is read, answered and refused."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.tuners import PROPOSERS, Found, Task
from benchmarks.tuning_table import TABLE, Table, fixed_rows, replay
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.plan import Plan
from panas.runtime.seeds import stream
from panas.tuning.space import DPSGDSettings

TABLE_READ = Table.read()
AXES = TABLE_READ.about["axes"]
NAMES = ("learning_rate", "clip", "batch", "epochs", "noise_factor")
GRID = [*itertools.product(*(range(len(AXES[name])) for name in NAMES))]
VALIDATION, TEST = (TABLE_READ.about["samples"][k] for k in ("validation", "test"))


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
    arrays = {}
    for name, most in (("validation", VALIDATION), ("test", TEST)):
        shape = TABLE_READ.validation.shape[:-1]
        right = rng.permuted(np.tile(np.arange(most), (*shape, 1)), axis=-1)[..., :3]
        arrays[name] = right.astype(np.int16)
        # Which were trained again is the same for both.
        arrays[name][stream(0, "again").random(shape) < 0.5, 1:] = -1
    return stored(path, **arrays)


def asks(
    settings: list[DPSGDSettings], answers: list[float], best: int = 0
) -> Callable[[Task, int, int], Found]:
    """A proposer that asks for given settings, and keeps what it is told."""

    def search(task: Task, trials: int, seed: int) -> Found:
        answers.extend(task.objective(s) for s in settings)
        return Found(settings[best], settings, [0.0] * len(settings))

    return search


def replayed(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    settings: list[DPSGDSettings],
    e: int = 1,
    repetition: int = 0,
) -> tuple[list[float], dict[str, Any]]:
    answers: list[float] = []
    monkeypatch.setitem(PROPOSERS, "planted", asks(settings, answers))
    row = replay((path, len(settings)), (False, "planted", e, repetition))
    return answers, row


def test_what_is_read_is_what_is_stored():
    with np.load(TABLE, allow_pickle=False) as f:
        about = json.loads(str(f["about"]))
        for name in ("validation", "test", "least_noise", "fixed_test", "fixed_steps"):
            np.testing.assert_array_equal(getattr(TABLE_READ, name), f[name])
    assert about == TABLE_READ.about
    assert TABLE_READ.epsilons == about["axes"]["epsilon"]
    lengths = [len(levels) for levels in about["axes"].values()]
    assert TABLE_READ.test.shape == (*lengths, TABLE_READ.test.shape[-1])
    assert (TABLE_READ.test[..., 0] >= 0).all()
    assert tuple(about["configurations"]) == tuple(FIXED_CONFIGURATIONS)


@given(st.sampled_from(NAMES), st.floats(1e-3, 1e3))
def test_the_nearest_level_is_the_nearest_by_ratio(axis: str, value: float):
    def ratio(level: float) -> float:
        return max(level / value, value / level)

    result = AXES[axis][TABLE_READ.nearest(axis, value)]
    assert ratio(result) <= min(map(ratio, AXES[axis])) * (1 + 1e-12)


def test_the_middle_between_two_levels_is_the_geometric_one():
    low, high = AXES["learning_rate"][:2]
    middle = math.sqrt(low * high)
    assert TABLE_READ.nearest("learning_rate", 0.999 * middle) == 0
    assert TABLE_READ.nearest("learning_rate", 1.001 * middle) == 1
    assert middle < (low + high) / 2


@pytest.mark.parametrize("e", range(len(TABLE_READ.epsilons)))
def test_a_setting_of_the_grid_is_its_own_cell_and_holds_what_is_near(e: int):
    assert [TABLE_READ.cell(e, at(TABLE_READ, e, cell)) for cell in GRID] == GRID
    for cell in GRID[::17]:
        s = at(TABLE_READ, e, cell)
        near = DPSGDSettings(
            learning_rate=1.2 * s.learning_rate,
            noise_multiplier=1.2 * s.noise_multiplier,
            clip=s.clip / 1.2,
            batch_size=s.batch_size - 1,
            epochs=s.epochs,
        )
        assert TABLE_READ.cell(e, near) == cell


def test_the_least_noise_is_just_what_the_budget_affords():
    for e, i, j in np.ndindex(TABLE_READ.least_noise.shape):
        batch, epochs = AXES["batch"][i], AXES["epochs"][j]
        assert TABLE_READ.least(e, batch, epochs) == TABLE_READ.least_noise[e, i, j]
    budget = Budget(TABLE_READ.epsilons[1], TABLE_READ.about["delta"])
    for share, fits in ((1.0, True), (0.98, False)):
        plan = Plan(
            samples=TABLE_READ.about["samples"]["train"],
            batch_size=64,
            clip=1.0,
            noise_multiplier=share * TABLE_READ.least(1, 64, 12),
            epochs=12,
            rounds=1,
        )
        assert (epsilon_of(plan.events(), budget) <= budget.epsilon) == fits


def test_means_leave_out_what_was_not_trained(tmp_path: Path):
    table = Table.read(three_seeds(tmp_path / "three.npz"))
    lengths = Counter()
    for e in range(len(table.epsilons)):
        means = table.means(e)
        for cell in GRID:
            right = [int(r) for r in table.test[(e, *cell)] if r >= 0]
            lengths[len(right)] += 1
            assert means[cell] == pytest.approx(sum(right) / len(right) / TEST)
    assert set(lengths) == {1, 3}


@pytest.mark.slow
def test_all_proposers_get_the_same_answers_at_the_same_visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = three_seeds(tmp_path / "three.npz")
    table = Table.read(path)
    cells = [GRID[k] for k in (0, 50, 100, 150, 200)]
    orders = [cells * 12, [c for c in cells for _ in range(12)], [*reversed(cells * 12)]]
    told: list[dict[Any, float]] = []
    for order in orders:
        answers, _ = replayed(monkeypatch, path, [at(table, 1, cell) for cell in order])
        visits = Counter[Any]()
        told.append({})
        for cell, answer in zip(order, answers, strict=True):
            visits[cell] += 1
            told[-1][cell, visits[cell]] = answer
    assert told[0] == told[1] == told[2]
    for cell in cells:
        right = table.validation[(1, *cell)]
        seen = {told[0][cell, visit] for visit in range(1, 13)}
        assert seen == {int(r) / VALIDATION for r in right if r >= 0}
    other, _ = replayed(monkeypatch, path, [at(table, 1, c) for c in orders[0]], repetition=1)
    first, _ = replayed(monkeypatch, path, [at(table, 1, c) for c in orders[0]])
    assert first != other


@pytest.mark.parametrize("seeds", ["stored", "three"])
def test_the_best_setting_has_no_regret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: str
):
    path = TABLE if seeds == "stored" else three_seeds(tmp_path / "three.npz")
    with np.load(path, allow_pickle=False) as f:
        test, least = f["test"].astype(float), f["least_noise"]
    mean = np.ma.masked_less(test, 0).mean(axis=-1) / TEST
    for e in range(len(test)):
        within = [cell for cell in GRID if cell[-1] == 0]  # sigma is derived
        ranked = sorted(within, key=lambda cell, e=e: mean[(e, *cell)])
        for cell in (ranked[-1], ranked[0], ranked[len(ranked) // 2]):
            setting = at(TABLE_READ, e, cell)
            assert least[e, cell[2], cell[3]] <= setting.noise_multiplier
            _, row = replayed(monkeypatch, path, [setting], e)
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
    assert replayed(monkeypatch, TABLE, fair)[1]["over"] == 0
    assert replayed(monkeypatch, TABLE, fair + cheats)[1]["over"] == len(cheats) == 3


@pytest.mark.slow
def test_a_table_whose_noise_is_too_low_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = stored(tmp_path / "low.npz", least_noise=0.95 * TABLE_READ.least_noise)
    low = Table.read(path)
    cells = GRID[::21]
    over = [cell for cell in cells if cell[-1] == 0]
    assert 0 < len(over) < len(cells)
    _, row = replayed(monkeypatch, path, [at(low, 1, cell) for cell in cells])
    assert row["over"] == len(over)
    assert replay((path, 6), (False, "random", 1, 0))["over"] == 6


# Optuna draws its first ten trials at random.
@pytest.mark.parametrize("trials", [6, pytest.param(14, marks=pytest.mark.slow)])
@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("name", PROPOSERS)
def test_a_proposer_stays_in_the_space_and_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, name: str, searched: bool, trials: int
):
    kept: list[tuple[Task, Found]] = []
    search = PROPOSERS[name]

    def kept_search(task: Task, trials: int, seed: int) -> Found:
        kept.append((task, search(task, trials, seed)))
        return kept[-1][1]

    monkeypatch.setitem(PROPOSERS, name, kept_search)
    row = replay((TABLE, trials), (searched, name, 2, 3))
    [(task, result)] = kept
    assert row["over"] == 0
    assert len(result.settings) == len(result.seconds) == len(row["seen"]) == trials
    assert result.best in result.settings
    assert min(result.seconds) >= 0
    assert row["accuracy"] in row["seen"]
    space, factors = task.space, []
    for s in result.settings:
        assert space.learning_rate[0] <= s.learning_rate <= space.learning_rate[1]
        assert space.clip[0] <= s.clip <= space.clip[1]
        assert s.batch_size in AXES["batch"]
        assert s.epochs in AXES["epochs"]
        factors.append(s.noise_multiplier / TABLE_READ.least(2, s.batch_size, s.epochs))
    assert min(factors) >= 1 - 1e-12
    assert max(factors) <= (max(AXES["noise_factor"]) if searched else 1) + 1e-12
    assert (max(factors) > 1.2) == searched
    again = replay((TABLE, trials), (searched, name, 2, 3))
    assert {**again, "seconds": None} == {**row, "seconds": None}


@pytest.mark.parametrize("name", [n for n in PROPOSERS if n != "ours"])
def test_rivals_choose_their_best_observed_value(name: str):
    values: dict[DPSGDSettings, float] = {}

    def objective(s: DPSGDSettings) -> float:
        values[s] = -abs(math.log(s.learning_rate))
        return values[s]

    space = TABLE_READ.space(False)
    task = Task(objective, lambda b, p: TABLE_READ.least(0, b, p), lambda _: True, space, 300)
    results = PROPOSERS[name](task, 6, 0)
    assert len(values) == 6
    assert values[results.best] == max(values.values())


def test_fixed_configurations_have_a_row_for_each_training(tmp_path: Path):
    fixed = np.tile(TABLE_READ.fixed_test[..., :1], (1, 1, 3))
    fixed[..., 1] += 5
    fixed[0, 2, 1:] = -1
    table = Table.read(stored(tmp_path / "fixed.npz", fixed_test=fixed))
    rows = fixed_rows(table)
    expected = [
        {
            "proposer": f"fixed {name}",
            "epsilon": epsilon,
            "accuracy": int(right) / TEST,
            "regret": pytest.approx(float(table.means(e)[..., 0].max()) - int(right) / TEST),
            "steps": int(table.fixed_steps[e, i]),
        }
        for e, epsilon in enumerate(table.epsilons)
        for i, name in enumerate(FIXED_CONFIGURATIONS)
        for right in fixed[e, i]
        if right >= 0
    ]
    assert rows == expected
    assert len(rows) == fixed[..., 0].size * 3 - 2
