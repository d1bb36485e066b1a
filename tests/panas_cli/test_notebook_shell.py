"""`panas_cli.shell`: commands in a notebook, with their output."""

from pathlib import Path

import pytest

from panas.runtime.errors import BadInput
from panas_cli import shell


def test_a_command_is_printed_with_its_output_and_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shell("echo $PWD/a; echo colour $FORCE_COLOR; echo 'warning: act' >&2; echo 'stage 1' >&2")
    expected = ["a", "colour", "warning: act"]
    assert capsys.readouterr().out.splitlines()[1:] == expected


def test_another_exit_code_is_an_error_unless_it_is_expected(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(BadInput, match=r"expected exit code 0, got 3: error: no budget"):
        shell("echo 'error: no budget' >&2; exit 3 | cat")
    shell("exit 3", code=3)
    assert capsys.readouterr().out.splitlines()[-1] == "[exit code 3]"


@pytest.mark.slow
def test_panas_is_that_of_this_installation(capsys: pytest.CaptureFixture[str]):
    shell("env -u VIRTUAL_ENV panas --version")
    assert capsys.readouterr().out.splitlines()[-1].startswith("panas ")
