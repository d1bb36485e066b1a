"""How long a run will take: what is planned, and what has been done corrects it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites, search_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.progress import forecast as forecasts
from dprbft.run.progress.forecast import NOISE_PASSES, START, Forecast, forecast
from dprbft.run.view import RunView
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.runtime.store import write_json


def test_what_is_left_shrinks_as_forecast_when_all_goes_as_forecast():
    plan = Forecast({"search": 100.0, "tune": 50.0, "train": 50.0})
    assert plan.total == 200
    assert plan.left("search", 0.0, 0.0) == pytest.approx(200)
    assert plan.left("search", 0.5, 50.0) == pytest.approx(150)
    assert plan.left("train", 0.5, 175.0) == pytest.approx(25)
    assert plan.left("train", 1.0, 200.0) == pytest.approx(0)


def test_a_run_that_is_slower_than_forecast_corrects_it():
    plan = Forecast({"search": 100.0, "train": 100.0})
    assert 250 < plan.left("search", 0.5, 150.0) < 450  # thrice as slow, and soon believed
    assert plan.left("train", 0.5, 450.0) == pytest.approx(150, rel=0.1)


IMAGES = Facts(class_names=("a", "b"), shape=(1, 8, 8), dtype="uint8")
TABLE = Facts(class_names=("a", "b"), shape=(1, 1, 1), dtype="float32", columns=(Column(name="x"),))


def passes_of(config: RunConfig, *facts: Any) -> dict[str, float]:
    return forecasts.PASSES[config.federation.family.name](config, *facts)


def passes(**changes: object) -> dict[str, float]:
    settings = {
        "search": {
            "population": 4,
            "generations": 2,
            "offspring": 2,
            "initial": None,
            "epochs": 10,
        },
        "tuning": {"trials": 3},
        "training": {"epochs": 2, "warm_epochs": 5},
        "federation": {"method": "dprbft", "rounds": 4},
        "audit": {"decoder_epochs": 10, "samples": 20, "threats": []},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        settings[section] = settings.get(section, {}) | {name: value}
    return passes_of(build_config(settings), IMAGES, 100, 50)


def test_passes_are_counted_by_hand():
    result = passes(search__rungs=[])
    assert result == {
        "search": (4 + 2 * 2) * 10 * 100,
        "tune": 3 * 2 * 4 * 100 + 5 * 100,
        "train": 2 * 4 * 50 + 5 * 100,
        "audit": 10 * 100,
    }


def test_what_spares_training_is_counted():
    whole, halved = passes(search__rungs=[]), passes(search__rungs=[0.5], search__keep=0.5)
    assert halved["search"] == pytest.approx(0.75 * whole["search"])
    assert passes(federation__warm_start="none")["train"] == 2 * 4 * 50
    assert passes(training__noise_multiplier=1.0)["tune"] == 0
    assert passes(privacy__search="data-free")["search"] < whole["search"] / 10


@pytest.mark.parametrize(
    ("facts", "public", "taught"),
    [
        (IMAGES, 40, 1000),
        (IMAGES, 999, 1000),
        (IMAGES, 2000, 1400),
        (TABLE, 40, 28),
        (IMAGES, 1, 0),
    ],
)
def test_candidates_of_few_images_are_taught_pictures_made_of_them(
    facts: Facts, public: int, taught: int
):
    search = {"population": 4, "generations": 0, "epochs": 400}
    config = build_config({"federation": {"method": "joined"}, "search": search})
    every = replace(config.search.evolution, initial=None, rungs=())
    config = config.model_copy(
        update={"search": config.search.model_copy(update={"evolution": every})}
    )
    result = passes_of(config, facts, public, 50)
    assert result["search"] == 4 * (400 * taught or NOISE_PASSES)


def test_networks_that_stay_learn_of_own_samples_too_and_so_do_their_rivals():
    def train(network: str = "protected", *, baselines: bool = True) -> float:
        federation = {"method": "joined", "baselines": baselines}
        config = build_config({"federation": federation, "privacy": {"network": network}}, {})
        return passes_of(config, IMAGES, 2000, 500)["train"]

    assert train() == train(baselines=False) == 25 * 2000
    assert train("stays", baselines=False) == 25 * 2000 + 30 * 500
    assert train("stays") == 2 * (25 * 2000 + 30 * 500)


def test_a_forecast_is_for_the_sites_that_have_something_to_do(
    tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forecasts, "seconds_a_pass", lambda run, device: 1.0)
    looked: list[int] = []
    real = RunView.site

    def site(view: RunView, index: int) -> object:
        looked.append(index)
        return real(view, index)

    monkeypatch.setattr(RunView, "site", site)
    config = tiny(federation__clients=3)
    prepare(tmp_path, config, resume=False)
    run = OpenRun(tmp_path, config, InProcess(read_sites(tmp_path)))
    one = passes_of(config, run.view.facts, len(run.view.public), 0)["search"]

    def seconds(*clients: int, workers: int = 1) -> float:
        result = forecast(run, ["search"], workers=workers, device="cpu", clients=clients or None)
        return result.total

    assert seconds(1) == START + one
    assert looked == [1]
    assert seconds() == START + 3 * one
    assert seconds(workers=2) == START + 1.5 * one
    assert seconds(1, workers=2) == START + one / 2  # both work for the one site
    write_json(search_file(run.view.sites[1].home), {})
    assert seconds() == START + 2 * one
    assert seconds(1) == 0


def test_a_search_for_all_sites_is_counted_once(
    tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forecasts, "seconds_a_pass", lambda run, device: 1.0)
    config = tiny(federation__clients=3, federation__method="joined")
    prepare(tmp_path, config, resume=False)
    run = OpenRun(tmp_path, config, InProcess(read_sites(tmp_path)))
    inputs = len(run.view.public)
    one = passes_of(config, run.view.facts, inputs, 0)["search"]
    for workers in (1, 2):  # who share it out
        result = forecast(run, ["search"], workers=workers, device="cpu")
        assert result.total == START + one / workers
        assert result.serve_all == {"search"}
