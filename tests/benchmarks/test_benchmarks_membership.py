"""The benchmark of membership on trainings so short that they find little, and what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import membership_tasks
from benchmarks.attack_membership import main, report
from benchmarks.membership_tasks import Size


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("expected nothing to run twice")


@pytest.mark.thorough
def test_the_benchmark_says_what_it_found_and_runs_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    size = Size(canaries=100, shadows=2, targets=1, epochs=1)
    command = ["--json", "--seeds", "1", "--workers", "1", "--work", str(tmp_path)]
    main(command, size)
    record = json.loads(capsys.readouterr().out)
    audits = record["one_run"]
    assert (audits["claim"], audits["canaries"]) == (8.0, 100)
    for name in ("lower_bounds", "non_private", "non_private_mislabelled"):
        assert [0 <= b <= audits["ceiling"] for b in audits[name]] == [True]
    for name in ("lira", "loss_threshold"):
        assert 0 <= record[name]["tpr_at_1_percent"] <= 1
        assert record[name]["tpr_at_1_percent_each"] == [record[name]["tpr_at_1_percent"]]
    low, high = record["unseen"]["interval"]
    assert low < record["unseen"]["auc"] < high
    assert "never saw them" in report(record)
    for name in ("private", "memorised", "attacked"):
        monkeypatch.setattr(membership_tasks, name, refuse)
    main(command, size)
    assert json.loads(capsys.readouterr().out) == record
