"""One rehearsal for all sites: what is kept is nobody's own, and survives a death."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import joined_config

from dprbft.config.schema import RunConfig
from dprbft.methods.joined import tuning
from dprbft.methods.joined.residual import default_settings
from dprbft.methods.joined.state import JoinedState
from dprbft.methods.joined.tuning import chosen, tune_residual
from dprbft.paths import CANDIDATES, read_sites
from dprbft.run.directory import prepare
from dprbft.run.view import RunView
from dprbft.site.joining import join
from dprbft.site.results.records import TuningRecord
from dprbft.site.site import Site, open_site
from panas.training.linear import ridge
from panas.tuning.objective import SimulatedSite
from panas.tuning.space import DPSGDSettings

CONFIG = joined_config(tuning={"trials": 3})
TRAININGS = 3 * 2 + 2 * 2
"""Of trials at simulated sites, then of two settings at two judges."""


@pytest.fixture(autouse=True)
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The simulated sites that train, by their numbers; few public samples are enough.

    Their scores are made up, but for the test that has them train."""
    monkeypatch.setattr(tuning, "FEWEST", 50)
    monkeypatch.setattr(tuning, "NEAR", 100.0)
    monkeypatch.setattr(tuning, "JUDGES", 2)
    monkeypatch.setattr(tuning, "SKEWS", (0.3, 3.0))
    monkeypatch.setattr(ridge, "FEWEST", 100)  # no cross-validation
    trained = list[int]()

    def scored(site: SimulatedSite, settings: DPSGDSettings) -> float:
        trained.append(site.number)
        return 0.5 + 0.1 * math.sin(site.number + settings.learning_rate)

    monkeypatch.setattr(SimulatedSite, "__call__", scored)
    return trained


def joined_sites(run: Path, config: RunConfig = CONFIG) -> list[Site]:
    """Sites that have a shared head and histograms of their own."""
    prepare(run, config, resume=False)
    view, sites = RunView(run, config), list[Site]()
    for paths in read_sites(run):
        join(paths, view.hello(paths.index))
        site = open_site(paths)
        counts = tuple(site.data.train.histogram().float().tolist())
        JoinedState(round=1, histogram=counts, shared=torch.zeros(10, 16)).write(site)
        sites.append(site)
    return sites


def kept(run: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (run / CANDIDATES).glob("rehearsal-*.json")}


@pytest.mark.slow
def test_a_second_site_takes_the_first_ones_rehearsal_over(tmp_path: Path, trainings: list[int]):
    one, other = joined_sites(tmp_path / "run")
    first = tune_residual(one)
    assert len(trainings) == TRAININGS
    second = tune_residual(other)
    assert len(trainings) == TRAININGS
    assert (second.trials, second.best) == (first.trials, first.best)
    assert TuningRecord.from_json(second.to_json()) == second
    # Another budget asks for another rehearsal.
    poorer = replace(other, budget=replace(other.budget, epsilon=4.0))
    keys = [tuning.rehearsal_of(site).key for site in (one, other, poorer)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.slow
def test_labels_of_the_shared_head_choose_no_number_of_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Epochs decide what the residual is charged as: that must not follow from a release."""
    few = {"data": {"public_labels": 10}}
    site = joined_sites(tmp_path / "few", joined_config(tuning={"trials": 6}, **few))[0]
    assert len(site.public) == 10
    # Whoever trains longest would win.
    monkeypatch.setattr(SimulatedSite, "__call__", lambda _, s: 1 / (1 + (s.epochs or 0)))
    rehearsal, record = tuning.rehearsal_of(site), tune_residual(site)
    assert not rehearsal.labelled
    assert len(rehearsal.public) == len(site.public) + len(site.unlabelled)
    assert {t.setting.epochs for t in record.trials} == {rehearsal.recipe.epochs}
    assert record.settings.epochs == default_settings(site).epochs
    assert not record.nothing
    known = joined_sites(tmp_path / "all", joined_config(tuning={"trials": 6}))[0]
    assert tuning.rehearsal_of(known).labelled
    assert len({t.setting.epochs for t in tune_residual(known).trials}) > 1


TRAIN = SimulatedSite.__call__


@pytest.mark.slow
def test_what_is_kept_has_no_bit_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SimulatedSite, "__call__", TRAIN)
    runs = [tmp_path / "one", tmp_path / "other"]
    for run, at in zip(runs, (0, 1), strict=True):
        tune_residual(joined_sites(run)[at])
    one, other = (open_site(read_sites(run)[at]) for run, at in zip(runs, (0, 1), strict=True))
    assert one.data.train.units != other.data.train.units
    assert len(kept(runs[0])) == 1
    assert kept(runs[0]) == kept(runs[1])


# In the second trial, and at the judges.
@pytest.mark.slow
@pytest.mark.parametrize("at", [3, pytest.param(TRAININGS - 1, marks=pytest.mark.slow)])
def test_a_rehearsal_goes_on_after_a_death(
    tmp_path: Path, trainings: list[int], monkeypatch: pytest.MonkeyPatch, at: int
):
    whole = tune_residual(joined_sites(tmp_path / "whole")[0])
    site, counting = joined_sites(tmp_path / "died")[0], SimulatedSite.__call__
    trainings.clear()

    def dying(simulated: SimulatedSite, settings: DPSGDSettings) -> float:
        if len(trainings) == at:
            raise KeyboardInterrupt
        return counting(simulated, settings)

    with monkeypatch.context() as planted:
        planted.setattr(SimulatedSite, "__call__", dying)
        with pytest.raises(KeyboardInterrupt):
            tune_residual(site)
    assert not kept(tmp_path / "died")
    trials = at // len(tuning.SKEWS)  # that were through
    trainings.clear()
    assert tune_residual(site) == whole
    assert len(trainings) == TRAININGS - len(tuning.SKEWS) * min(trials, 3)
    assert kept(tmp_path / "died") == kept(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["rule", "tuned", "nothing"])
def test_settings_count_relative_to_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
):
    monkeypatch.setattr(tuning, "chosen", lambda *_: choice)
    site = joined_sites(tmp_path / "run")[0]
    result, rule = tune_residual(site), default_settings(site)
    assert result.nothing == (choice == "nothing")
    assert (result.by_rule == "none better") == (choice == "rule")
    assert result.best is not None
    if choice != "tuned":
        assert result.settings == rule
        return
    rehearsed = tuning.rehearsal_of(site).recipe
    factor = result.best.learning_rate / rehearsed.learning_rate
    longer = (result.best.epochs or 0) / rehearsed.epochs
    wanted = replace(
        rule,
        learning_rate=factor * rule.learning_rate,
        epochs=round(longer * (rule.epochs or 0)),
    )
    assert result.settings.learning_rate == pytest.approx(wanted.learning_rate)
    assert replace(result.settings, learning_rate=wanted.learning_rate) == wanted


def test_a_site_of_another_size_keeps_the_rule(
    tmp_path: Path, trainings: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tuning, "NEAR", 1.1)
    site = joined_sites(tmp_path / "run")[0]
    record = tune_residual(site)
    assert (record.by_rule, record.settings) == ("other size", default_settings(site))
    assert not trainings


def test_the_rule_stands_unless_it_is_clearly_beaten():
    rule = [0.5, 0.6, 0.7, 0.8]
    better, worse = ([r + d for r in rule] for d in (0.05, -0.05))
    unclear = [0.7, 0.6, 0.7, 0.7]
    assert chosen(rule, better, worse) == "tuned"
    assert chosen(rule, worse, better) == "nothing"
    assert chosen(rule, rule, rule) == "rule"
    assert chosen(rule, unclear, worse) == "rule"
    assert chosen(rule, unclear, unclear) == "rule"
