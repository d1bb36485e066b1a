"""A ledger knows its folder: what was moved goes on, and what was copied does not."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import BUDGET, MOMENTS, charge

from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.place import Place
from panas.runtime.errors import BadInput


@pytest.fixture
def spent(ledger: Ledger) -> Ledger:
    charge(ledger.begin_run("first", BUDGET), Gaussian(3.0))
    return ledger


def refused(ledger: Ledger) -> None:
    """That nothing can be spent, in one line, and that all can be read."""
    before = ledger.path.read_bytes()
    for attempt in (
        lambda: ledger.open_account(BUDGET),
        lambda: ledger.begin_run("first", BUDGET),
        lambda: ledger.begin_run("second", replace(BUDGET, epsilon=0.1)),
        lambda: charge(ledger, Gaussian(30.0)),
        lambda: charge(Ledger(ledger.path, "first"), Gaussian(30.0)),
    ):
        with pytest.raises(BadInput, match=r"got a copy of it; .* --moved") as error:
            attempt()
        assert "\n" not in str(error.value)
    assert ledger.path.read_bytes() == before
    assert ledger.account().events() == [Gaussian(3.0)]
    assert ledger.is_copy


def test_a_copy_of_the_folder_is_refused_and_the_original_goes_on(
    spent: Ledger, tmp_path: Path
) -> None:
    shutil.copytree(spent.path.parent, tmp_path / "copy")
    refused(Ledger(tmp_path / "copy" / "ledger.jsonl"))
    assert not spent.is_copy
    charge(spent, Gaussian(30.0))


def test_links_of_a_folder_are_copies_too(spent: Ledger, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    for name in ("ledger.jsonl", "ledger.head"):
        (tmp_path / "linked" / name).hardlink_to(spent.path.with_name(name))
    refused(Ledger(tmp_path / "linked" / "ledger.jsonl"))


def test_a_copy_in_the_place_of_the_original_is_refused(spent: Ledger, tmp_path: Path) -> None:
    folder = spent.path.parent
    folder.rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", folder)
    refused(Ledger(spent.path))
    charge(Ledger(tmp_path / "kept" / "ledger.jsonl"), Gaussian(30.0))


def test_a_folder_that_is_renamed_goes_on(spent: Ledger, tmp_path: Path) -> None:
    spent.path.parent.rename(tmp_path / "renamed")
    moved = Ledger(tmp_path / "renamed" / "ledger.jsonl")
    moved.open_account(BUDGET)
    charge(moved.begin_run("first", BUDGET), Gaussian(30.0))
    (tmp_path / "link").symlink_to(tmp_path / "renamed")
    charge(Ledger(tmp_path / "link" / "ledger.jsonl"), Gaussian(30.0))
    assert len(moved.account().entries) == 3


def test_a_move_to_another_file_system_is_said_once(spent: Ledger, tmp_path: Path) -> None:
    shutil.copytree(spent.path.parent, tmp_path / "elsewhere")
    shutil.rmtree(spent.path.parent)
    here = Ledger(tmp_path / "elsewhere" / "ledger.jsonl")
    refused(here)
    noted = here.head()
    here.moved()
    charge(here, Gaussian(30.0))
    here.check_holds(*noted)
    assert [p.folder for p in here.places()] == [str(spent.path.parent), str(here.path.parent)]
    with pytest.raises(BadInput, match="leave out --moved"):
        here.moved()
    shutil.copytree(here.path.parent, tmp_path / "again")
    with pytest.raises(BadInput, match="a copy"):
        charge(Ledger(tmp_path / "again" / "ledger.jsonl"), Gaussian(30.0))


def test_a_copy_while_a_process_goes_on_is_noticed(spent: Ledger, tmp_path: Path) -> None:
    """The file's content is the same, and was read before."""
    ledger, folder = Ledger(spent.path, "first"), spent.path.parent
    ledger.charge(replace(MOMENTS, event=Gaussian(30.0)))
    folder.rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", folder)
    with pytest.raises(BadInput, match="a copy"):
        ledger.charge(replace(MOMENTS, event=Gaussian(30.0)))


def test_one_folder_by_inode_and_either_device_or_path(tmp_path: Path) -> None:
    here = Place.of(tmp_path)
    assert here.same(replace(here, folder="/renamed/or/bound"))
    assert here.same(replace(here, device=here.device + 1))  # numbered anew at a start
    assert not here.same(replace(here, device=here.device + 1, folder="/elsewhere"))
    assert not here.same(replace(here, inode=here.inode + 1))
    assert Place.from_json(here.to_json()) == here
