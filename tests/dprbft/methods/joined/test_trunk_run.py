"""Whole runs whose networks begin with the first layers of their encoder."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from deep_encoder import write_deep
from tiny_runs import carry_out, joined_config

from dprbft.config.schema import RunConfig
from dprbft.methods.joined import inputs
from dprbft.methods.joined.inputs import SHARE, network_spec, trunk_for
from dprbft.paths import CANDIDATES, model_file, network_picture, predictor_file, read_sites
from dprbft.run.view import RunView
from dprbft.site.results.pictures import draw_missing
from dprbft.site.results.records import TRUNK, SearchRecord
from dprbft.site.site import open_site, spec_of
from panas.features.encoders.layers import LEAST
from panas.runtime.store import read_tensors
from panas.training.checkpoint import SavedNetwork, load_network
from panas.training.export.formats import Format, export
from panas.training.linear.predictor import read_predictor

pytestmark = pytest.mark.slow

SETTINGS: dict[str, dict[str, object]] = {
    "joined": {"data": {"public_limit": 300}},
    "stays": {"privacy": {"network": "stays"}, "federation": {"baselines": True}},
    "few": {"data": {"public_limit": 30}},
}

FEW = pytest.param("few", marks=pytest.mark.thorough)


@pytest.fixture(scope="module", params=["joined", "stays", FEW])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, RunConfig]:
    folder = tmp_path_factory.mktemp("trunk")
    encoder = write_deep(folder / "deep.pt2")
    network = {"network": {"encoder": str(encoder)}}
    config = joined_config(**network, **SETTINGS[request.param])
    carry_out(folder / "run", config)
    return folder / "run", config


def networks(run: Path) -> list[SavedNetwork]:
    return [load_network(model_file(paths.home)) for paths in read_sites(run)]


def test_networks_of_all_sites_begin_with_the_same_layers(run: tuple[Path, RunConfig]) -> None:
    folder, config = run
    every = networks(folder)
    trunks = [network.trunk for network in every]
    assert all(trunk is not None for trunk in trunks)
    first = trunks[0]
    assert first is not None
    for saved, trunk in zip(every, trunks, strict=True):
        assert trunk is not None
        assert all(torch.equal(trunk.state_dict()[k], v) for k, v in first.state_dict().items())
        assert saved.spec.shape == trunk.shape
        assert saved.shape == saved.facts.shape
        assert saved.network(torch.zeros(2, *saved.shape)).shape == (2, saved.classes)
    view = RunView(folder, config)
    for paths, saved in zip(read_sites(folder), every, strict=True):
        record = SearchRecord.read(paths.home)
        assert record.cost_table[0].name == TRUNK
        assert record.cost_table[0].bytes == first.bytes
        assert record.cost.bytes == sum(row.bytes for row in record.cost_table)
        assert record.spec_from(spec_of(config, view.facts)).shape == first.shape
        assert str(record.genome) == str(saved.genome)
        draw_missing(paths.home, config, spec_of(config, view.facts))
        assert network_picture(paths.home).is_file()


def test_a_predictor_and_its_network_answer_alike(run: tuple[Path, RunConfig]) -> None:
    folder, config = run
    view = RunView(folder, config)
    for paths, network in zip(read_sites(folder), networks(folder), strict=True):
        test = view.encoded_site(paths.index).test
        saved = read_predictor(predictor_file(paths.home)).candidates.network
        assert saved is not None
        answers = read_predictor(predictor_file(paths.home)).candidates.logits(test)["network"]
        torch.testing.assert_close(answers.softmax(1), network.probabilities_of(test))
        assert saved.shape == network.shape
        one = network.probabilities_of(test.take([0]))
        torch.testing.assert_close(one, answers[:1].softmax(1))


def test_no_map_of_a_private_sample_is_kept(run: tuple[Path, RunConfig]) -> None:
    folder, config = run
    view, kept = RunView(folder, config), set[bytes]()
    for path in folder.rglob(f"{CANDIDATES}/maps-*"):
        if path.suffix == ".safetensors" and "student" not in path.name:
            kept |= {bytes(row) for row in read_tensors(path)[0]["x"].flatten(1).numpy()}
    assert kept
    for paths in read_sites(folder):
        site = open_site(paths)
        trunk = trunk_for(site)
        assert trunk is not None
        own = {
            bytes(row) for row in trunk.trunk.of(view.site(paths.index).train).flatten(1).numpy()
        }
        assert not own & kept


def test_the_trunk_is_as_deep_as_milliseconds_allow(
    run: tuple[Path, RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site(read_sites(run[0])[0])
    deep = trunk_for(site)
    assert deep is not None
    monkeypatch.setattr(inputs, "_latency", lambda trunk: float(len(trunk.steps)))
    search = {"max_latency_ms": (len(deep.trunk.steps) - 1) / SHARE}
    config = site.config.model_copy(update={"search": site.config.search.model_copy(update=search)})
    limited = replace(site, config=config)
    shallow = trunk_for(limited)
    assert shallow is not None
    assert LEAST < len(shallow.trunk.steps) < len(deep.trunk.steps)
    assert shallow.milliseconds == len(shallow.trunk.steps)


@pytest.mark.parametrize("form", ["onnx", "torch", "safetensors"])
def test_it_can_be_exported(form: Format, run: tuple[Path, RunConfig]) -> None:
    saved = networks(run[0])[0]
    content = export(saved, form, {"covered": "tests"})  # each is checked against the network
    assert len(content) > 1000


def test_a_site_whose_network_was_searched_without_them_does_without(
    run: tuple[Path, RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site(read_sites(run[0])[0])
    assert network_spec(site).shape != site.spec.shape
    record = SearchRecord.read(site.home)
    older = replace(record, cost_table=record.cost_table[1:])
    monkeypatch.setattr(SearchRecord, "read", lambda home: older)
    assert trunk_for(site) is None
    assert network_spec(site) == site.spec
