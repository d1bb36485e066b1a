"""A user's mechanism, from a file: sound, faulty, and no mechanism at all."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from attacks.conformance import seeds
from attacks.replay.audit import audit_implementation
from attacks.replay.plug_in import load_mechanism
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput
from panas.runtime.state import state_folder
from panas_cli.commands.implementation import PARTS
from panas_cli.main import main

SOUND = """
from attacks.replay.mechanism import Mechanism

def run(rows, noise):
    u = rows.z / rows.z.norm(dim=1, keepdim=True).clamp(min=1)
    return {"sum": u.double().sum(0) + SCALE * noise.normal(u.shape[1])}

SCALE = 2.0
mine = Mechanism(name="my sum", run=run, noise_multiplier=2.0)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOUND)
    return path


def test_a_mechanism_and_a_kind_of_release_are_found(file: Path, tmp_path: Path):
    assert load_mechanism(f"{file}:mine").name == "my sum"
    shutil.copy(moments.__file__, tmp_path / "kind.py")
    assert load_mechanism(str(tmp_path / "kind.py")).name == "kind"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.py:mine", "got 'nowhere.py:mine'; name a file"),
        ("{}:yours", "got nothing; write Mechanism"),
        ("{}:run", "got function; write Mechanism"),
        ("{}", "got module; write Mechanism"),
    ],
)
def test_what_is_none_is_one_line(text: str, message: str, file: Path):
    with pytest.raises(BadInput, match="echanism") as error:
        load_mechanism(text.format(file))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_is_read_as_it_is_now(file: Path):
    assert load_mechanism(f"{file}:mine").noise_multiplier == 2.0
    before = file.stat()
    file.write_text(SOUND.replace("noise_multiplier=2.0", "noise_multiplier=3.0"))
    os.utime(file, (before.st_atime, before.st_mtime))
    assert load_mechanism(f"{file}:mine").noise_multiplier == 3.0
    assert [path.name for path in file.parent.iterdir()] == ["mine.py"]


def test_code_that_fails_is_one_line(file: Path):
    file.write_text("1 / 0")
    with pytest.raises(BadInput, match="got ZeroDivisionError: division by zero; mend the file"):
        load_mechanism(f"{file}:mine")


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable:
    """`panas audit`, of the user's mechanism alone."""
    alone = partial(audit_implementation, only=("my sum",))
    monkeypatch.setattr("panas_cli.commands.implementation.audit_implementation", alone)

    def call(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["panas", "audit", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        streams = capsys.readouterr()
        return int(stop.value.code or 0), streams.out, streams.err

    return call


def test_the_command_tells_what_was_tested_and_found(audit: Callable, file: Path):
    code, out, _ = audit("--implementation", "--mechanism", f"{file}:mine")
    assert code == 0
    assert out.splitlines()[-2].startswith("tested: 12 tests of 1 part")
    assert out.splitlines()[-1] == "found: nothing; a test that finds nothing proves nothing"
    file.write_text(SOUND.replace("SCALE = 2.0", "SCALE = 1.9"))
    code, out, _ = audit("--implementation", "--mechanism", f"{file}:mine")
    assert code == 1
    assert "1.0526" in out
    assert "a unit adds more than was charged for its noise" in out
    assert out.splitlines()[-1] == "found: 1 failure in my sum"
    code, out, _ = audit("--implementation", "--mechanism", f"{file}:mine", "--json")
    assert (code, json.loads(out)["sound"]) == (1, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected a run directory or --implementation, got neither"),
        ((".", "--implementation"), "got both"),
        ((".", "--mechanism", "a.py:b"), "expected --implementation with --mechanism"),
        (("--implementation", "--mechanism", "a.py:b"), "name a file that exists"),
    ],
)
def test_bad_input_is_one_line(audit: Callable, arguments: tuple[str, ...], message: str):
    code, out, err = audit(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_the_whole_audit_finds_nothing(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seeds, "SEEDS", 2**8)
    state, parts = state_folder(), list[str]()
    result = audit_implementation(
        load_mechanism(f"{file}:mine"), rng=np.random.default_rng(0), on_progress=parts.append
    )
    assert result.alarms == ()
    assert parts == [part.name for part in result.parts]
    assert parts[0] == "my sum"
    assert len(parts) == 1 + PARTS
    assert result.to_json()["sound"]
    assert state_folder() == state
    assert not (state / "ledgers").exists()
