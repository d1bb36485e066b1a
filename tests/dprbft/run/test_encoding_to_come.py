"""What an encoder has to read in a run: counted, timed, and not read twice after a plan."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_encoder import encoder_facts, tiny_encoder, write_onnx
from tiny_runs import joined_config

from dprbft.config.files import build_config
from dprbft.engines.inprocess import InProcess
from dprbft.methods.joined.student import MANY, MANY_BEHIND
from dprbft.methods.joined.student_search import MADE
from dprbft.paths import embeddings_folder, read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.progress import forecast as forecasts
from dprbft.run.progress.forecast import Forecast, forecast
from dprbft.run.progress.pace import Line, Pace, measured
from dprbft.run.progress.work import TRUNK, Cost, Data, joined
from dprbft.run.sites.vectors import KEPT, PLANNED, keep_planned, take_planned
from dprbft.run.view import RunView
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.encoders.cache import with_embeddings
from panas.features.encoders.encoder import Encoder
from panas.runtime.state import state_folder

NOTHING = Pace(Line(0.0, 0.0), Line(0.0, 0.0), picture=0.0, slowness=0.0, encoding=1.0)
"""At which an encoder reads a picture in a second, and nothing else takes any time."""
PICTURES = Facts(class_names=("a", "b"), shape=(1, 8, 8), dtype="uint8", encoder=encoder_facts())


def seconds(public: int, waiting: float, facts: Facts = PICTURES) -> dict[str, Cost]:
    config = build_config({"federation": {"method": "joined", "clients": 9}})
    return joined(config, Data(facts, public, 0, 50, waiting), NOTHING, NOTHING)


def test_own_pictures_are_read_when_sites_join_and_made_ones_once_for_all():
    result = seconds(60, 70.0)
    assert result["join"] == Cost(each=70.0)
    assert result["search"].once == pytest.approx(sum(MADE) + TRUNK * 60)
    assert result["train"].once == MANY
    enough = seconds(MANY_BEHIND, 0.0)
    assert (enough["join"].each, enough["train"].once) == (0, 0)
    assert enough["search"].once == pytest.approx(TRUNK * MANY_BEHIND)
    without = seconds(60, 0.0, replace(PICTURES, encoder=None))
    assert (without["search"].once, without["train"].once) == (0, 0)


@pytest.fixture
def run(tmp_path: Path) -> OpenRun:
    encoder = write_onnx(tmp_path / "tiny.onnx")
    config = joined_config(network={"encoder": str(encoder)})
    prepare(tmp_path / "run", config, resume=False)
    return OpenRun(tmp_path / "run", config, InProcess(read_sites(tmp_path / "run")))


def test_a_forecast_counts_what_is_not_on_disk(run: OpenRun, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forecasts, "measured", lambda run, workers, device: NOTHING)

    def looked() -> Forecast:
        return forecast(run, ["join", "search"], workers=1, device="cpu")

    first, total = looked(), sum(len(run.view.site(i)) for i in (0, 1))
    assert first.encoding is not None
    assert first.encoding.pictures == pytest.approx(total, abs=3)  # equal ones are read once
    assert first.encoding.made == sum(MADE) + MANY
    assert first.seconds["join"] == pytest.approx(first.encoding.pictures)
    run.view.encoded_site(0)
    later = looked()
    assert later.encoding is not None
    assert later.encoding.pictures == pytest.approx(len(run.view.site(1)), abs=3)


def test_an_encoder_is_timed_with_a_site_s_own_pictures(run: OpenRun):
    assert 0 < measured(run, workers=1, device="cpu").encoding < 1


def public(seed: int) -> tuple[Samples, Samples]:
    x = np.random.default_rng(seed).integers(0, 256, (9, 1, 8, 8), dtype=np.uint8)
    samples = Samples(torch.from_numpy(x), torch.arange(9) % 2, 2)
    return samples.take(range(4)), samples.take(range(4, 9))


def planned(run: Path, parts: tuple[Samples, ...]) -> int:
    for part in parts:
        with_embeddings(part, tiny_encoder(), embeddings_folder(run))
    return keep_planned(run, parts, state_folder())


def test_what_a_plan_has_computed_a_run_has(tmp_path: Path):
    parts, made = public(0), []
    assert planned(tmp_path / "plan", parts) == 9
    assert planned(tmp_path / "plan", parts) == 0  # kept already
    shutil.rmtree(tmp_path / "plan")
    take_planned(tmp_path / "run", parts)
    take_planned(tmp_path / "other", public(1))
    assert not embeddings_folder(tmp_path / "other").exists()
    for part in parts:
        place = embeddings_folder(tmp_path / "run")
        result = with_embeddings(part, tiny_encoder(), place, lambda *_: made.append(1))
        assert torch.equal(result.embeddings, tiny_encoder().of(part))
    assert made == []


def test_the_last_plans_are_kept_and_a_folder_that_cannot_be_written_keeps_none(tmp_path: Path):
    for seed in range(KEPT + 2):
        planned(tmp_path / str(seed), public(seed))
    assert len(list((state_folder() / PLANNED).iterdir())) == KEPT
    file = tmp_path / "file"
    file.touch()
    assert keep_planned(tmp_path / "0", public(0), file) == 0
    assert file.read_bytes() == b""


def test_a_prepared_run_reads_no_public_picture_again(
    run: OpenRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    parts = (run.view.public, run.view.unlabelled)
    assert keep_planned(run.folder, parts, state_folder()) == len(run.view.public)
    read = []
    monkeypatch.setattr(Encoder, "of", lambda encoder, samples: read.append(samples))
    prepare(tmp_path / "again", run.config, resume=False)
    assert read == []
    again = RunView(tmp_path / "again", run.config)
    assert torch.equal(again.public.embeddings, run.view.public.embeddings)
