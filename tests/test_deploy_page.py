"""docs/how-to/deploy.md: its commands run where they need no network, its lines are the code's."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from dprbft.engines.deploy.keys import own_key
from panas_cli.main import app, main

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs/how-to/deploy.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", TEXT, re.S | re.M)
LINES = [shlex.split(x, comments=True) for block in BLOCKS for x in block.splitlines()]


def test_there_are_ten_commands_before_the_first_run_is_shown():
    ten = [shlex.split(x, comments=True) for block in BLOCKS[:3] for x in block.splitlines()]
    assert len(ten) == 10


@pytest.mark.parametrize("words", [x for x in LINES if x[0] == "panas"], ids=" ".join)
def test_every_command_of_the_page_has_these_options(words: list[str]):
    command = typer.main.get_command(app)
    _, name, *rest = words
    result = command.commands[name]  # type: ignore[attr-defined]
    if name in ("deploy", "site"):
        result, rest = result.commands[rest[0]], rest[1:]
    result.make_context(name, list(rest))


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


@pytest.mark.slow
def test_what_needs_no_network_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    images = np.zeros((60, 8, 8), np.uint8)
    np.savez("north.npz", train_images=images, train_labels=np.arange(60) % 3)
    # A name that nobody looks up.
    lines = [[w.replace("hub.example.org", "localhost") for w in words] for words in LINES]
    codes = {}
    for words in lines:
        if words[0] == "scp":
            shutil.copytree(words[2], Path(words[2]).name, dirs_exist_ok=True)
        elif words[0].endswith("start.sh"):
            assert Path(words[0]).stat().st_mode & 0o100
        elif words[1] != "run":
            if "--keys" in words:  # of sites that have made their own
                shutil.rmtree("federation")
                Path("keys").mkdir()
                for name in ("north", "south"):
                    Path(f"keys/{name}.pub").write_bytes(own_key(Path(name)))
            codes[" ".join(words)] = call(words, monkeypatch)
    told = capsys.readouterr().out
    seen = {line.split()[1] for line in told.splitlines() if line.startswith("OK")}
    assert seen >= {"folder", "versions", "key", "data", "budget", "authority", "certificate"}
    assert {c for name, c in codes.items() if " check " not in name} == {0}
    assert {c for name, c in codes.items() if " check " in name} == {2}  # no hub, no node


def test_the_faults_are_told_in_the_words_of_the_code():
    table = TEXT.split("## Faults")[1].split("\n\n")[1]
    folders = ("dprbft/engines", "dprbft/secure_sum", "dprbft/site", "panas_cli/commands")
    sources = [p.read_text() for f in folders for p in (ROOT / f).rglob("*.py")]
    said = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))
    quoted = [
        q for row in table.splitlines()[2:] for q in re.findall(r"`([^`]+)`", row.split("|")[3])
    ]
    assert len(quoted) >= 10
    for text in quoted:
        assert text in said, text
