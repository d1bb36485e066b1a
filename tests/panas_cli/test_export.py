"""`panas export`: what may leave a site leaves with its card, and nothing else does."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from patients import TABLE
from tiny_runs import carry_out, joined_config

import panas
from dprbft.paths import read_sites
from dprbft.run.leaving import Covered, Promise
from dprbft.site.results.report import SiteReport
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts
from panas.privacy.release.exclusions import EXCLUSIONS
from panas.training.checkpoint import SavedNetwork, load_network, save_network
from panas.training.export.formats import ENDINGS, Format
from panas_cli.options import FORMATS
from panas_cli.text.model_card import STAYS, Exported, model_card

FACTS = Facts(class_names=("cat", "do`g|", "owl\n"), shape=(1, 6, 4), dtype="uint8")


def saved_at(path: Path, facts: Facts, **notes: Any) -> Path:
    """A network of these facts as a file."""
    spec = NetworkSpec(shape=facts.shape, classes=facts.classes, width=8)
    genome, generator = Genome.parse("c8k3"), torch.Generator().manual_seed(1)
    modules = spec.bottom(genome, generator), spec.head(generator)
    notes = {"facts": facts.to_json(), **notes}
    save_network(path, *modules, genome=genome, spec=spec, notes=notes)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """One that may leave, by its file."""
    return saved_at(tmp_path / "n" / "network.safetensors", FACTS, epsilon=3.0, delta=1e-6)


def metadata(card: str) -> dict[str, Any]:
    """The block at the head of a card."""
    match = re.match(r"---\n(.*?)\n---\n", card, re.S)
    assert match
    return yaml.safe_load(match[1])


def test_a_network_leaves_with_its_card(cli: Callable, network: Path, tmp_path: Path):
    out = tmp_path / "out" / "mine.safetensors"
    told = cli("export", network, "--format", "safetensors", "--out", out)
    assert (told.code, told.err) == (0, "")
    assert "epsilon 3.000" in told.out
    card = (tmp_path / "out" / "mine.md").read_text()
    about = metadata(card)
    assert (about["license"], about["library_name"]) == ("unknown", "panas")
    assert about["pipeline_tag"] == "image-classification"
    assert about["privacy"] == {"may_leave_its_site": True, "epsilon": 3.0, "delta": 1e-6}
    assert "model-index" not in about
    assert "epsilon = 3.000 at delta = 1e-06" in card
    for what in EXCLUSIONS:
        assert f"- {what}" in card
    assert "1. `do'g|`\n2. `owl\\n`\n" in card
    assert str(tmp_path) not in card
    x = np.zeros((2, 6, 4), np.uint8)
    assert np.array_equal(panas.load(out).predict_proba(x), load_network(network).predict_proba(x))


def test_files_that_are_there_are_left_alone(cli: Callable, network: Path, tmp_path: Path):
    call = ("export", network, "--format", "safetensors", "--out", tmp_path / "a.safetensors")
    (tmp_path / "a.md").write_text("mine")
    assert "a.md" in cli(*call).refusal
    assert not (tmp_path / "a.safetensors").exists()
    (tmp_path / "a.md").unlink()
    assert cli(*call).code == 0
    assert "a.safetensors" in cli(*call).refusal


def test_a_second_format_has_a_card_of_its_own(cli: Callable, network: Path, tmp_path: Path):
    forms = {"torch": "a.pt2", "safetensors": "a.safetensors"}
    calls = [("export", network, "--format", f, "--out", tmp_path / n) for f, n in forms.items()]
    assert cli(*calls[0]).code == 0
    first = (tmp_path / "a.md").read_bytes()
    told = cli(*calls[1])
    assert told.code == 0
    assert "a.safetensors.md" in told.out
    assert (tmp_path / "a.md").read_bytes() == first
    libraries = [
        metadata((tmp_path / n).read_text())["library_name"] for n in ("a.md", "a.safetensors.md")
    ]
    assert libraries == ["pytorch", "panas"]
    assert "a.safetensors" in cli(*calls[1]).refusal


@pytest.mark.parametrize(
    ("notes", "covered"),
    [
        ({"network": "stays", "epsilon": 3.0}, "stays"),
        ({"network": "unprotected"}, "unprotected"),
        ({"epsilon": "infinity"}, "uncovered"),
        ({"fitness": 0.5, "accuracy": 0.75}, "unknown"),
    ],
)
def test_a_network_that_must_stay_is_refused_with_the_reason(
    notes: dict[str, Any], covered: Covered, cli: Callable, tmp_path: Path
):
    path, out = saved_at(tmp_path / "network.safetensors", FACTS, **notes), tmp_path / "o.pt2"
    call = ("export", path, "--format", "safetensors", "--out", out.with_suffix(".safetensors"))
    line = cli(*call).refusal
    assert STAYS[covered] in line
    assert line.endswith("--although-it-must-stay")
    assert len(list(tmp_path.iterdir())) == 1
    assert cli(*call, "--although-it-must-stay").code == 0
    card = out.with_suffix(".md").read_text()
    assert "This network must stay at its site" in card
    assert metadata(card)["privacy"]["may_leave_its_site"] is False
    assert "differential-privacy" not in metadata(card)["tags"]
    again = cli("export", out.with_suffix(".safetensors"), "--format", "torch", "--out", out)
    assert "must stay" in again.refusal


def test_an_accuracy_is_told_on_request_alone(cli: Callable, tmp_path: Path):
    known = {"epsilon": 3.0, "delta": 1e-6}
    path = saved_at(tmp_path / "network.safetensors", FACTS, **known, accuracy=0.75)
    cards = {}
    for name, more in (("a", ()), ("b", ("--with-accuracy",))):
        out = tmp_path / f"{name}.safetensors"
        assert cli("export", path, "--format", "safetensors", "--out", out, *more).code == 0
        cards[name] = out.with_suffix(".md").read_text()
        assert "accuracy" not in load_network(out).notes
    assert "0.75" not in cards["a"]
    (result,) = metadata(cards["b"])["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.75}]
    other = saved_at(tmp_path / "other.safetensors", FACTS, **known)
    call = ("export", other, "--format", "safetensors", "--with-accuracy")
    assert "--with-accuracy" in cli(*call).refusal


def test_the_command_line_knows_the_endings_of_all_formats():
    """By itself, since it loads no library."""
    assert FORMATS == ENDINGS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere"),
        (["{network}", "--out", "a.pt2"], ".onnx"),
        (["{network}", "--site", "north"], "leave --site out"),
        (["{network}", "--format", "pickle"], "pickle"),
    ],
)
def test_mistakes_are_refused(arguments: list[str], says: str, cli: Callable, network: Path):
    assert says in cli("export", *(a.format(network=network) for a in arguments)).refusal


@pytest.mark.parametrize("form", ["onnx", "torch", "safetensors"])
def test_a_card_of_a_table_says_how_cells_are_written(form: Format):
    spec = NetworkSpec(shape=TABLE.shape, classes=2, width=8)
    genome, generator = Genome.parse("c8k3"), torch.Generator().manual_seed(1)
    modules = spec.bottom(genome, generator), spec.head(generator)
    saved = SavedNetwork(*modules, genome, spec, {"facts": TABLE.to_json()})
    card = model_card(
        Exported(file="t.onnx", form=form, network=saved, promise=Promise("protected", 2.0, 1e-5))
    )
    assert metadata(card)["pipeline_tag"] == "tabular-classification"
    assert "| `age` | number |\n| `sex` | 0 for `f`, 1 for `m`, -1 for any other text |" in card
    pictures = replace(saved, notes={"facts": replace(FACTS, dtype="float32").to_json()})
    about = Exported(
        file="p.onnx", form=form, network=pictures, promise=Promise("protected", 2.0, 1e-5)
    )
    assert "divided by 255" in model_card(about)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "run"
    carry_out(out, joined_config())
    return out


@pytest.mark.slow
def test_a_run_exports_its_network_with_its_privacy_card(
    run: Path, cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    site = read_sites(run)[0]
    told = cli("export", run, "--site", site.name, "--with-accuracy", "--json")
    assert (told.code, told.err) == (0, "")
    record = json.loads(told.out)
    assert (record["file"], record["card"]) == ("client-000.onnx", "client-000.md")
    card = (tmp_path / "client-000.md").read_text()
    (spent,) = [
        row["spent"]
        for row in json.loads(cli("ledger", run, "--json").out)["clients"]
        if row["name"] == site.name
    ]
    about = metadata(card)
    assert 0 <= about["privacy"]["epsilon"] - spent < 1e-3
    assert about["privacy"]["adjacency"] == "add-or-remove-one"
    for mechanism in ("label-histogram", "dp-sgd", "moments"):
        assert f"| {mechanism} |" in card
    accuracy = SiteReport.read(site.home).steps.network
    (result,) = about["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == pytest.approx(accuracy, abs=1e-4)
    x = np.random.default_rng(0).integers(0, 256, (7, 1, 8, 8), dtype=np.uint8)
    session = onnxruntime.InferenceSession("client-000.onnx", providers=["CPUExecutionProvider"])
    saved = load_network(site.home / "models" / "network.safetensors")
    wanted = saved.predict_proba(torch.from_numpy(x))
    assert np.allclose(session.run(None, {"images": x})[0], wanted, atol=1e-4)
    for private in (str(run), str(tmp_path), "validation:", "samples ="):
        assert private not in card
    code = re.search(r"```python\n(.*?)```", card, re.S)
    assert code
    found: dict[str, Any] = {"images": x}
    exec(code[1], found)
    assert np.allclose(found["probabilities"], wanted, atol=1e-4)


@pytest.mark.thorough
def test_a_run_whose_networks_stay_or_are_selected_exports_none(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    stays = tmp_path / "stays"
    carry_out(stays, joined_config(privacy={"network": "stays"}))
    assert STAYS["stays"] in cli("export", stays, "--site", "client-000").refusal
    rounds = tmp_path / "rounds"
    assert cli("run", "--out", rounds, *tiny()).code == 0
    assert STAYS["selected"] in cli("export", rounds, "--site", "client-000").refusal
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 8, 8), np.uint8))
    assert cli("predict", rounds, "--site", "client-000", "--input", tmp_path / "x.npz").code == 0
