"""Completion in a shell: installed by `panas --install-completion`, and answered."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def panas(*words: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "panas_cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("panas rep", {"report"}),
        ("panas deploy sta", {"start", "status"}),
        ("panas run --eps", {"--epsilon"}),
    ],
)
def test_bash_is_offered_commands_and_options(typed: str, offered: set[str]):
    at = str(len(typed.split()) - 1)
    told = panas(_PANAS_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=at)
    assert set(told.split()) == offered


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_completion_is_installed_for_the_shell_that_is_named(shell: str, file: str, tmp_path: Path):
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # users' shells are recognised
    told = panas("--install-completion", shell, HOME=str(tmp_path), **named)
    assert f"{shell} completion installed" in told
    assert (tmp_path / file).is_file()
