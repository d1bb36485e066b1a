"""The benchmark of joining, on a few digits."""

from dataclasses import astuple
from pathlib import Path

import pytest

from benchmarks import joining, joining_methods, joining_world
from benchmarks.joining_world import Setting
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of, release_multiplier
from panas.runtime.errors import BadInput

SMALL = Setting("digits", 60, 50, 8.0, 6, 1.0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joining_world, "PUBLIC", 300)
    monkeypatch.setattr(joining_world, "TEST", 300)


@pytest.mark.thorough
def test_every_row_is_measured_and_exact_pooling_leads(few: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joining_methods, "release_share", lambda *_: 0.85)
    seeds = [joining.one({"digits": ""}, (*astuple(SMALL), seed)) for seed in (0, 1)]
    result = joining.row(SMALL, seeds)
    methods = result["methods"]
    assert set(methods) == set(joining.METHODS)
    assert methods["alone"]["gain"] == 0
    assert methods["pooled"]["uniform"] > methods["own release"]["uniform"] + 0.1
    read = [methods[f"forest on {reads}"]["own"] for reads in ("public", "public and own")]
    assert read[1] > read[0] > 0.5
    assert all(len(seed[m]) == SMALL.sites for seed in seeds for m in joining.METHODS)
    assert len(joining.table(result).splitlines()) == 4 + len(joining.METHODS)


@pytest.mark.slow
def test_nobody_spends_more_than_epsilon():
    budget = Budget(8.0, joining_world.DELTA)
    histogram = Gaussian(release_multiplier(budget, 1, joining_world.HISTOGRAM))
    for share in (0.0, 0.5, 0.85):
        plan = joining_methods.plan_of(60, 8.0, share)
        assert plan.releases == int(share > 0)
        assert 7.5 < epsilon_of([histogram, *plan.events()], budget) <= 8.0
    alone = Gaussian(joining_methods.all_released(60, 8.0))
    assert 7.5 < epsilon_of([histogram, alone], budget) <= 8.0


def test_the_reduced_grid_is_part_of_the_wide_one():
    few, wide = (
        joining.grid(joining.GRID),
        joining.grid(joining.GRID.with_name("joining-wide.toml")),
    )
    assert set(few) <= set(wide)
    assert len({*few}) == len(few) == 17
    assert joining.USUAL in few


def test_a_grid_names_known_settings(tmp_path: Path):
    (tmp_path / "grid.toml").write_text("[[grid]]\nclients = [4]\n")
    with pytest.raises(BadInput, match="got clients"):
        joining.grid(tmp_path / "grid.toml")
    (tmp_path / "grid.toml").write_text("n = [150]\n")
    with pytest.raises(BadInput, match=r"expected \[\[grid\]\]"):
        joining.grid(tmp_path / "grid.toml")


@pytest.mark.slow
def test_whoever_joins_nobody_is_alone_to_the_bit(few: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joining_methods, "release_share", lambda *_: 0.0)
    result = joining.one({"digits": ""}, (*astuple(SMALL), 0))
    assert result["share"] == 0.0
    assert result["joined"] == result["secure sum"] == result["alone"] != result["alone again"]
    assert "shared" not in result
