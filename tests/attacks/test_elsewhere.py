from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from attacks.elsewhere import audit_model
from panas.checkpoint import save_network
from panas.errors import BadInput
from panas.genome import Genome
from panas.network import build_bottom, build_head
from panas.store import read_json

SHAPE = (1, 6, 6)


def _archive(path: Path, n: int = 120, others: int = 80) -> Path:
    rng = np.random.default_rng(0)

    def part(size: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(size) % 3
        x = rng.integers(0, 120, (size, 6, 6))
        x[np.arange(size), y] += 130
        x[:, 3:] = rng.integers(0, 256, (size, 1, 1))  # half of an image is one grey
        return x.astype(np.uint8), y

    (x, y), (a, b) = part(n), part(others)
    np.savez(path, train_images=x, train_labels=y, test_images=a, test_labels=b)
    return path


def _program(path: Path, module: nn.Module) -> Path:
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(module, (torch.zeros(4, *SHAPE),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    return path


class Constant(nn.Module):
    """Knows the class from the bright row, and remembers nobody."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 4 * x[:, 0, :3].mean(dim=2)


def test_a_program_that_remembers_nobody_is_no_leak(tmp_path: Path) -> None:
    model = _program(tmp_path / "m.pt2", Constant().eval())
    data = _archive(tmp_path / "d.npz", 400, 400)
    told: list[str] = []
    record = audit_model(model, str(data), epsilon=1.0, out=tmp_path / "a", on_progress=told.append)
    assert record["verdict"] == "no better than blind", record["network"]["evidence"]
    assert record["network"]["accuracy"]["others"] == 1.0
    assert read_json(tmp_path / "a" / "audit.json")["model"] == "m.pt2"
    assert (tmp_path / "a" / "members.png").is_file()
    assert told == ["membership"]


def test_what_its_answers_give_away_is_asked_on_request(tmp_path: Path) -> None:
    class Telling(nn.Module):  # the grey in clear, as a logit
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, 0, 5, :3] * 1.0

    model = _program(tmp_path / "m.pt2", Telling().eval())
    record = audit_model(model, str(_archive(tmp_path / "d.npz")), outputs=True)
    seen = record["outputs"]
    assert {a["name"] for a in seen["attacks"]} == {"ridge", "decoder"}
    best = max(a["r2"] for a in seen["attacks"])
    blind = max(c["r2"] for c in seen["controls"])
    assert best > blind + 0.2
    assert (seen["verdict"], record["verdict"]) == ("leaks", "leaks")


def test_a_network_of_panas_is_read_and_may_have_shadows(tmp_path: Path) -> None:
    genome, g = Genome.parse("c8k3"), torch.Generator().manual_seed(0)
    bottom = build_bottom(genome, shape=SHAPE, width=8, unit=True, generator=g)
    head = build_head(8, 3, init="etf", generator=g)
    path = tmp_path / "n.safetensors"
    save_network(path, bottom, head, genome=genome, shape=SHAPE, norm="group", notes={})
    record = audit_model(path, str(_archive(tmp_path / "d.npz")), shadows=2)
    assert [a["name"] for a in record["network"]["attacks"]] == ["loss threshold", "LiRA"]
    assert record["network"]["verdict"] != "leaks"


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    data = str(_archive(tmp_path / "d.npz"))
    model = _program(tmp_path / "m.pt2", Constant().eval())

    def refused(match: str, *arguments: object, **named: object) -> None:
        with pytest.raises(BadInput, match=match) as error:
            audit_model(*arguments, out=tmp_path / "a", **named)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)
        assert not (tmp_path / "a").exists()

    refused("pt2", tmp_path / "none.pt2", data)
    refused("pt2", _archive(tmp_path / "m.pt"), data)
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    refused("torch.export", tmp_path / "bad.pt2", data)
    refused("--others", model, str(tmp_path / "none.csv"))
    refused("mean and one std", model, data, std=(0.0,))
    few = str(_archive(tmp_path / "few.npz", 20, 4))
    refused("not trained on", model, few)
    four = tmp_path / "four.npz"
    x = np.zeros((60, 6, 6), np.uint8)
    y = np.arange(60) % 4
    np.savez(four, train_images=x, train_labels=y, test_images=x, test_labels=y)
    refused("logits", model, str(four))
    wide = tmp_path / "wide.npz"
    x = np.zeros((60, 2, 2), np.uint8)
    np.savez(wide, train_images=x, train_labels=y, test_images=x, test_labels=y)
    refused("take images", model, str(wide))
