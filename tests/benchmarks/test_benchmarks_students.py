"""The benchmark of students, on a few digits."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import joining_world, students, students_world
from benchmarks.joining_world import Setting
from panas.evolution.records import EvolutionConfig


@pytest.mark.slow
def test_one_search_serves_all_sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(joining_world, "PUBLIC", 200)
    monkeypatch.setattr(joining_world, "TEST", 200)
    small = Setting("digits", 60, 0, 8.0, 2, 0.3)
    for module in (students_world, students):
        monkeypatch.setattr(module, "SETTING", small)
    monkeypatch.setattr(students, "SITES", (1, 4))
    monkeypatch.setattr(students, "APART", 1)
    monkeypatch.setattr(students, "SIMILAR", 0.5)
    monkeypatch.setattr(students, "EVOLUTION", EvolutionConfig(population=2, generations=1))
    for name in ("SHORT", "STUDENT"):
        config = replace(getattr(students_world, name), epochs=1)
        monkeypatch.setattr(students_world, name, config)
    monkeypatch.setattr(students_world, "long_enough", lambda config, *_: config)
    run = students.one("", (0, 1.0))
    first, last = run["cost"]
    assert first["passes"] == last["passes"] > 0
    assert first["seconds"] < last["seconds"]
    assert [site["apart"] is None for site in run["sites"]] == [False, True]
    assert all(site["macs"] <= run["macs"] for site in run["sites"])
    sizes = [r["macs"] for r in run["front"]]
    assert sizes == sorted(sizes)
    result = students.summary([run, run])
    assert result["cost of 4 sites, passes"] == (1.0, 0.0)
    assert result["below predictor"][1] == 0.0
    assert len(students.table(result).splitlines()) == len(result)
    students.draw([run], tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 0
    assert "phi with its heads" in students.front_table(run)
