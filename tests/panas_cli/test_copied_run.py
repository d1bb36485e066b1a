"""A run on a user's own data that was searched and tuned, then copied: one of the two trains."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ledgers import accounts, contents
from sklearn.datasets import load_digits

BOTH = ("--client", 0, "--client", 1)


@pytest.mark.thorough
def test_of_a_run_and_its_copy_one_goes_on(cli: Callable, tiny: Callable, tmp_path: Path):
    run, copy, data = tmp_path / "r", tmp_path / "copy", tmp_path / "mine.npz"
    x, y = load_digits(return_X_y=True)
    np.savez(data, images=(x.reshape(-1, 8, 8) * 15).astype(np.uint8), labels=y)
    own = ("--dataset", data)
    assert cli("search", "--out", run, *BOTH, *own, *tiny()).code == 0
    assert cli("tune", "--out", run, *BOTH, *own, *tiny()).code == 0
    shutil.copytree(run, copy)
    assert cli("train", "--out", run, *own, *tiny()).code == 0
    before = contents(copy)
    outcome = cli("train", "--out", copy, *own, *tiny())
    assert outcome.code == 2
    assert "nothing can be spent" in outcome.err
    assert contents(copy) == before
    assert all(account.spent() <= 8 for account in accounts(run))


@pytest.mark.slow
def test_a_run_that_is_renamed_goes_on(cli: Callable, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    assert cli("search", "--out", run, *BOTH, *tiny()).code == 0
    run.rename(tmp_path / "renamed")
    assert cli("tune", "--out", tmp_path / "renamed", *BOTH, *tiny()).code == 0
    assert cli("train", "--out", tmp_path / "renamed", *tiny()).code == 0
