"""`panas predict`: the classes of new samples are those that the run itself would tell."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import carry_out, joined_config

import panas
from dprbft.paths import model_file, predictor_file, read_sites
from dprbft.run.view import RunView
from dprbft.site.results.report import SiteReport
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts, fit
from panas.data.files.columns import Column
from panas.data.files.tables import read_table
from panas.training.checkpoint import load_network, save_network

FACTS = Facts(class_names=("cat", "dog", "owl"), shape=(1, 6, 4), dtype="uint8")
X = np.random.default_rng(0).integers(0, 256, (5, 6, 4), dtype=np.uint8)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A network of images, as a file."""
    return saved_network(tmp_path / "network.safetensors", FACTS)


def saved_network(path: Path, facts: Facts) -> Path:
    spec, genome = NetworkSpec(shape=facts.shape, classes=3, width=8), Genome.parse("c8k3")
    generator = torch.Generator().manual_seed(1)
    modules = spec.bottom(genome, generator), spec.head(generator)
    save_network(path, *modules, genome=genome, spec=spec, notes={"facts": facts.to_json()})
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "new.npz", x=X)
    return tmp_path / "new.npz"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_have_class_and_probabilities(cli: Callable, network: Path, data: Path):
    outcome = cli("predict", network, "--input", data)
    assert (outcome.code, outcome.err) == (0, "")
    found, saved = rows(outcome.out), load_network(network)
    assert list(found[0]) == ["row", "class", "p_cat", "p_dog", "p_owl"]
    assert [r["row"] for r in found] == ["1", "2", "3", "4", "5"]
    assert tuple(r["class"] for r in found) == saved.predict(X)
    p = np.array([[float(r[f"p_{name}"]) for name in saved.classes_] for r in found])
    assert np.allclose(p, saved.predict_proba(X), atol=1e-5)


def test_json_and_csv_say_the_same_on_stdout_and_in_files(
    cli: Callable, network: Path, data: Path, tmp_path: Path
):
    call = ("predict", network, "--input", data)
    told = cli(*call, "--json")
    record = json.loads(told.out)
    assert record["classes"] == ["cat", "dog", "owl"]
    assert [p["row"] for p in record["predictions"]] == [1, 2, 3, 4, 5]
    assert [p["class"] for p in record["predictions"]] == list(load_network(network).predict(X))
    assert cli(*call, "--out", tmp_path / "p.json") == (0, "", "")
    assert (tmp_path / "p.json").read_text() == told.out
    assert cli(*call, "--out", tmp_path / "p.csv") == (0, "", "")
    assert (tmp_path / "p.csv").read_text() == cli(*call).out


def test_pictures_are_named_by_file_and_a_damaged_one_leaves_nothing(
    cli: Callable, network: Path, tmp_path: Path
):
    folder, out = tmp_path / "new", tmp_path / "p.csv"
    folder.mkdir()
    for i, image in enumerate(X):
        Image.fromarray(image).save(folder / f"{i}.png")
    found = rows(cli("predict", network, "--input", folder).out)
    assert [r["file"] for r in found] == [f"{i}.png" for i in range(5)]
    assert tuple(r["class"] for r in found) == load_network(network).predict(X)
    out.write_text("before")
    (folder / "4.png").write_bytes(b"no picture")
    assert "4.png" in cli("predict", network, "--input", folder).refusal
    assert "4.png" in cli("predict", network, "--input", folder, "--out", out).refusal
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["network.safetensors", "new", "p.csv"]


def test_a_table_may_lack_a_header_and_have_other_dates_and_numbers(cli: Callable, tmp_path: Path):
    columns = (
        Column(name="1", kind="date", centre=18_000.0, reach=500.0),
        Column(name="2", centre=0.0, reach=5000.0),
    )
    shape = (1, 2, 2)
    facts = Facts(class_names=FACTS.class_names, shape=shape, dtype="float32", columns=columns)
    network = saved_network(tmp_path / "table.safetensors", facts)
    (tmp_path / "new.csv").write_text('1/31/2020,"1.234,5"\n2/1/2020,"7,5"\n')
    call = ("predict", network, "--input", tmp_path / "new.csv")
    plain = [{"1": "2020-01-31", "2": 1234.5}, {"1": "2020-02-01", "2": 7.5}]
    outcome = cli(*call, "--no-header", "--dates", "us", "--numbers", "1.234,5")
    assert (outcome.code, outcome.err) == (0, "")
    p = [[float(r[f"p_{name}"]) for name in FACTS.class_names] for r in rows(outcome.out)]
    assert np.allclose(p, panas.load(network).predict_proba(plain), atol=1e-5)
    assert cli(*call, "--no-header", "--numbers", "1.234,5").code == 2
    assert cli(*call).code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere", "--input", "{data}"], "nowhere"),
        (["{network}", "--input", "nowhere.npz"], "--input"),
        (["{network}", "--input", "{data}", "--out", "p.txt"], ".csv or .json"),
        (["{network}", "--input", "{data}", "--out", "p.csv", "--json"], "a .json file"),
        (["{network}", "--input", "{data}", "--site", "north"], "leave --site out"),
        (["{network}", "--input", "{data}", "--with", "predictor"], "network alone"),
        (["{network}", "--input", "{network}"], ".npz"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    arguments: list[str], says: str, cli: Callable, network: Path, data: Path
):
    line = cli("predict", *(a.format(network=network, data=data) for a in arguments)).refusal
    assert says in line
    assert re.search(r"expected .+, (got|found) .+; ", line)


def accuracy(out: str, names: list[str]) -> float:
    return float(np.mean([r["class"] == name for r, name in zip(rows(out), names, strict=True)]))


@pytest.fixture(scope="module")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("images") / "run"
    carry_out(run, joined_config())
    return run


@pytest.mark.slow
def test_a_run_of_images_has_its_own_test_accuracy(image_run: Path, cli: Callable, tmp_path: Path):
    view = RunView(image_run, joined_config())
    for paths in read_sites(image_run):
        test, steps = view.site(paths.index).test, SiteReport.read(paths.home).steps
        np.savez(tmp_path / "test.npz", x=test.x[:, 0].numpy())
        names = [view.facts.class_names[y] for y in test.y.tolist()]
        call = ("predict", image_run, "--site", paths.name, "--input", tmp_path / "test.npz")
        assert accuracy(cli(*call).out, names) == steps.joined
        assert accuracy(cli(*call, "--with", "network").out, names) == steps.network
        for name, file in (("predictor", predictor_file), ("network", model_file)):
            alone = cli("predict", file(paths.home), "--input", tmp_path / "test.npz")
            assert alone.out == cli(*call, "--with", name).out
        assert isinstance(panas.load(predictor_file(paths.home)).classes_, np.ndarray)


def table(path: Path, n: int = 400) -> Path:
    """Rows of four columns, one of them of texts, some cells missing; no row is twice."""
    rng = np.random.default_rng(3)
    age, dose = rng.normal(50, 15, n), rng.gamma(2.0, 3.0, n)
    sex, well = rng.choice(["f", "m"], n), (age + 4 * dose + rng.normal(0, 8, n)) > 75
    lines = ["age,sex,outcome,dose,day"]
    for i in range(n):
        years = "" if i % 17 == 0 else f"{age[i]:.3f}"
        day = f"2020-{1 + i % 12:02d}-{1 + i % 28:02d}"
        lines.append(f"{years},{sex[i]},{'well' if well[i] else 'ill'},{dose[i]:.4f},{day}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.thorough
def test_a_run_of_a_table_has_its_own_test_accuracy(cli: Callable, tmp_path: Path):
    source = table(tmp_path / "all.csv")
    data = {"dataset": str(source), "label": "outcome", "public_fraction": 0.3, "limit": None}
    config, run = joined_config(data=data), tmp_path / "run"
    carry_out(run, config)
    view, header, *lines = RunView(run, config), *source.read_text().splitlines()
    every = fit(read_table(source, config.data.source.reading.table), view.facts)
    place = {row.tobytes(): i for i, row in enumerate(every.x.numpy())}
    for paths in read_sites(run):
        test, steps = view.site(paths.index).test, SiteReport.read(paths.home).steps
        own = [lines[place[row.tobytes()]] for row in test.x.numpy()]
        (tmp_path / "test.csv").write_text("\n".join([header, *own]))
        names = [view.facts.class_names[y] for y in test.y.tolist()]
        call = ("predict", run, "--site", paths.name, "--input", tmp_path / "test.csv")
        assert accuracy(cli(*call).out, names) == steps.joined
        assert accuracy(cli(*call, "--with", "network").out, names) == steps.network
