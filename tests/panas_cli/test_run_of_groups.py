"""A run of two tables whose privacy unit is a patient, from files to the summary."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ledgers import accounts

from dprbft.config.files import load_config
from dprbft.paths import summary_file
from dprbft.run.view import RunView
from dprbft.site.site import open_site
from panas.privacy.accounting.events import SampledGaussian
from panas.runtime.store import read_json

PATIENTS, ROWS, BATCH = 24, 4, 4


def table(path: Path, seed: int) -> Path:
    """Patients of 4 rows each, named by texts, in mixed order."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in rng.permutation(PATIENTS * ROWS) // ROWS:
        a, b = rng.normal(k % 2, 0.5), rng.normal()
        rows.append(f"{a:.4f},{b:.4f},p{seed}-{k},{k % 2}")
    path.write_text("\n".join(["a,b,patient,y", *rows]) + "\n")
    return path


@pytest.mark.thorough
def test_a_run_of_patients_counts_patients(cli: Callable, tiny: Callable, tmp_path: Path):
    files = [table(tmp_path / f"{name}.csv", seed) for seed, name in enumerate(("north", "south"))]
    run = tmp_path / "r"
    options = ("--label", "y", "--group", "patient", "--out", run)
    small = tiny(training__batch_size=BATCH, training__noise_multiplier=3.0, network__width=16)
    outcome = cli("run", "--client-data", *files, *options, *small)
    assert outcome.code == 0, outcome.err
    assert "data that come split, preset sound" in outcome.out
    assert "with or without any one group (patient), whatever left" in outcome.out
    summary = read_json(summary_file(run))
    assert summary["dataset"] == "data that come split"
    assert [c["name"] for c in summary["clients"]] == ["north", "south"]
    view = RunView(run, load_config(run))
    for i, (c, account) in enumerate(zip(summary["clients"], accounts(run), strict=True)):
        assert c["unit"] == account.unit == "one group: patient"
        data = view.site(i)
        assert len(data.train) == ROWS * data.train.units  # whole patients
        trained = [e for e in account.events_on("train") if isinstance(e, SampledGaussian)]
        assert trained
        # Of a noised number of patients: the exact one would tell of one patient more.
        patients = open_site(view.sites[i]).units
        assert all(e.rate == pytest.approx(BATCH / patients) for e in trained)
        assert 0 < c["epsilon"]["spent"] <= c["epsilon"]["budget"]
    card = cli("ledger", run)
    assert card.out.count("for one group: patient added") == 2
    shown = json.loads(cli("ledger", run, "--json").out)["clients"]
    assert [c["unit"] for c in shown] == ["one group: patient"] * 2
