"""The benchmark of FEATHERS on card fraud, on made-up rows."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import feathers
from panas.runtime.seeds import stream


def table(path: Path, frauds: int, others: int) -> Path:
    """A numbered table of which the first rows come twice."""
    rng = stream(0, "rows")
    rows = [
        [*rng.normal(2.0 * (i < frauds), 1.0, 3).round(4), int(i < frauds)]
        for i in range(frauds + others)
    ]
    source = path / "creditcard_made_up.csv"
    with source.open("w", newline="") as file:
        numbered = [[i, *row] for i, row in enumerate([*rows, *rows[:5]])]
        csv.writer(file).writerows([["", "V1", "V2", "Amount", "Class"], *numbered])
    return source


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(("share", "frauds"), [(1.0, 40), (0.25, 20), (0.9, 40)])
def test_rows_lose_their_number_and_come_once(tmp_path: Path, share: float, frauds: int):
    target = tmp_path / "rows.csv"
    feathers.write_rows(table(tmp_path, 40, 60), target, share, seed=0)
    names, *rows = rows_of(target)
    assert names == ["V1", "V2", "Amount", "Class"]
    assert len({tuple(row) for row in rows}) == len(rows) == 60 + frauds
    assert sum(int(row[-1]) for row in rows) == frauds


@pytest.mark.thorough
def test_a_table_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    table(tmp_path, 60, 140)
    options = ["--seeds", "1", "--sites", "2", "--rounds", "4", "--positives", "1"]
    told = ["feathers", "--data-root", str(tmp_path), *options, "--epsilons", "8", "inf"]
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [*told, "--work", str(tmp_path), "--plot", str(picture)])
    feathers.main()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["partition", "epsilon", "f1"]
    assert [row.split()[:2] for row in rows] == [
        [p, e] for p in ("iid", "dirichlet") for e in ("8", "inf")
    ]
    assert all(0 <= float(row.split()[2]) <= 1 for row in rows)
    assert picture.stat().st_size > 1000


def test_figures_are_means_over_seeds():
    tasks = [("inf", "iid", 0), ("inf", "iid", 1)]
    runs = [{"f1": f1, "macro_f1": 0.5, "auroc": None, "all frauds": 0.1} for f1 in (0.4, 0.8)]
    (row,) = feathers.summary(tasks, runs)
    assert row["f1"] == pytest.approx([np.mean([0.4, 0.8]), 0.2])
    assert row["auroc"] is None
    assert "0.600 +- 0.200" in feathers.table([row])
