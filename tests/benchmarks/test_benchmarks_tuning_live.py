"""The live part of the tuning benchmark, on a site so small that training it takes no time."""

import json
import math
import statistics
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import tuning_live
from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.make_tuning_table import count, trained
from benchmarks.tuners import PROPOSERS, Found, Task
from benchmarks.tuning import lived, main
from benchmarks.tuning_live import FIXED, JUDGES, LIVE_EPSILON, Ground, fashion, live, with_regret
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.load import DataSettings
from panas.data.samples import Samples
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.plan import Plan
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream
from panas.tuning.space import DPSGDSettings, TuningSpace

BUDGET = Budget(LIVE_EPSILON, 1e-5)
SPACE = TuningSpace(
    learning_rate=(0.1, 1.0),
    clip=(0.5, 2.0),
    noise_factor=(1.0, 1.0),
    batch_sizes=range(10, 13),
    epochs=range(1, 3),
)


def small(root: str, seed: int) -> tuple[Samples, Samples, Samples]:
    """Images of 8 x 8, of which one class is a little brighter."""
    rng = stream(seed, "small")
    parts = []
    for n in (50, 20, 40):
        y = rng.integers(2, size=n)
        x = rng.integers(236, size=(n, 1, 8, 8)) + 20 * y[:, None, None, None]
        parts.append(Samples(torch.from_numpy(x.astype(np.uint8)), torch.from_numpy(y), 2))
    return parts[0], parts[1], parts[2]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_live, "fashion", small)
    monkeypatch.setattr(tuning_live, "LIVE_SPACE", SPACE)


def ground(seed: int = 0) -> Ground:
    return Ground(BUDGET, seed, *small("", seed))


def setting(share: float = 1.0) -> DPSGDSettings:
    least = ground().task().least(10, 2)
    assert least is not None
    return DPSGDSettings(
        learning_rate=0.5, noise_multiplier=share * least, clip=1.0, batch_size=10, epochs=2
    )


def naive(s: DPSGDSettings, samples: Samples, seed: int, key: str) -> float:
    train = small("", seed)[0]
    plan = Plan(
        samples=50,
        batch_size=s.batch_size,
        clip=s.clip,
        noise_multiplier=s.noise_multiplier,
        epochs=s.epochs or 0,
        rounds=1,
    )
    networks = trained(
        train,
        NetworkSpec(shape=(1, 8, 8), classes=2, width=64),
        Genome.parse(tuning_live.LIVE_GENOME),
        plan,
        math.ceil((s.epochs or 0) * 50 / s.batch_size),
        s.learning_rate,
        seed,
        key,
    )
    return count(*networks, samples) / len(samples)


@pytest.mark.slow
def test_a_choice_is_judged_by_new_trainings_on_the_test_samples(monkeypatch: pytest.MonkeyPatch):
    s, told = setting(), []

    def planted(task: Task, trials: int, seed: int) -> Found:
        told.extend(task.objective(s) for _ in range(trials))
        return Found(s, [s] * trials, [0.5] * trials)

    monkeypatch.setitem(PROPOSERS, "planted", planted)
    row = live(("", 2), (1, "planted"))
    _, validation, test = small("", 1)
    judged = [naive(s, test, 1, f"judge {k} {s}") for k in range(JUDGES)]
    # As trained while searching, the network does otherwise.
    assert statistics.fmean(judged) != naive(s, test, 1, repr(s))
    assert told == [naive(s, validation, 1, repr(s))] * 2
    assert row == {
        "proposer": "planted",
        "seed": 1,
        "best": asdict(s),
        "accuracy": pytest.approx(statistics.fmean(judged)),
        "over": 0,
        "seconds": [0.5, 0.5],
    }


@pytest.mark.slow
def test_a_setting_over_the_budget_is_counted(monkeypatch: pytest.MonkeyPatch):
    tried = [setting(), setting(0.97), setting(1.5), setting(0.5)]
    result = Found(tried[0], tried, [])
    monkeypatch.setitem(PROPOSERS, "cheat", lambda task, trials, seed: result)
    assert live(("", 4), (0, "cheat"))["over"] == 2


@pytest.mark.slow
def test_the_least_noise_is_just_what_the_budget_affords():
    for share, fits in ((1.0, True), (0.98, False)):
        s = setting(share)
        event = SampledGaussian(0.2, s.noise_multiplier, 10)
        assert ground().affordable(s) == (epsilon_of([event], BUDGET) <= LIVE_EPSILON) == fits


def test_where_no_noise_is_enough_there_is_none(monkeypatch: pytest.MonkeyPatch):
    def exhausted(*_: Any, **__: Any) -> Plan:
        raise BudgetExhausted("too small")

    monkeypatch.setattr(tuning_live, "calibrate", exhausted)
    assert ground().task().least(10, 2) is None


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fixed A", "fixed C", "fixed DPFNAS"])
def test_a_fixed_configuration_trains_for_what_the_budget_affords(name: str):
    row, f = live(("", 2), (0, name)), FIXED_CONFIGURATIONS[name.removeprefix("fixed ")]
    steps, n = row["steps"], len(small("", 0)[2])
    assert epsilon_of([SampledGaussian(f.rate, f.noise_multiplier, steps)], BUDGET) <= LIVE_EPSILON
    more = SampledGaussian(f.rate, f.noise_multiplier, steps + 1)
    assert epsilon_of([more], BUDGET) > LIVE_EPSILON
    assert 0 <= row["accuracy"] <= 1
    right = row["accuracy"] * n * tuning_live.JUDGES  # a mean of so many trainings
    assert right == pytest.approx(round(right))
    assert row == {
        "proposer": name,
        "seed": 0,
        "accuracy": row["accuracy"],
        "steps": steps,
    }


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


def test_images_are_averaged_and_the_parts_are_disjoint(monkeypatch: pytest.MonkeyPatch):
    x = torch.from_numpy(stream(0, "images").integers(256, size=(3500, 1, 28, 28), dtype=np.uint8))
    y = torch.arange(3500) % 10
    asked: list[tuple[DataSettings, np.random.Generator]] = []

    def load(settings: DataSettings, rng: np.random.Generator) -> SimpleNamespace:
        asked.append((settings, rng))
        return SimpleNamespace(private=Samples(x, y, 10))

    monkeypatch.setattr(tuning_live, "load", load)
    parts = fashion.__wrapped__("folder", 7)
    assert [len(p) for p in parts] == [1000, 500, 2000]
    assert torch.equal(torch.cat([p.y for p in parts]), y)
    result = torch.cat([p.x for p in parts])
    assert result.shape == (3500, 1, 14, 14)
    for k, i, j in ((0, 0, 0), (999, 13, 2), (3499, 5, 13)):
        mean = x[k, 0, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].double().mean().item()
        assert abs(result[k, 0, i, j].item() - mean) <= 0.5
    [(settings, rng)] = asked
    assert settings.dataset == "fashion-mnist"
    assert (str(settings.data_root), settings.limit) == ("folder", 3500)
    assert rng.random() == stream(7, "live data").random()


@pytest.mark.thorough
def test_the_live_part_goes_on_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for slow in ("fixed D", "fixed E", "fixed DPFNAS"):
        monkeypatch.delitem(FIXED, slow)
    names, searches = (*PROPOSERS, *FIXED), list[str]()

    def rows(work: str, stop: str | None = None) -> list[dict[str, Any]]:
        def counted(context: tuple[str, int], task: tuple[int, str]) -> dict[str, Any]:
            if task == (1, stop):
                raise KeyboardInterrupt
            searches.append(task[1])
            return live(context, task)

        monkeypatch.setattr("benchmarks.tuning.live", counted)
        return lived("data", tmp_path / work, seeds=2, trials=3, workers=1)

    with pytest.raises(KeyboardInterrupt):
        rows("work", stop="optuna tpe")
    assert len(searches) == len(names) + 2
    again = rows("work")
    assert len(searches) == 2 * len(names)
    assert rows("work") == again
    assert len(searches) == 2 * len(names)
    assert "live: 14 of 14 known from" in capsys.readouterr().err
    assert [(row["seed"], row["proposer"]) for row in again] == [
        (seed, name) for seed in range(2) for name in names
    ]
    measured = [r | {"seconds": None} for r in rows("whole")]
    assert [r | {"seconds": None} for r in again] == measured
    for row in again:
        assert row["regret"] >= 0
        assert row.get("over", 0) == 0
        assert ("steps" in row) == (row["proposer"] in FIXED)
        assert row["proposer"] in FIXED or len(row["seconds"]) == 3

    short = ["--json", "--repetitions", "1", "--searched", "0", "--trials", "3", "--workers", "1"]
    live_too = ["--live-seeds", "2", "--data-root", "data", "--work", str(tmp_path / "work")]
    main([*short, *live_too])
    record = json.loads(capsys.readouterr().out)
    assert record["live"]["rows"] == [
        {k: v for k, v in row.items() if k != "seconds"} for row in again
    ]
    for name in names:
        mine = [row["regret"] for row in again if row["proposer"] == name]
        assert record["live"]["median_regret"][name] == pytest.approx(np.median(mine))
    longest = max(max(row["seconds"]) for row in again if row["proposer"] == "ours")
    assert record["propose_seconds"] >= longest
