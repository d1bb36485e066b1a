"""The command line in this process, and settings that make a run take a second or two."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_options import tiny_options, without_overruled

from panas_cli.main import main


class Outcome(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Lines on stderr that are no progress."""
        progress = (
            "[",
            "run directory: ",
            "search price",
            "price: ",
            "digits: ",
            "public: ",
            "time: ",
            "  ",
        )
        return [x for x in self.err.splitlines() if x.strip() and not x.startswith(progress)]

    @property
    def refusal(self) -> str:
        """The only line of a command that is refused, with exit code 2 and no output."""
        assert (self.code, self.out) == (2, "")
        (line,) = self.err.splitlines()
        return line


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Cli:
    """Run `panas ARGS` in this process, which has one core: workers are those asked for."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})

    def call(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["panas", *without_overruled(args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        streams = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Outcome(stop.value.code, streams.out, streams.err)

    return call


@pytest.fixture
def tiny() -> Callable[..., list[str]]:
    """Options of a tiny run."""
    return tiny_options


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the finished run, and of what it said."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def run(folder: Path, cli: Cli, tiny: Callable[..., list[str]]) -> Path:
    """A finished run, made once."""
    out = folder / "run"
    if not out.exists():
        outcome = cli("run", "--out", out, *tiny(federation__baselines="true"))
        assert outcome.code == 0
        (folder / "stdout").write_text(outcome.out)
        (folder / "stderr").write_text(outcome.err)
    return out


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Everything under a folder, to see that a command left it alone."""

    def read(folder: Path) -> dict[str, bytes]:
        return {
            str(p.relative_to(folder)): p.read_bytes()
            for p in sorted(folder.rglob("*"))
            if p.is_file()
        }

    return read
