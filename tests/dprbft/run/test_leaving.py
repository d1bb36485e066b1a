"""Which networks may leave: those that a finite epsilon covers, and no other."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from saved_models import site_at

from dprbft.paths import SitePaths, ledger_file
from dprbft.run.leaving import promise_of
from dprbft.run.models import SavedModels
from panas.privacy.accounting.events import Event, Gaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger


def charged(folder: Path, event: Event) -> SavedModels:
    """A site whose run has charged this."""
    paths = site_at(folder, "north")
    book = Ledger(ledger_file(paths.folder), run=paths.run)
    book.open_account(Budget(8.0, 1e-5), allow_unprotected=True, replicated=False)
    book.begin_run(paths.run, Budget(6.0, 1e-5))
    charge = Charge(
        event=event,
        phase="training",
        mechanism="dp-sgd",
        recipient="whoever sees the network",
        sensitivity=1.0,
        run=paths.run,
    )
    with book.charge(charge):
        pass
    return of(paths)


def of(site: SitePaths | None) -> SavedModels:
    place = Path("n.safetensors")
    return SavedModels(source=place, name="n", files={"network": place}, site=site)


def test_a_protected_network_has_the_epsilon_of_its_run(tmp_path: Path):
    promise = promise_of(charged(tmp_path / "north", Gaussian(4.0)), {"network": "protected"})
    assert promise.may_leave
    assert promise.epsilon is not None
    assert 0.9 < promise.epsilon < 0.95
    assert promise.delta == 1e-5


@pytest.mark.parametrize(
    ("notes", "event", "covered"),
    [
        ({"network": "stays"}, Gaussian(4.0), "stays"),
        ({"network": "unprotected"}, Gaussian(4.0), "unprotected"),
        ({"network": "protected"}, Unprotected(), "uncovered"),
        ({"round": 3, "client": 0}, Gaussian(4.0), "selected"),
    ],
)
def test_a_network_of_a_site_must_stay(
    tmp_path: Path, notes: dict[str, Any], event: Event, covered: str
):
    promise = promise_of(charged(tmp_path / "north", event), notes)
    assert promise.covered == covered
    assert not promise.may_leave


@pytest.mark.parametrize(
    ("notes", "covered"),
    [
        ({}, "unknown"),
        ({"fitness": 0.9}, "unknown"),
        ({"network": "protected"}, "unknown"),
        ({"network": "protected", "epsilon": "infinity"}, "uncovered"),
        ({"network": "stays", "epsilon": 3.0}, "stays"),
        ({"epsilon": 3.0, "delta": 1e-6}, "protected"),
        ({"network": "protected", "epsilon": 3.0}, "protected"),
    ],
)
def test_a_file_elsewhere_is_what_it_says(notes: dict[str, Any], covered: str):
    assert promise_of(of(None), notes).covered == covered


@pytest.mark.parametrize("event", [Gaussian(4.0), Unprotected()])
@pytest.mark.parametrize("said", ["protected", "stays", "unprotected", None])
def test_an_exported_file_may_leave_if_its_source_may(
    tmp_path: Path, event: Event, said: str | None
):
    """What is refused once is refused again, also without the site's ledger."""
    before = promise_of(charged(tmp_path / "north", event), {"network": said} if said else {})
    notes = json.loads(json.dumps(before.to_json(), allow_nan=False))
    after = promise_of(of(None), notes)
    assert after.may_leave == before.may_leave
    assert after.epsilon == before.epsilon or math.isinf(before.epsilon or 0)
