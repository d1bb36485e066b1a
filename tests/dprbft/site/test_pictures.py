"""Pictures of searches and trials: drawn when somebody asks, from the records alone."""

import shutil
from pathlib import Path

import pytest
from tiny_runs import carry_out, joined_config

from dprbft.config.schema import RunConfig
from dprbft.paths import history_picture, network_picture, read_sites, trials_picture
from dprbft.run.view import RunView
from dprbft.site.results import pictures
from dprbft.site.results.pictures import draw_missing
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.site import spec_of
from panas.architecture.network import NetworkSpec
from panas.plots.network import drawing
from panas.runtime.store import read_json, write_json
from panas.tuning.trial import TrialRecord


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunConfig]:
    """A run of two sites that has searched and tuned."""
    run, config = tmp_path_factory.mktemp("pictures") / "run", joined_config()
    carry_out(run, config, stages="st")
    return run, config


@pytest.fixture
def home(whole: tuple[Path, RunConfig], tmp_path: Path) -> Path:
    """A site's folder for the run, to draw in."""
    return Path(shutil.copytree(read_sites(whole[0])[0].home, tmp_path / "home"))


def spec(whole: tuple[Path, RunConfig]) -> NetworkSpec:
    return spec_of(whole[1], RunView(*whole).facts)


@pytest.mark.slow
def test_a_run_draws_none(whole: tuple[Path, RunConfig]):
    assert not list(whole[0].rglob("*.png"))


@pytest.mark.slow
def test_what_is_missing_is_drawn_once(
    whole: tuple[Path, RunConfig], home: Path, monkeypatch: pytest.MonkeyPatch
):
    record = SearchRecord.read(home)
    calls = []

    def noted(*about: object) -> bytes:
        calls.append(about)
        return drawing(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "drawing", noted)
    drawn = draw_missing(home, whole[1], spec(whole))
    assert drawn == [history_picture(home), network_picture(home)]
    assert calls == [(record.genome, spec(whole), record.fitness, None)]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert draw_missing(home, whole[1], spec(whole)) == drawn
    assert len(calls) == 1


@pytest.mark.slow
def test_trials_are_drawn_where_there_were_some(whole: tuple[Path, RunConfig], home: Path):
    record = TuningRecord.read(home)
    trial = TrialRecord(0, record.settings, value=0.5, status="done", proposed_by="ei")
    path = home / "tune" / "best.json"
    write_json(path, read_json(path) | {"trials": [vars(trial) | {"setting": vars(trial.setting)}]})
    assert trials_picture(home) in draw_missing(home, whole[1], spec(whole))


def test_a_site_that_has_searched_nothing_has_no_picture(
    whole: tuple[Path, RunConfig], tmp_path: Path
):
    assert draw_missing(tmp_path, whole[1], spec(whole)) == []
    assert not list(tmp_path.iterdir())
