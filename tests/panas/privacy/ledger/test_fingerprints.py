"""Samples are known again: in other files, shuffled, in part; and with them what they spent."""

import math
import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ledgers import charge, opened
from made_samples import random_bytes as pictures

from panas.data.files.raw import Raw
from panas.data.samples import Samples, concat
from panas.data.sources import Reading, read
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger import fingerprints as seen_module
from panas.privacy.ledger.account import Account, as_gaussian
from panas.privacy.ledger.book import replica_account
from panas.privacy.ledger.fingerprints import (
    Changed,
    SeenBefore,
    changed_since,
    note_spent,
    refuse_seen,
    remember,
    seen_before,
)
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.replica import Replica
from panas.runtime.errors import BadInput
from panas.runtime.state import state_folder, state_key

SHARE = Budget(2.0, 1e-5)


def spender(path: Path, data: Samples | Raw, noise: float = 3.0, runs: int = 1) -> Ledger:
    """A ledger that was charged for some samples."""
    ledger = opened(path, allow_unprotected=True)
    remember(data, ledger)
    for i in range(runs):
        run = ledger.begin_run(f"run {i}", Budget(2.5, 1e-5))
        charge(run, Gaussian(noise))
    return ledger


def seen(data: Samples | Raw, own: Path) -> SeenBefore:
    return seen_before(data, Ledger(own / "ledger.jsonl"), SHARE)


def test_samples_are_known_again_shuffled_in_part_and_among_others(tmp_path: Path) -> None:
    data = pictures(40)
    first = spender(tmp_path / "first", data, runs=2)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    relabelled = replace(data, y=(data.y + 1) % 3)
    for other, overlap in (
        (data, 40),
        (data.take(order), 40),
        (data.take(order[:7]), 7),
        (relabelled, 40),
        (concat([pictures(30, seed=1), data.take(order[:1])]), 1),
    ):
        before = seen(other, tmp_path / "own")
        assert (before.samples, before.overlap, before.runs) == (len(other), overlap, 2)
        (earlier,) = before.earlier
        assert (earlier.path, earlier.overlap) == (first.path, overlap)
        assert earlier.epsilon == first.account().spent()
    assert seen_before(pictures(50, seed=2), Ledger(tmp_path / "own" / "l"), SHARE) is None


def test_what_was_spent_and_what_it_comes_to_together(tmp_path: Path) -> None:
    data = pictures(30)
    spender(tmp_path / "first", data, noise=3.0)
    spender(tmp_path / "second", data, noise=4.0)
    own = spender(tmp_path / "own", data, noise=5.0)
    result = seen(data, tmp_path / "own")
    assert len(result.earlier) == 2
    before = [Gaussian(3.0), Gaussian(4.0)]
    assert result.epsilon == pytest.approx(epsilon(before, 1e-5))
    together = [*before, Gaussian(5.0), as_gaussian(SHARE)]
    assert result.together == pytest.approx(epsilon(together, 1e-5))
    # What the asking run itself has charged is part of its share.
    resumed = seen_before(data, Ledger(own.path, "run 0"), SHARE)
    assert resumed.together == pytest.approx(epsilon([*before, as_gaussian(SHARE)], 1e-5))


def test_the_sample_that_is_worst_off_counts(tmp_path: Path) -> None:
    left, right = pictures(20), pictures(20, seed=1)
    spender(tmp_path / "left", left, noise=3.0)
    spender(tmp_path / "right", right, noise=2.0)
    both = concat([left, right])
    assert seen(both, tmp_path).epsilon == pytest.approx(epsilon([Gaussian(2.0)], 1e-5))
    spender(tmp_path / "one", left.take([3]), noise=2.5)
    worst = epsilon([Gaussian(3.0), Gaussian(2.5)], 1e-5)
    assert worst > epsilon([Gaussian(2.0)], 1e-5)
    before = seen(both, tmp_path)
    assert before.epsilon == pytest.approx(worst)
    assert before.overlap == 40
    assert sorted(e.overlap for e in before.earlier) == [1, 20, 20]


@pytest.mark.slow
def test_of_many_ledgers_that_had_ended_only_the_worst_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's file that was shared out over many sites, and is shared out otherwise now."""
    data, read = pictures(40), list[str]()
    for k in range(20):
        note_spent(spender(tmp_path / str(k), data.take([2 * k, 2 * k + 1]), noise=3.0 + k))

    def account(replica: Replica) -> Account:
        read.append(replica.name)
        return replica_account(replica)

    monkeypatch.setattr(seen_module, "replica_account", account)
    before = seen(data, tmp_path / "own")
    assert (before.overlap, len(before.earlier), before.runs) == (40, 20, 20)
    assert before.epsilon == pytest.approx(epsilon([Gaussian(3.0)], 1e-5))
    assert read == [Ledger(tmp_path / "0" / "ledger.jsonl").id]


def test_of_a_ledger_that_is_gone_all_charges_count(tmp_path: Path) -> None:
    data = pictures(20)
    first = spender(tmp_path / "first", data)
    note_spent(first)
    noted = first.account().spent()
    charge(Ledger(first.path, "run 0"), Gaussian(4.0))
    spent = first.account().spent()
    shutil.rmtree(tmp_path / "first")
    before = seen(data, tmp_path)
    assert before.epsilon == pytest.approx(spent, abs=1e-6)
    assert before.together > before.epsilon > noted
    opened(tmp_path / "first")  # another ledger in its place has not spent that
    assert seen(data, tmp_path).epsilon == pytest.approx(spent, abs=1e-6)


def test_of_a_ledger_that_was_put_back_all_charges_count(tmp_path: Path) -> None:
    data = pictures(20)
    first = spender(tmp_path / "first", data)
    shutil.copytree(tmp_path / "first", tmp_path / "kept")
    charge(Ledger(first.path, "run 0"), Gaussian(4.0))
    spent = first.account().spent()
    shutil.copytree(tmp_path / "kept", tmp_path / "first", dirs_exist_ok=True)
    assert first.account().spent() < spent
    assert seen(data, tmp_path).epsilon == pytest.approx(spent)


def test_where_nothing_else_is_left_the_last_note_counts(tmp_path: Path) -> None:
    data = pictures(20)
    first = spender(tmp_path / "first", data)
    note_spent(first)
    spent = first.account().spent()
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(state_folder() / "ledgers")
    assert seen(data, tmp_path).epsilon == pytest.approx(spent, abs=1e-6)


def test_an_owner_hears_how_the_samples_have_changed(tmp_path: Path) -> None:
    data, ledger = pictures(40), opened(tmp_path / "first")
    assert changed_since(data, ledger) is None
    remember(data, ledger)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert changed_since(data.take(order), ledger) is None
    other = concat([data.take(range(20)), pictures(5, seed=1)])
    assert changed_since(other, ledger) == Changed(before=40, now=25, gone=20, added=5)
    twice = changed_since(concat([data, data]), ledger)
    assert twice == Changed(before=40, now=80, gone=0, added=0)
    assert "0 of 40 samples are gone, and 0 of 80 are new" in str(twice)
    remember(other, ledger)
    assert changed_since(other, ledger) is None
    assert changed_since(data, ledger) == Changed(before=25, now=40, gone=5, added=20)
    charge(ledger.begin_run("r", SHARE), Gaussian(3.0))
    assert seen(data, tmp_path).overlap == 40  # all that it was charged for, not the last alone


def test_a_ledger_that_was_charged_nothing_or_is_not_remembered_is_not_named(
    tmp_path: Path,
):
    ledger = opened(tmp_path / "first")
    charge(ledger, Gaussian(3.0))
    note_spent(ledger)
    assert not state_folder().exists() or not [*state_folder().rglob("*.json")]
    remember(pictures(20), opened(tmp_path / "second"))
    assert seen_before(pictures(20), Ledger(tmp_path / "own"), SHARE) is None


def test_a_ledgers_own_samples_are_its_own_affair_wherever_it_lies(tmp_path: Path) -> None:
    data = pictures(20)
    first = spender(tmp_path / "first", data)
    assert seen_before(data, first, SHARE) is None
    (tmp_path / "first").rename(tmp_path / "renamed")
    renamed = Ledger(tmp_path / "renamed" / "ledger.jsonl")
    assert seen_before(data, renamed, SHARE) is None
    remember(pictures(5, seed=1), renamed)  # those of before stay known
    assert seen(data, tmp_path).earlier[0].path == renamed.path


def test_what_nothing_bounds_is_infinite(tmp_path: Path) -> None:
    data = pictures(20)
    charge(spender(tmp_path / "first", data), Unprotected())
    assert seen(data, tmp_path).epsilon == math.inf
    data = pictures(20, seed=1)
    shutil.rmtree(tmp_path / "first")
    spender(tmp_path / "second", data)
    note_spent(opened(tmp_path / "second", allow_unprotected=True))
    before = seen_before(data, Ledger(tmp_path / "own"), Budget(math.inf, 1e-5))
    assert before.together == math.inf > before.epsilon


def test_strict_refuses_what_was_seen_and_nothing_else(tmp_path: Path) -> None:
    refuse_seen(None)
    first = spender(tmp_path / "first", pictures(20))
    with pytest.raises(BadInput, match=r"got 5 of 5 that have spent .* at most") as refused:
        refuse_seen(seen(pictures(20).take(range(5)), tmp_path))
    assert str(first.path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_is_known_again_as_another_file(tmp_path: Path) -> None:
    data = pictures(20)
    np.savez(tmp_path / "a.npz", x=data.x.numpy()[:, 0], y=data.y.numpy())
    np.savez(tmp_path / "b.npz", x=data.x.numpy()[::-2, 0], y=np.zeros(10, np.int64))
    spender(tmp_path / "first", read(str(tmp_path / "a.npz"), Reading()))
    assert seen(read(str(tmp_path / "b.npz"), Reading()), tmp_path).overlap == 10
    assert seen(data, tmp_path).overlap == 20  # and in memory
    rows = [f"{i},{i * i % 7}.5,{'ab'[i % 2]}" for i in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["u,v,label", *rows]))
    turned = [f"{v},{u},{label}" for u, v, label in (row.split(",") for row in rows[5:])]
    (tmp_path / "b.csv").write_text("\n".join(["v,u,label", *reversed(turned)]))
    spender(tmp_path / "second", read(str(tmp_path / "a.csv"), Reading()))
    assert seen(read(str(tmp_path / "b.csv"), Reading()), tmp_path).overlap == 25


def test_the_state_is_private_and_its_tags_tell_nothing_without_the_key(tmp_path: Path) -> None:
    data = pictures(20)
    ledger = spender(tmp_path / "first", data)
    folder = state_folder()
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*")}
    assert {m for p, m in modes.items() if p.is_file()} == {0o600}
    assert {m for p, m in modes.items() if p.is_dir()} == {0o700}
    assert len((folder / "key").read_bytes()) == 32
    tags = (folder / "fingerprints" / f"{ledger.id}.tags").read_bytes()
    assert len(tags) == 8 * 20
    (folder / "key").write_bytes(bytes(32))
    assert seen_before(data, Ledger(tmp_path / "own"), SHARE) is None
    remember(data, opened(tmp_path / "second"))
    (other,) = {p.read_bytes() for p in (folder / "fingerprints").glob("*.tags")} - {tags}
    assert not {*np.frombuffer(tags, np.uint64)} & {*np.frombuffer(other, np.uint64)}


def test_where_the_state_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_folder() == Path(os.environ["PANAS_STATE"])
    monkeypatch.delenv("PANAS_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert state_folder() == Path("/xdg/panas")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert state_folder() == Path("/home/someone/.local/state/panas")
    (tmp_path / "file").touch()
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(BadInput, match="set PANAS_STATE"):
        seen_before(pictures(3), Ledger(tmp_path / "own"), SHARE)


@pytest.mark.slow
def test_sixty_thousand_samples_take_well_under_a_second(tmp_path: Path) -> None:
    data = Samples(torch.zeros(60_000, 1, 28, 28, dtype=torch.uint8), torch.zeros(60_000).long(), 1)
    data.x.view(60_000, -1)[:, :4] = torch.arange(60_000).int()[:, None].view(torch.uint8)
    spender(tmp_path / "first", data)
    began = time.process_time()
    assert seen(data, tmp_path).overlap == 60_000
    assert time.process_time() - began < 1.0


def test_a_user_without_a_home_is_told_where_to_keep_what_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PANAS_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", none)
    ledger = opened(tmp_path)
    note_spent(ledger)  # nothing is remembered, so that nothing is noted
    for refused in (state_key, lambda: remember(pictures(3), ledger)):
        with pytest.raises(BadInput, match="set PANAS_STATE to one"):
            refused()
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "state"))
    state_key()
    remember(pictures(3), ledger)
