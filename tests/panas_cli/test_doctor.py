"""What a machine has for panas, and what it lacks."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from panas_cli.commands import doctor


def test_a_machine_that_runs_these_tests_is_healthy(cli: Callable, tmp_path: Path):
    outcome = cli("doctor", "--out", tmp_path)
    assert outcome.code == 0
    for name in ("python", "torch", "botorch", "GPU", "free disk", "extra flower"):
        assert name in outcome.out
    assert list(tmp_path.iterdir()) == []
    record = json.loads(cli("doctor", "--json").out)
    assert record["healthy"] is True


def test_what_is_missing_is_named_with_what_to_do(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "LIBRARIES", ("panas", "no-such-library"))
    monkeypatch.setattr(doctor, "EXTRAS", {"export": ("no_such_module",)})
    monkeypatch.setattr(doctor, "LEAST_BYTES", float("inf"))
    outcome = cli("doctor", "--out", tmp_path)
    assert outcome.code == 1
    assert "no-such-library: pip install no-such-library" in outcome.out
    assert "free disk: free some space" in outcome.out
    assert "extra export: pip install '.[export]'" in outcome.out


def test_a_missing_extra_alone_is_no_fault(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "EXTRAS", {"export": ("no_such_module",)})
    assert cli("doctor", "--out", tmp_path).code == 0
    assert cli("doctor", "--out", tmp_path / "nowhere").code == 2
