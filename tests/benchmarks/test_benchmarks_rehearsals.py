"""The benchmark of rehearsals, on a few digits."""

import pytest

from benchmarks import joining_world, rehearsals
from dprbft.methods.joined import tuning
from panas.tuning.trial import TuningConfig


@pytest.mark.thorough
def test_one_rehearsal_serves_all_sites(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joining_world, "PUBLIC", 60)
    monkeypatch.setattr(joining_world, "TEST", 100)
    monkeypatch.setattr(tuning, "JUDGES", 2)
    for name, value in (
        ("DATASET", "digits"),
        ("LABELLED", 60),
        ("CLIENTS", 2),
        ("SITES", (1, 3)),
        ("CONFIG", TuningConfig(trials=2, initial=1)),
    ):
        monkeypatch.setattr(rehearsals, name, value)
    run = rehearsals.one("", (0, 40, 8.0))
    first, last = run["cost"]
    assert first["trainings"] == last["trainings"] == 2 * len(tuning.SKEWS) + 2 * 2
    assert len(run["sites"]) == 2
    if run["choice"] != "tuned":
        known = "rule" if run["choice"] == "rule" else "nothing"
        assert all(site["shared"] == site[known] for site in run["sites"])
    result = rehearsals.summary([run, run])
    assert result["cost of 3 sites, trainings"] == (1.0, 0.0)
    assert result["n = 40, epsilon 8: average, nothing over rule"][1] == 0.0
