"""Runs of a comparison that do not end as planned."""

from pathlib import Path

import pytest

from baselines import fedavg
from dprbft.run.comparison.carry_out import Machine, Results, carry_out
from dprbft.run.comparison.plan import Planned, Request, plan
from dprbft.run.comparison.table import table
from panas.runtime.errors import BadInput

SMALL = {
    "data": {"limit": 160},
    "search": {"population": 2, "min_blocks": 1, "max_blocks": 1, "widths": [4]},
    "federation": {"rounds": 2},
    "training": {"epochs": 1, "batch_size": 1000},
}


def carried_out(folder: Path, settings: dict, *methods: str) -> Results:
    planned = plan(Request(size="smoke", methods=methods, settings=settings))
    told: list[Planned] = []
    results = carry_out(folder, planned, Machine(), lambda run, _: told.append(run))
    assert told == list(planned.runs)
    return results


@pytest.mark.slow
def test_a_run_whose_fixed_noise_uses_up_its_budget_is_told_by_what_it_has(tmp_path: Path):
    # Full batches of noise 3: a step costs epsilon 1.4, two more than the budget.
    training = {**SMALL["training"], "noise_multiplier": 3.0}
    settings = {**SMALL, "training": training, "privacy": {"epsilon": 1.6}}
    results = carried_out(tmp_path, settings, "local")
    assert not results.failed
    record = table(results)
    (stopped,) = record["stopped"]
    assert stopped["run"] == "runs/local/sound/seed-0"
    assert "raise epsilon" in stopped["reason"]
    local = record["methods"]["local"]
    assert local["rounds"] == 1
    assert 1.0 < local["epsilon"] <= 1.6
    again = carried_out(tmp_path, settings, "local")
    assert [o.stopped for o in again.found.values()] == [stopped["reason"]]


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_others_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def diverge(*args: object) -> None:
        raise BadInput("expected finite weights, got NaN; lower the learning rate")

    monkeypatch.setattr(fedavg, "site_round", diverge)
    results = carried_out(tmp_path, SMALL, "fedavg", "local")
    record = table(results)
    assert list(record["methods"]) == ["local"]
    (failed,) = record["failed"]
    assert failed["run"] == "runs/fedavg/sound/seed-0"
    assert "finite weights" in failed["reason"]
    assert record["methods"]["local"]["difference"] is None
