"""How long a run will take: what is planned, and what has been done corrects it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.methods.joined.networks import FEW_SITES, LEAST, MOST_OWN, steps_of_student
from dprbft.paths import read_sites, search_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.progress import forecast as forecasts
from dprbft.run.progress.forecast import Forecast, forecast
from dprbft.run.progress.pace import Line, Pace, measured
from dprbft.run.progress.work import (
    LATER,
    NOISE_BATCH,
    NOISE_STEPS,
    STAGES_OF,
    Cost,
    Data,
    stretches,
)
from dprbft.run.view import RunView
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.evolution.records import EvolutionConfig
from panas.runtime.store import write_json
from panas.training.distillation import STUDENT


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

PASSES = Pace(Line(0.0, 1.0), Line(0.0, 1.0), picture=0.0, slowness=0.0)
"""At which a sample's pass takes a second, and nothing else any time."""


def costs(
    config: RunConfig, facts: Facts, public: int, own: int, pace: Pace = PASSES
) -> dict[str, Cost]:
    work = STAGES_OF[config.federation.family.name]
    return dict(work(config, Data(facts, public, 0, own), pace, pace))


def each(**changes: object) -> dict[str, float]:
    settings = {
        "search": {
            "population": 4,
            "generations": 2,
            "offspring": 2,
            "initial": None,
            "epochs": 10,
        },
        "tuning": {"trials": 3, "batch_sizes": [10]},
        "training": {"epochs": 2, "warm_epochs": 5},
        "federation": {"method": "dprbft", "rounds": 4},
        "audit": {"decoder_epochs": 10, "samples": 20, "threats": []},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        settings[section] = settings.get(section, {}) | {name: value}
    record = costs(build_config(settings), IMAGES, 100, 50)
    assert all(not cost.common and cost.once == 0 for cost in record.values())
    return {stage: cost.each for stage, cost in record.items()}


def test_passes_are_counted_by_hand():
    result = each(search__rungs=[])
    assert result["search"] == pytest.approx(LATER * (4 + 2 * 2) * 10 * (0.4 * 100 + 50))
    assert result["tune"] == pytest.approx(3 * 2 * 4 * 50 + 0.4 * 5 * 100)
    assert result["train"] == pytest.approx(2 * 4 * 50 + 5 * 100)
    assert result["audit"] == 0


def test_what_spares_training_is_counted():
    whole, halved = each(search__rungs=[]), each(search__rungs=[0.5], search__keep=0.5)
    first, later = 1 + 0.5 * 3 + 0.5 * 2, 2 * (0.5 * 2 + 0.5 * 1)
    assert halved["search"] == pytest.approx((first + later) / 8 * whole["search"])
    assert each(federation__warm_start="none")["train"] == pytest.approx(2 * 4 * 50)
    assert each(training__noise_multiplier=1.0)["tune"] < 1
    assert each(privacy__search="data-free")["search"] == 8 * NOISE_STEPS * NOISE_BATCH


def test_what_does_not_train_takes_as_long_as_the_machine_is_slow():
    config = build_config({"federation": {"method": "dprbft"}})
    still = replace(PASSES, plain=Line(0, 0))
    one, two = (costs(config, IMAGES, 100, 50, replace(still, slowness=s)) for s in (1, 2))
    for stage in ("search", "audit"):
        assert 0 < one[stage].each == pytest.approx(two[stage].each / 2)


def test_steps_on_few_samples_cost_their_overhead():
    assert Line(2.0, 0.5)(4) == 4.0
    assert Line(2.0, 0.5).times(3)(4) == 12.0


def test_slower_candidates_stop():
    config = EvolutionConfig(population=4, generations=1, initial=None, offspring=5)
    assert stretches(config) == [(1, 1.0), (3, 0.5), (1, 0.5), (5, 0.5), (2, 0.5)]
    assert stretches(replace(config, rungs=())) == [(4, 1.0), (5, 1.0)]
    # Others begin beside the first one, which counts as two of half a training.
    assert stretches(config, shared=True) == [(5, 0.5), (1, 0.5), (5, 0.5), (2, 0.5)]
    assert stretches(replace(config, rungs=()), shared=True) == [(4, 1.0), (5, 1.0)]


@pytest.mark.parametrize(
    ("facts", "public", "taught"),
    [
        (IMAGES, 40, 1000),
        (IMAGES, 999, 1000),
        (IMAGES, 2000, 1400),
        (TABLE, 40, 1000),
        (TABLE, 2000, 1000),
    ],
)
def test_candidates_are_taught_what_is_made_of_few_images_and_of_rows(
    facts: Facts, public: int, taught: int
):
    search = {"population": 4, "generations": 0, "epochs": 400}
    config = build_config({"federation": {"method": "joined"}, "search": search})
    every = replace(config.search.evolution, initial=None, rungs=())
    config = config.model_copy(
        update={"search": config.search.model_copy(update={"evolution": every})}
    )
    result = costs(config, facts, public, 50)
    assert result["search"].common == ((4, pytest.approx(LATER * 400 * taught)),)


WHOLE = 64
"""Epochs of 2,000 samples, 63 batches each, that come to 4,000 steps."""


def trained(network: str = "protected", *, baselines: bool = True, sites: int = 9) -> Cost:
    federation = {"method": "joined", "baselines": baselines, "clients": sites}
    config = build_config({"federation": federation, "privacy": {"network": network}}, {})
    return costs(config, IMAGES, 2000, 500)["train"]


def test_a_genome_s_student_is_trained_once_and_by_each_site_some_steps_more():
    steps, step = WHOLE * 63, STUDENT.batch_size
    searched = 8 * 44
    assert trained().each == pytest.approx(MOST_OWN * step)
    assert trained().common == ((1, pytest.approx((steps - MOST_OWN - searched) * step)),)
    assert trained(sites=2).common == trained().common
    assert trained(sites=FEW_SITES + 1).each == 0  # their last layers take no time to speak of


def test_a_long_search_leaves_some_of_a_student_s_steps():
    config = build_config({"federation": {"method": "joined"}, "search": {"student_steps": 9000}})
    assert steps_of_student(config, IMAGES, 2000).common == round(LEAST * WHOLE * 63)


def test_networks_that_stay_learn_of_own_samples_too_and_so_do_their_rivals():
    own, without = trained().each, trained("stays", baselines=False)
    assert without.each == pytest.approx(own + 30 * 500)
    assert without.common == trained().common
    assert trained("stays").each == pytest.approx(own + 2 * 30 * 500)
    assert trained("stays").common[1:] == ((1, pytest.approx(WHOLE * 2000)),)


def test_settings_are_rehearsed_where_a_run_would():
    def once(public: int, **privacy: object) -> float:
        config = build_config({"federation": {"method": "joined"}, "privacy": privacy})
        pace = replace(PASSES, slowness=1.0)
        return costs(config, IMAGES, public, 200, pace)["tune"].once

    assert once(500) > 3
    assert once(300) == once(500, network="stays") == once(4000) != once(500)


def test_a_forecast_is_for_the_sites_that_have_something_to_do(
    tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forecasts, "measured", lambda run, workers, device: PASSES)
    looked: list[int] = []
    real = RunView.site

    def site(view: RunView, index: int) -> object:
        looked.append(index)
        return real(view, index)

    monkeypatch.setattr(RunView, "site", site)
    config = tiny(federation__clients=3, privacy__search="data-free")
    prepare(tmp_path, config, resume=False)
    run = OpenRun(tmp_path, config, InProcess(read_sites(tmp_path)))
    one = costs(config, run.view.facts, 0, 1)["search"].each

    def seconds(*clients: int, workers: int = 1) -> float:
        result = forecast(run, ["search"], workers=workers, device="cpu", clients=clients or None)
        return result.total

    assert seconds(1) == one
    assert looked == [1]
    assert seconds() == 3 * one
    assert seconds(workers=2) == 1.5 * one
    assert seconds(1, workers=2) == one / 2  # both work for the one site
    write_json(search_file(run.view.sites[1].home), {})
    assert seconds() == 2 * one
    assert seconds(1) == 0


def test_a_search_for_all_sites_is_counted_once(
    tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forecasts, "measured", lambda run, workers, device: PASSES)
    config = tiny(federation__clients=3, federation__method="joined")
    prepare(tmp_path, config, resume=False)
    run = OpenRun(tmp_path, config, InProcess(read_sites(tmp_path)))
    groups = costs(config, run.view.facts, len(run.view.public), 0)["search"].common
    for workers in (1, 2):  # who share each group out
        result = forecast(run, ["search"], workers=workers, device="cpu")
        each = [seconds * -(-n // workers) for n, seconds in groups]
        assert result.total == pytest.approx(sum(each))
        assert result.serve_all == {"search"}


def test_a_forecast_has_a_range_over_networks(
    tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pace = replace(PASSES, spread=(0.5, 2.0), liked=1.0)
    monkeypatch.setattr(forecasts, "measured", lambda run, workers, device: pace)
    config = tiny(federation__method="joined")
    prepare(tmp_path, config, resume=False)
    run = OpenRun(tmp_path, config, InProcess(read_sites(tmp_path)))
    result = forecast(run, ["train"], workers=1, device="cpu")
    assert result.least == pytest.approx(result.total / 2)
    assert result.most == pytest.approx(result.total * 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["joined", "dprbft"])
def test_a_pace_is_measured_in_every_process(method: str, tiny: Callable, tmp_path: Path):
    config = tiny(federation__method=method)
    prepare(tmp_path, config, resume=False)
    run = OpenRun(tmp_path, config, InProcess(read_sites(tmp_path)))
    for workers in (1, 2):
        pace = measured(run, workers=workers, device="cpu")
        assert 1e-5 < pace.plain(32) < 5
        assert 1e-5 < pace.private(32) < 5
        assert 0.1 < pace.slowness < 100
        assert pace.spread[0] <= 1 <= pace.spread[1]
        assert (pace.picture > 0) == (method == "joined")
