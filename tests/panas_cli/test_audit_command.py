import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from audited_run import audited_config, fabricate, received_file

from attacks.audit.records import RunAudit
from dprbft.config.files import load_config
from dprbft.messages import Release
from dprbft.paths import rounds_file, server_folder
from panas.runtime.store import read_json, write_bytes


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run and its audit leave, without training."""
    out = tmp_path_factory.mktemp("untrained") / "run"
    fabricate(out, audited_config("moments"), clients=(0,))
    (out / "audit.json").write_text("{}")
    return out


def _half_the_noise(run: Path) -> None:
    """Let site 0 have sent a release that claims twice the noise that it has."""
    path, rounds = received_file(run, 0, round=1), rounds_file(server_folder(run))
    width = load_config(run).network.width
    got = Release.from_bytes(path.read_bytes(), width=width, classes=10)
    assert got.noise_multiplier is not None
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    sent = replace(got, noise_multiplier=2 * got.noise_multiplier).to_bytes()
    write_bytes(path, sent)
    assert before in rounds.read_text()
    rounds.write_text(rounds.read_text().replace(before, hashlib.sha256(sent).hexdigest()))


@pytest.mark.slow
def test_fail_on_leak_is_for_continuous_integration(
    run: Path, cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    sound = cli("audit", copy, "--fail-on", "leak", "--workers", 1)
    assert sound.code == 0, sound.out
    assert (copy / "audit" / "client-000-images.png").is_file()
    _half_the_noise(copy)
    outcome = cli("audit", copy, "--fail-on", "leak", "--workers", 1, "--json")
    assert outcome.code == 1
    record = json.loads(outcome.out)
    assert record["clients"][0]["verdict"] == "leaks"
    assert read_json(copy / "audit.json")["clients"][0]["verdict"] == "leaks"
    # A finding is no error unless one asks; the attacks themselves would find the same again.
    again = RunAudit.from_json(read_json(copy / "audit.json"))
    monkeypatch.setattr("panas_cli.commands.audit.audit_run", lambda *_, **__: again)
    assert cli("audit", copy, "--workers", 1).code == 0


def _archive(path: Path) -> None:
    """40 members of three classes, and 40 others of whom two are members."""
    x = np.random.default_rng(0).integers(0, 255, (80, 6, 6)).astype(np.uint8)
    x[np.arange(80), np.arange(80) % 40 % 3] = 255
    x[40:42], y = x[:2], np.arange(40) % 3
    np.savez(path, train_images=x[:40], train_labels=y, test_images=x[40:], test_labels=y)


class Bright(torch.nn.Module):
    """Knows the class from the bright row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, :3].mean(dim=2)


@pytest.mark.slow
def test_a_network_from_elsewhere_says_what_was_left_out_and_where_it_wrote(
    cli: Callable, tmp_path: Path
):
    _archive(tmp_path / "d.npz")
    batch = torch.export.Dim("batch", min=1, max=4096)
    example, shapes = (torch.zeros(4, 1, 6, 6),), ({0: batch},)
    program = torch.export.export(Bright().eval(), example, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "m.pt2")
    arguments = ("audit-model", tmp_path / "m.pt2", "--data", tmp_path / "d.npz")
    silent = cli(*arguments)
    assert silent.code == 0, silent.err
    assert "2 of the others are among what it was trained on" in silent.out
    assert "pictures" not in silent.err
    out = tmp_path / "a"
    told = cli(*arguments, "--accuracy", 1, "--out", out, "--json")
    assert told.code == 0, told.err
    assert f"audit.json and pictures: {out}" in told.err
    assert json.loads(told.out)["duplicates"] == read_json(out / "audit.json")["duplicates"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit"], "run"),
        (["audit", "--model", "m.pt2", "--data", "d.npz"], "panas audit-model FILE"),
        (["audit", "{run}", "--data", "d.npz", "--model=m.pt2"], "panas audit-model FILE"),
        (["audit-model", "{here}/m.pt2"], "--data"),
        (["audit-model", "{here}/m.pt2", "--data", "{here}/d.npz"], "m.pt2"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--mean", "half"], "--mean"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--mean", "nan"], "--mean"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--std", "0.5,inf"], "--std"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--std", "-1"], "--std"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--accuracy", "98"], "--accuracy"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--delta", "1"], "--delta"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--shadows", "1"], "--shadows"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--out", "{run}"], "holds a run"),
        (["audit-model", "m.pt2", "--data", "d.npz", "--out", "{here}/d.npz"], "is a file"),
        (["audit", "{run}", "--accuracy", "0.9"], "--accuracy"),
        (["audit", "{run}", "--data", "d.npz"], "--data"),
        (["audit", "{run}", "--shadows", "1"], "--shadows"),
        (["audit", "{run}", "--workers", "0"], "--workers"),
        (["audit", "{run}", "--fail-on", "fire"], "fail-on"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    arguments: list[str], says: str, audited: Path, cli: Callable, tmp_path: Path
):
    run = audited
    _archive(tmp_path / "d.npz")
    before = (run / "audit.json").read_bytes()
    line = cli(*(a.format(run=run, here=tmp_path) for a in arguments)).refusal
    assert says.lower() in line.lower()  # versions of typer write RUN or run
    assert (run / "audit.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["d.npz"]
