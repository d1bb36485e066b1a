"""What the owner of a site writes down, and how a mistake in it is told."""

from pathlib import Path

import pytest

from dprbft.config.flat import validated
from dprbft.paths import ledger_file
from dprbft.site.directory import SiteSettings, site_ledger, write_site
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.runtime.errors import BadInput


@pytest.mark.parametrize("name", ["north east", "", "-north", "n" * 65])
def test_a_name_that_does_not_fit_is_told_in_words(name: str):
    given = {"name": name, "data": "a.npz", "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(BadInput, match="expected name to be 1 to 64 letters, digits"):
        validated(SiteSettings, given, "site.toml")


def test_what_may_leave_is_of_the_kinds_and_methods_that_there_are():
    given = {"name": "north", "data": "a.npz", "epsilon": 1.0, "delta": 1e-5}
    names = ("moments", "label-histogram", "fedavg")
    assert validated(SiteSettings, given | {"releases": names}, "site.toml").releases == names
    with pytest.raises(BadInput, match=r"expected releases to be of class_sums, .*not foo"):
        validated(SiteSettings, given | {"releases": ("moments", "foo")}, "site.toml")


def made(folder: Path, data: str, key: bytes) -> Path:
    write_site(folder, SiteSettings(name="a", data=data, epsilon=1.0, delta=1e-5), key=key)
    return folder


def spent_once(folder: Path) -> str:
    """Charge a site's ledger; the id that it has then."""
    ledger = site_ledger(folder)
    ledger.open_account(Budget(1.0, 1e-5))
    event = Gaussian(20.0)
    ledger.begin_run("r", Budget(1.0, 1e-5)).charge(
        Charge(event=event, phase="release", mechanism="m", recipient="server", sensitivity=1.0)
    )
    return ledger.id


def test_a_ledger_that_is_gone_is_told_from_a_new_one(tmp_path: Path):
    site = made(tmp_path / "a", "a.npz", b"k" * 32)
    spent_once(site)
    for path in (ledger_file(site), ledger_file(site).with_suffix(".head")):
        path.unlink()
    with pytest.raises(BadInput, match=r"accept .* --restored"):
        spent_once(site)
    assert site_ledger(site).accept_restored() == 1
    assert len(site_ledger(site).account().entries) == 1


def test_simulations_of_one_seed_have_ledgers_of_their_own(tmp_path: Path):
    ids = {spent_once(made(tmp_path / n, "samples.safetensors", b"k" * 32)) for n in "ab"}
    assert len(ids) == 2
