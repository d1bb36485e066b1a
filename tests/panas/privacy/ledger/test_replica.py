"""A restored backup is noticed, wherever it lies, and no death locks an owner out."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import BUDGET, charge

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Event, Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger import chain as chain_module
from panas.privacy.ledger import replica as replica_module
from panas.privacy.ledger.book import book_of, replica_account
from panas.privacy.ledger.chain import Chain
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.replica import Replica
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.state import state_folder

SMALL = Gaussian(30.0)


@pytest.fixture
def spent(ledger: Ledger) -> Ledger:
    """One that a run was charged to."""
    charge(ledger.begin_run("first", BUDGET), Gaussian(3.0))
    return ledger


def copied(ledger: Ledger, to: Path) -> Ledger:
    """A copy in a folder of its own, as `cp -a` makes it."""
    shutil.copytree(ledger.path.parent, to)
    return Ledger(to / ledger.path.name)


def put_back(backup: Path, ledger: Ledger) -> None:
    """The files of a backup in the places of those that are there, as `rsync -a` does it."""
    for file in backup.iterdir():
        shutil.copy2(file, ledger.path.parent / file.name)


def events(ledger: Ledger) -> list[Event]:
    return [e.event for e in ledger.account().entries]


def refused(ledger: Ledger, lacks: str) -> None:
    """That nothing can be spent, in one line, and that all can be read."""
    before = ledger.path.read_bytes()
    for attempt in (
        lambda: ledger.open_account(BUDGET),
        lambda: ledger.begin_run("first", BUDGET),
        lambda: ledger.begin_run("second", replace(BUDGET, epsilon=0.1)),
        lambda: charge(ledger, SMALL),
        lambda: charge(Ledger(ledger.path, "first"), SMALL),
    ):
        with pytest.raises(BadInput, match=f"lacks {lacks}: nothing .* --restored") as error:
            attempt()
        assert "\n" not in str(error.value)
    assert ledger.path.read_bytes() == before
    assert ledger.is_behind
    ledger.account()


def test_a_backup_that_is_put_back_in_place_gives_nothing_back(ledger: Ledger, tmp_path: Path):
    """`rsync -a --delete`: two runs of 1.9 went on a budget of 2."""
    kept, event = copied(ledger, tmp_path / "backup").path.parent, Gaussian(2.3)
    assert 1.5 < epsilon([event], BUDGET.delta) < BUDGET.epsilon
    assert epsilon([event] * 3, BUDGET.delta) > BUDGET.epsilon
    run = ledger.begin_run("first", BUDGET)
    for _ in range(2):
        charge(run, event)
    put_back(kept, ledger)
    refused(ledger, "2 charges")
    assert ledger.accept_restored() == 2
    assert events(ledger) == [event] * 2
    assert ledger.account().shares == {"first": BUDGET}
    with pytest.raises(BudgetExhausted):
        charge(Ledger(ledger.path, "first"), event)
    charge(Ledger(ledger.path, "first"), SMALL)
    (note,) = ledger.notes
    assert (note.kind, note.charges) == ("restored", 2)


def test_a_copy_in_the_place_of_the_original_is_noticed_whatever_its_inode(
    ledger: Ledger, tmp_path: Path
) -> None:
    """`rm -rf; cp -a`, after which the inode is often the same."""
    folder, behind = ledger.path.parent, 0
    for k in range(3):
        kept = copied(ledger, tmp_path / f"backup {k}").path.parent
        charge(ledger, SMALL)
        shutil.rmtree(folder)
        subprocess.run(["cp", "-a", str(kept), str(folder)], check=True)
        behind += ledger.is_behind
        refused(ledger, "1 charge")
        assert ledger.accept_restored() == 1
    assert behind == 3
    assert len(events(ledger)) == 3


def test_an_older_copy_becomes_the_very_ledger_that_it_was(spent: Ledger, tmp_path: Path) -> None:
    old = copied(spent, tmp_path / "old")
    with charge(spent, SMALL):
        pass
    spent.begin_run("second", replace(BUDGET, epsilon=0.5))
    noted, lines = spent.head(), spent.path.read_bytes()
    with pytest.raises(BadInput, match=r"lacks 1 charge.* --restored"):
        old.check_holds(*noted)  # as the state of a run does, which a backup does not hold
    old.accept_restored()
    assert old.path.read_bytes().startswith(lines)
    old.check_holds(*noted)
    assert old.account().entries == spent.account().entries
    with pytest.raises(BadInput, match="leave out --restored"):
        old.accept_restored()


def test_a_folder_may_be_renamed_moved_or_copied_and_goes_on(spent: Ledger, tmp_path: Path) -> None:
    spent.path.parent.rename(tmp_path / "renamed")
    moved = Ledger(tmp_path / "renamed" / "ledger.jsonl")
    moved.open_account(BUDGET)
    charge(moved.begin_run("first", BUDGET), SMALL)
    (tmp_path / "link").symlink_to(tmp_path / "renamed")
    charge(Ledger(tmp_path / "link" / "ledger.jsonl"), SMALL)
    here = copied(moved, tmp_path / "another disk")
    shutil.rmtree(tmp_path / "renamed")
    charge(here, SMALL)
    assert (len(events(here)), here.notes, here.is_behind) == (4, (), False)


def test_of_two_branches_the_charges_of_both_count(
    spent: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a copy that went on under another state folder, and came back."""
    other = copied(spent, tmp_path / "other")
    charge(spent.begin_run("here", replace(BUDGET, epsilon=1.0)), Gaussian(20.0))
    with monkeypatch.context() as away:
        away.setenv("PANAS_STATE", str(tmp_path / "other state"))
        for k in range(4):
            charge(other.begin_run(f"away {k}", replace(BUDGET, epsilon=1.0)), Gaussian(40.0 + k))
    lines = other.path.read_bytes()
    refused(other, "1 charge")
    assert other.accept_restored() == 1
    assert other.path.read_bytes().startswith(lines)
    assert sorted(e.noise_multiplier for e in events(other)) == [3.0, 20.0, 40.0, 41.0, 42.0, 43.0]
    assert set(other.account().runs) == {"first", "here", *(f"away {k}" for k in range(4))}
    refused(spent, "4 charges")
    assert spent.accept_restored() == 4
    assert {e.id for e in spent.account().entries} == {e.id for e in other.account().entries}
    Chain(spent.path).refresh(locked=True)


def test_on_a_new_machine_it_goes_on_and_says_so(
    spent: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not spent.is_unknown
    shutil.rmtree(state_folder())
    assert spent.is_unknown
    charge(spent, SMALL)
    charge(spent, SMALL)
    (note,) = spent.notes
    assert (note.kind, note.folder) == ("moved", str(spent.path.parent))
    assert (spent.is_unknown, len(events(spent))) == (False, 3)


def test_nothing_is_kept_before_a_charge_nor_of_samples_that_are_no_secret(
    other: Ledger, ledger: Ledger, tmp_path: Path
) -> None:
    other.open_account(BUDGET, replicated=False)
    kept = copied(other, tmp_path / "kept").path.parent
    charge(other.begin_run("first", BUDGET), SMALL)
    ledger.begin_run("first", BUDGET)
    assert not state_folder().exists()
    put_back(kept, other)
    assert not other.is_behind
    charge(other, SMALL)
    assert not state_folder().exists()
    charge(ledger, SMALL)
    (lines,) = state_folder().rglob("*.jsonl")
    assert lines.read_bytes() == ledger.path.read_bytes()
    assert replica_account(Replica(ledger.id)) == ledger.account()


def test_a_state_folder_that_cannot_be_written_is_told_before_anything_is_charged(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(BadInput, match="set PANAS_STATE to one"):
        charge(ledger, SMALL)
    assert events(ledger) == []


def test_a_replica_that_was_changed_or_named_another_folder_is_told(spent: Ledger, tmp_path: Path):
    old = copied(spent, tmp_path / "old")
    for _ in range(3):
        charge(spent, SMALL)
    path = Replica(spent.id).path
    path.write_bytes(path.read_bytes().replace(b"30.0", b"90.0", 1))
    with pytest.raises(BadInput, match=r"got one whose line 6 was changed; remove it"):
        old.accept_restored()
    book = book_of(spent.path)  # a name from a file leads to no other folder
    book.id = "../../elsewhere"
    assert len(book.name) == 64
    assert book.replica.path.parent == state_folder() / "ledgers"


class Death(BaseException):
    """A process ends here, and its locks with it."""


class Deaths:
    """The writes of an append, in order: ledger, its head, replica; each may be the last."""

    PLACES = (
        *("before the line", "within the line", "after the line"),
        *("before the head", "after the head"),
        *("before the replica", "within the replica", "after the replica"),
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.count = "", 0
        for module, name, write in (
            (chain_module, "append_bytes", "the line"),
            (chain_module, "write_json", "the head"),
            (replica_module, "append_bytes", "the replica"),
        ):
            monkeypatch.setattr(module, name, self._dying(getattr(module, name), write))

    def _dying(self, real: Callable[..., None], write: str) -> Callable[..., None]:
        def written(path: Path, content: bytes, **options: int) -> None:
            self._die(f"before {write}")
            if self.at == f"within {write}":
                real(path, content[:-9], **options)
            self._die(f"within {write}")
            real(path, content, **options)
            self._die(f"after {write}")

        return written

    def _die(self, place: str) -> None:
        if self.at == place:
            self.at = ""
            raise Death


def anew(ledger: Ledger) -> Ledger:
    """The same in another process."""
    book_of.cache_clear()
    return Ledger(ledger.path, ledger.run)


@pytest.mark.parametrize("place", Deaths.PLACES)
@pytest.mark.parametrize("earlier", [0, 2])
def test_a_death_at_any_write_locks_nobody_out_and_gives_nothing_back(
    place: str, earlier: int, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = Deaths(monkeypatch)
    for _ in range(earlier):
        charge(ledger, SMALL)
    deaths.at = place
    with pytest.raises(Death):
        charge(ledger, Gaussian(7.0))
    ledger = anew(ledger)
    assert not ledger.is_behind
    written = events(ledger)[earlier:]
    assert written in ([], [Gaussian(7.0)])
    # A first charge begins the replica before its own line.
    if earlier:
        early = ("before the line", "within the line")
        assert bool(written) == (place not in early)
    charge(ledger, SMALL)
    assert events(ledger)[earlier:] == [*written, SMALL]
    assert ledger.notes == ()
    assert Replica(ledger.id).path.read_bytes() == ledger.path.read_bytes()


def test_a_ledger_that_lost_what_it_had_acknowledged_gets_it_back(ledger: Ledger) -> None:
    """The other order: the replica is ahead, as after a fault of the ledger's own disk."""
    charge(ledger, SMALL)
    files = {f: f.read_bytes() for f in (ledger.path, ledger.path.with_suffix(".head"))}
    charge(ledger, Gaussian(7.0))
    for file, content in files.items():
        file.write_bytes(content)
    ledger = anew(ledger)
    refused(ledger, "1 charge")
    ledger.accept_restored()
    assert events(ledger) == [SMALL, Gaussian(7.0)]


@pytest.mark.slow
def test_a_death_while_missing_charges_are_put_back_is_made_good(
    spent: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in Deaths.PLACES:
        old = copied(spent, tmp_path / place)
        for _ in range(2):
            charge(spent, SMALL)
        with monkeypatch.context() as patched:
            deaths = Deaths(patched)
            deaths.at = place
            with pytest.raises(Death):
                old.accept_restored()
        old = anew(old)
        if old.is_behind:
            old.accept_restored()
        assert [e.id for e in old.account().entries] == [e.id for e in spent.account().entries]
        charge(old, SMALL)
        anew(spent).accept_restored()


STEPS = st.one_of(
    st.tuples(st.just("charge"), st.integers(0, 1), st.sampled_from(["", *Deaths.PLACES])),
    st.tuples(st.sampled_from(["back up", "put back", "copy"]), st.integers(0, 1), st.just("")),
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return (tmp_path_factory.mktemp(str(k)) for k in range(10**6))


@pytest.mark.slow
@settings(max_examples=60)
@given(steps=st.lists(STEPS, min_size=1, max_size=14))
def test_whatever_happens_all_that_was_acted_upon_is_within_the_budget(
    steps: list[tuple[str, int, str]], places: Iterator[Path]
) -> None:
    """Two folders, each charged, killed, backed up, put back and copied to the other at random.

    Whoever is granted a charge holds all that were granted before, on either side; nobody is
    locked out; and what was granted composes to the budget at most.
    """
    place, event = next(places), Gaussian(3.5)
    budget, granted = Budget(3.0, 1e-5), set[str]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PANAS_STATE", str(place / "state"))
        deaths = Deaths(patched)
        sides = [Ledger(place / name / "ledger.jsonl") for name in ("a", "b")]
        sides[0].open_account(budget)
        shutil.copytree(place / "a", place / "b")
        for side in "ab":
            shutil.copytree(place / side, place / f"backup {side}")
        for what, side, death in steps:
            book_of.cache_clear()
            here, backup = place / "ab"[side], place / f"backup {'ab'[side]}"
            if what == "back up":
                _mirrored(here, backup)
            elif what == "put back":
                _mirrored(backup, here)
            elif what == "copy":
                _mirrored(place / "ab"[1 - side], here)
            else:
                ledger, deaths.at = sides[side], ""
                if ledger.is_behind:
                    with pytest.raises(BadInput, match="--restored"):
                        charge(ledger, event)
                    ledger.accept_restored()
                deaths.at = death
                try:
                    receipt = charge(ledger, event)
                except Death:
                    continue
                except BudgetExhausted:
                    assert epsilon([*events(ledger), event], 1e-5) > budget.epsilon
                    continue
                finally:
                    deaths.at = ""
                granted.add(receipt.id)
                assert granted <= {e.id for e in ledger.account().entries}
                assert epsilon([event] * len(granted), 1e-5) <= budget.epsilon


def _mirrored(source: Path, to: Path) -> None:
    shutil.rmtree(to)
    shutil.copytree(source, to)


def test_the_property_would_catch_a_replica_that_nobody_asks(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: what stood before, when a backup in place gave everything back."""
    kept = copied(ledger, tmp_path / "kept").path.parent
    monkeypatch.setattr(Chain, "holds", lambda self, count, digest: True)
    granted = 0
    for _ in range(3):
        charge(ledger, Gaussian(2.0))
        granted += 1
        monkeypatch.setattr(Replica, "follow", lambda self, chain: None)
        put_back(kept, ledger)
    assert epsilon([Gaussian(2.0)] * granted, BUDGET.delta) > BUDGET.epsilon
