"""The benchmark of joining on tables, on a few rows."""

from dataclasses import astuple

import pytest

from benchmarks import joining_tables
from benchmarks.joining_tables import Setting, Sizes

SMALL = Setting("breast cancer", 50, 8.0)


@pytest.mark.thorough
def test_every_figure_is_measured_and_compared(monkeypatch: pytest.MonkeyPatch):
    sizes = Sizes(n=40, validation=20, sites=2, test=150)
    monkeypatch.setitem(joining_tables.TABLES, "breast cancer", sizes)
    seeds = [joining_tables.one("", (*astuple(SMALL), seed)) for seed in (0, 1)]
    result = joining_tables.row(SMALL, seeds)
    assert result["setting"]["sites"] == 2
    for name in ("forest on public", "forest on public and own", "alone", "joined", "pooled"):
        figures = result["methods"][name]
        assert figures["auroc"]["mean"] > 0.9
        assert all(0.5 < figures[f]["mean"] <= 1 for f in joining_tables.FIGURES)
    forest = result["methods"]["forest on public"]["auroc"]
    assert forest["over forest on public"] == [0.0, 0.0]
    assert "forest on public" in joining_tables.table(result)


@pytest.mark.slow
def test_a_short_table_has_as_many_sites_as_rows_are_left():
    raw = joining_tables.rows_of("breast cancer", "")
    few, many = (joining_tables.draw(Setting("breast cancer", p, 8.0), raw, 0) for p in (50, 200))
    assert (len(few.sites), len(many.sites)) == (5, 3)
    assert (few.labelled, many.labelled) == (50, 200)


def test_every_table_has_at_least_two_sites():
    assert {s.table for s in joining_tables.grid()} == set(joining_tables.TABLES)
    assert Setting("breast cancer", 1000, 8.0) not in joining_tables.grid()
