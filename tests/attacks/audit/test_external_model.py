import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import attacks.inference.roc as roc_module
from attacks.audit.external_model import ModelAuditConfig, audit_model
from attacks.audit.membership import PrivacyClaim
from attacks.audit.target import ExternalModel
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.facts import fit, infer
from panas.data.members import load_members
from panas.data.sources import Reading, read, reading_of
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, write_json
from panas.training.checkpoint import save_network

SHAPE, GENOME = (1, 6, 6), Genome.parse("c8k3")
RANGES, ORDER = {"income": (0.0, 1e5)}, ("yes", "no")


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roc_module, "RESAMPLES", 200)  # no area comes near its limit


def _archive(
    path: Path, n: int = 120, others: int = 80, classes: tuple[int, ...] = (0, 1, 2)
) -> Path:
    rng = np.random.default_rng(0)

    def part(size: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.array(classes)[np.arange(size) % len(classes)]
        x = rng.integers(0, 120, (size, 6, 6))
        x[np.arange(size), y] += 130
        x[:, 3:] = rng.integers(0, 256, (size, 1, 1))  # half of an image is one grey
        return x.astype(np.uint8), y

    (x, y), (a, b) = part(n), part(others)
    np.savez(path, train_images=x, train_labels=y, test_images=a, test_labels=b)
    return path


def _program(
    path: Path, module: nn.Module, most: int = 4096, dtype: torch.dtype = torch.float32
) -> Path:
    shapes = ({0: torch.export.Dim("batch", min=1, max=most)},)
    x = torch.zeros(4, *SHAPE, dtype=dtype)
    program = torch.export.export(module, (x,), dynamic_shapes=shapes)
    torch.export.save(program, path)
    return path


class Constant(nn.Module):
    """Knows the class from the bright row, and remembers nobody."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 4 * x[:, 0, :3].mean(dim=2)


class Answering(nn.Module):
    """Gives something else than one tensor of logits."""

    def __init__(self, answer: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: torch.Tensor) -> object:
        return self.answer(4 * x[:, 0, :3].mean(dim=2))


def record_of(
    file: Path,
    data: str,
    *,
    shadows: int = 0,
    outputs: bool = False,
    epsilon: float | None = None,
    out: Path | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    **named: Any,
) -> dict[str, Any]:
    """The record of an audit."""
    model = ExternalModel(file=file, data=data, claim=PrivacyClaim(epsilon=epsilon), **named)
    config = ModelAuditConfig(shadows=shadows, outputs=outputs)
    return audit_model(model, config, out=out, on_progress=on_progress).to_json()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _program(tmp_path_factory.mktemp("model") / "m.pt2", Constant().eval())


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., None]:
    """See that arguments are refused, in one line, and that nothing is written."""

    def call(match: str, *arguments: Any, **named: Any) -> None:
        with pytest.raises(BadInput, match=match) as error:
            record_of(*arguments, **({"out": tmp_path / "a"} | named))
        assert "\n" not in str(error.value)
        assert not (tmp_path / "a").exists()

    return call


@pytest.mark.slow
def test_a_program_that_remembers_nobody_is_no_leak(model: Path, tmp_path: Path) -> None:
    data = _archive(tmp_path / "d.npz", 400, 400)
    texts: list[str] = []
    record = record_of(model, str(data), epsilon=1.0, out=tmp_path / "a", on_progress=texts.append)
    assert record["verdict"] == "no better than blind", record["network"]["evidence"]
    assert record["network"]["accuracy"]["others"] == 1.0
    assert read_json(tmp_path / "a" / "audit.json")["model"] == "m.pt2"
    assert (tmp_path / "a" / "members.png").is_file()
    assert texts == ["membership"]


@pytest.mark.slow
def test_what_its_answers_give_away_is_asked_on_request(tmp_path: Path) -> None:
    class Telling(nn.Module):  # the grey in clear, as a logit
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, 0, 5, :3] * 1.0

    model = _program(tmp_path / "m.pt2", Telling().eval())
    record = record_of(model, str(_archive(tmp_path / "d.npz")), outputs=True)
    seen = record["outputs"]
    names = {a["name"] for a in seen["attacks"]}
    assert names == {"ridge", "decoder", "ridge (all others)", "decoder (all others)"}
    best = max(a["r2"] for a in seen["attacks"])
    blind = max(c["r2"] for c in seen["controls"])
    assert best > blind + 0.2
    assert (seen["verdict"], record["verdict"]) == ("leaks", "leaks")


def _networks(spec: NetworkSpec) -> tuple[Bottom, Head]:
    g = torch.Generator().manual_seed(0)
    return spec.bottom(GENOME, g), spec.head(g)


@pytest.mark.slow
def test_a_network_of_panas_is_read_and_may_have_shadows(tmp_path: Path) -> None:
    spec, path = NetworkSpec(shape=SHAPE, classes=3, width=8), tmp_path / "n.safetensors"
    save_network(path, *_networks(spec), genome=GENOME, spec=spec, notes={})
    record = record_of(path, str(_archive(tmp_path / "d.npz")), shadows=2)
    assert [a["name"] for a in record["network"]["attacks"]] == ["loss threshold", "LiRA", "RMIA"]
    assert record["network"]["verdict"] != "leaks"


def _rows(path: Path, seed: int, n: int = 60) -> str:
    """Rows whose class shows in a column of thousands and in one of texts."""
    draw = np.random.default_rng(seed)
    lines = ["income,city,class"]
    for i in range(n):
        name = ("yes", "no")[i % 2]
        income = draw.normal(50_000 if name == "yes" else 20_000, 4000)
        lines.append(f"{income:.2f},{'north' if name == 'yes' else 'south'},{name}")
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.slow
def test_a_network_of_panas_says_itself_how_its_data_are_scaled_and_numbered(
    refused: Callable, tmp_path: Path
) -> None:
    mine, rest = (_rows(tmp_path / f"{i}.csv", i) for i in range(2))
    # Other ranges and the other order of names than both files have by themselves.
    facts = infer(read(_rows(tmp_path / "p.csv", 2, 400), Reading()), ranges=RANGES, classes=ORDER)
    seen = fit(read(mine, reading_of(facts)), facts)
    spec = NetworkSpec(shape=facts.shape, classes=2, width=8)
    bottom, head = _networks(spec)
    network = nn.Sequential(bottom, head)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(seen.inputs()), seen.y).backward()
        optimiser.step()
    path = tmp_path / "n.safetensors"
    notes = {"facts": facts.to_json()}
    save_network(path, bottom, head, genome=GENOME, spec=spec, notes=notes)
    record = record_of(path, mine, others=rest, accuracy=1.0)
    assert record["network"]["accuracy"] == {"members": 1.0, "others": 1.0}
    refused("no --mean and --std", path, mine, others=rest, mean=(0.0,))
    other = tmp_path / "other.csv"
    other.write_text((tmp_path / "0.csv").read_text().replace("yes", "perhaps"))
    refused("classes .yes, no. in .*other", path, str(other), others=rest)


class Binary(nn.Module):
    """One logit, of class 1, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(4.0, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * (x[:, 0, 1].mean(1) - x[:, 0, 0].mean(1))[:, None]


@pytest.mark.slow
def test_one_output_is_the_logit_of_class_1_and_networks_are_asked_in_their_own_type(
    tmp_path: Path,
) -> None:
    path = _program(tmp_path / "b.pt2", Binary(), dtype=torch.float64)
    data = _archive(tmp_path / "d.npz", classes=(0, 1))
    record = record_of(path, str(data), outputs=True)
    assert record["network"]["accuracy"] == {"members": 1.0, "others": 1.0}


@pytest.mark.slow
def test_bad_input_is_one_line(model: Path, refused: Callable, tmp_path: Path) -> None:
    data = str(_archive(tmp_path / "d.npz"))
    refused("pt2", tmp_path / "none.pt2", data)
    refused("pickled formats are refused", _archive(tmp_path / "m.pt"), data)
    refused("--others", model, str(tmp_path / "none.csv"))
    refused("none.npz", model, str(tmp_path / "none.npz"), others=data)
    refused("not trained on", model, str(_archive(tmp_path / "few.npz", 20, 4)))
    for mean, std in ((0.5, 0.0), (0.5, math.inf), (math.nan, 0.5)):
        refused("finite mean and one std", model, data, mean=(mean,), std=(std,))
    refused("finite mean and one std", model, data, mean=(0.0, 1.0))
    x = np.random.default_rng(0).integers(0, 255, (120, 2, 2)).astype(np.uint8)
    x, y = np.unique(x, axis=0)[:60], np.arange(60) % 3
    wide = tmp_path / "wide.npz"
    np.savez(wide, train_images=x[:30], train_labels=y[:30], test_images=x[30:], test_labels=y[30:])
    refused("take samples", model, str(wide))
    x = x / 255
    x[7, 1, 1] = math.nan
    np.savez(wide, train_images=x, train_labels=y, test_images=x, test_labels=y)
    refused("NaN or infinity", model, str(wide))


def test_files_that_are_no_network_say_what_they_are(
    refused: Callable, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    data = str(_archive(tmp_path / "d.npz"))
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    save_file({"weight": torch.zeros(3)}, tmp_path / "alien.safetensors")
    levels = [logging.getLogger(n).level for n in ("torch.export", "torch._export")]
    capfd.readouterr()
    refused("program of torch.export", tmp_path / "bad.pt2", data)
    assert capfd.readouterr() == ("", "")  # no tracebacks of torch's before our line
    assert levels == [logging.getLogger(n).level for n in ("torch.export", "torch._export")]
    refused("no readable safetensors", tmp_path / "bad.safetensors", data)
    refused("saved by panas at .*alien.*another safetensors", tmp_path / "alien.safetensors", data)


@pytest.mark.slow
def test_a_network_is_tried_with_one_image_and_with_a_full_batch(refused: Callable, tmp_path: Path):
    data = str(_archive(tmp_path / "d.npz", 400, 400))
    path = tmp_path / "m.pt2"
    refused("batches of any size, got of 128", _program(path, Constant().eval(), most=127), data)
    program = torch.export.export(Constant().eval(), (torch.zeros(128, *SHAPE),))
    torch.export.save(program, path)
    refused("batches of any size, got of 1:", path, data)
    for answer, given in (
        (lambda z: (z, z), "tuple"),
        (lambda z: {"logits": z}, "dict"),
        (lambda z: None, "NoneType"),
        (lambda z: z.sum(1), r"\(1,\)"),
    ):
        refused(f"one tensor of logits .* got {given}", _program(path, Answering(answer)), data)


@pytest.mark.slow
def test_labels_are_indices_of_outputs(model: Path, refused: Callable, tmp_path: Path) -> None:
    # A site of a federation may have some of the classes only.
    some = str(_archive(tmp_path / "some.npz", 100, 60, classes=(0, 2)))
    record = record_of(model, some)
    assert record["network"]["accuracy"] == {"members": 1.0, "others": 1.0}
    above = tmp_path / "above.npz"
    with np.load(some) as arrays:
        np.savez(above, **{k: a + 5 * k.endswith("labels") for k, a in arrays.items()})
    refused("labels from 0 to 2, .* got others", model, str(above))


def _table(path: Path, labels: list[str], seed: int, rows: int = 60) -> str:
    values = np.random.default_rng(seed).random((rows, 36))
    lines = [",".join([*map(str, v), labels[i % len(labels)]]) for i, v in enumerate(values)]
    path.write_text("\n".join([",".join([*(f"f{i}" for i in range(36)), "class"]), *lines]))
    return str(path)


@pytest.mark.slow
def test_labels_of_tables_are_numbers_as_they_are_or_names_in_sorted_order(
    model: Path, refused: Callable, tmp_path: Path
) -> None:
    numbers = _table(tmp_path / "n.csv", ["2", "0"], 0)
    names, one = (
        _table(tmp_path / f"{i}.csv", k, i) for i, k in ((1, ["c", "a", "b"]), (2, ["b"]))
    )
    membership = load_members(numbers, _table(tmp_path / "m.csv", ["1"], 4), label=None)
    assert membership.members.y.tolist() == [2, 0] * 30
    membership = load_members(one, names, label=None)
    assert (membership.names, set(membership.members.y.tolist())) == (("a", "b", "c"), {1})
    assert membership.others.y.tolist() == [2, 0, 1] * 20
    record_of(model, one, others=names)
    refused("labels of one kind", model, names, others=numbers)
    two = _table(tmp_path / "two.csv", ["a", "c"], 3)
    names = _table(tmp_path / "t.csv", ["c"], 5)
    refused("as many classes by name .* 3, got 2", model, two, others=names)


@pytest.mark.slow
def test_others_that_are_members_are_left_out_and_counted(
    model: Path, refused: Callable, tmp_path: Path
) -> None:
    with np.load(_archive(tmp_path / "d.npz", 120, 80)) as a:
        x, y, b, c = (a[k] for k in ("train_images", "train_labels", "test_images", "test_labels"))
    mixed, mine, rest = (tmp_path / f"{name}.npz" for name in ("mixed", "mine", "rest"))
    np.savez(mine, train_images=x, train_labels=y)
    np.savez(rest, images=np.concatenate([x[:30], b]), labels=np.concatenate([y[:30], c]))
    record = record_of(model, str(mine), others=str(rest))
    assert (record["duplicates"], record["network"]["others"]) == (30, 80)
    assert record_of(model, str(tmp_path / "d.npz"))["duplicates"] == 0
    np.savez(mixed, train_images=x, train_labels=y, test_images=x, test_labels=y)
    refused("besides 120 that are among these", model, str(mixed))
    # An archive of both parts has its test part among the others, not among the members.
    refused("got train and test parts", model, str(tmp_path / "d.npz"), others=str(rest))


@pytest.mark.slow
def test_a_wrong_preprocessing_gives_no_clean_verdict(
    model: Path, refused: Callable, tmp_path: Path
) -> None:
    data = str(_archive(tmp_path / "d.npz", 400, 400))
    right = record_of(model, data, accuracy=0.99)
    assert right["verdict"] == "no better than blind"

    class Dark(nn.Module):
        """Sees nothing where all values are below zero."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, 0, :3].clamp(min=0).mean(dim=2)

    dark = _program(tmp_path / "dark.pt2", Dark().eval())
    assert record_of(dark, data, mean=(0.2,))["verdict"] == "no better than blind"
    record = record_of(dark, data, mean=(2.0,))
    assert record["verdict"] == "inconclusive"
    assert "commonest class: check --mean, --std and the labels" in record["network"]["evidence"]
    refused(
        "accuracy 0.98 on what it was trained on, got 0.33", dark, data, mean=(2.0,), accuracy=0.98
    )
    refused("accuracy 0.97 .* got 1;", model, data, accuracy=0.97)


@pytest.mark.slow
def test_a_folder_that_holds_something_else_is_left_alone(model: Path, tmp_path: Path) -> None:
    data = str(_archive(tmp_path / "d.npz"))
    run, audited, edited, file = (tmp_path / name for name in ("run", "audited", "edited", "file"))
    for folder in (run, audited, edited):
        folder.mkdir()
    (run / "config.toml").write_text("")
    write_json(audited / "audit.json", {"clients": []})
    (edited / "audit.json").write_text("{}")
    file.write_text("")
    kept = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    texts: list[str] = []
    for out in (run, audited, edited, file, file / "below"):
        with pytest.raises(BadInput, match=r"folder.* for --out"):
            record_of(model, data, out=out, on_progress=texts.append)
    assert not texts  # before anything is computed
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == kept
    # Its own record may be made anew.
    record_of(model, data, out=tmp_path / "a")
    record_of(model, data, out=tmp_path / "a")
