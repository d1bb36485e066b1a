"""What crosses the wire is the same of neighbouring data sets: code, size, order and presence.

A hub's requests are recorded once with honest data, and then asked of sites that differ in a row.
"""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from neighbour_trials import TRIALS
from neighbours import (
    Recorded,
    Seen,
    by_node,
    by_relay,
    by_serve,
    differences,
    images,
    led_anew,
    recorded,
    tables,
    unreadable_images,
    unreadable_tables,
)

Asked = Callable[[Path, Recorded, Any], tuple[Seen, ...]]
ONE, FEW, MORE = 1, 3, 100
"""Data sets of slow, quick and thorough tests."""
QUICK = ("local", "fedavg")
VARIANTS = (
    *("joined, protected", "joined without public samples"),
    *("joined", "joined, judged", "joined, tuned", "joined, groups", "joined in a sum"),
    *("local, judged", "local, tuned", "dprbft"),
)
"""Trials of methods that others try too: thorough tests."""
SLOW = [name for name in TRIALS if name not in (*QUICK, *VARIANTS)]
Get = Callable[[str], Recorded]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """An honest run of a trial, the same for all tests that replay it."""
    known: dict[str, Recorded] = {}

    def get(name: str) -> Recorded:
        if name not in known:
            known[name] = recorded(tmp_path_factory.mktemp("honest"), TRIALS[name])
        return known[name]

    return get


def check(of: Recorded, folder: Path, asked: Asked, most: int, state: pytest.MonkeyPatch) -> None:
    """Ask sites of each data set, none of which knows of another, and compare."""
    sets = tables() if of.trial.owner.table else images()
    wrong, every = {}, {"as it was": of.trial.data(), **dict(islice(sets.items(), most))}
    for i, (name, data) in enumerate(every.items()):
        state.setenv("PANAS_STATE", str(folder / f"state-{i}"))
        seen = asked(folder / str(i), of, data)
        if not i:
            of = of.noised_as(seen)
        if texts := differences(of.seen, seen, of.trial):
            wrong[name] = texts
    assert not wrong, "\n".join(f"{name}: {'; '.join(texts)}" for name, texts in wrong.items())


def way(of: Recorded) -> Asked:
    """How a trial is asked: a secure sum is led anew, all others are replayed to a node."""
    return led_anew if of.trial.in_sum else by_node


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(pytest.param(name, FEW, marks=pytest.mark.slow) for name in QUICK),
        *(pytest.param(name, ONE, marks=pytest.mark.slow) for name in SLOW),
        *(pytest.param(name, MORE, marks=pytest.mark.thorough) for name in TRIALS),
    ],
)
def test_one_row_changes_no_answer(
    name: str, most: int, honest: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    check(honest(name), tmp_path, way(honest(name)), most, monkeypatch)


@pytest.mark.parametrize("name", [*QUICK, "joined without public samples"])
@pytest.mark.parametrize("asked", [by_serve, by_relay])
@pytest.mark.slow
def test_other_engines_show_no_more(
    asked: Asked, name: str, honest: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    check(honest(name), tmp_path, asked, ONE, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "local, pictures"])
def test_why_data_do_not_load_is_not_seen(
    name: str, honest: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A site whose data do not load is absent whatever the reason, or answers as all others."""
    of, wrong = honest(name), {}
    sets = unreadable_tables() if of.trial.owner.table else unreadable_images()
    for i, (what, data) in enumerate(sets.items()):
        monkeypatch.setenv("PANAS_STATE", str(tmp_path / f"state-{i}"))
        seen = by_node(tmp_path / str(i), of, data)
        absent = (seen[0].code, seen[0].size) == ("ABSENT", 0)
        if differences(of.seen, seen, of.trial) and not absent:
            wrong[what] = "; ".join(map(str, seen[:2]))
    assert not wrong, "\n".join(f"{what}: {said}" for what, said in wrong.items())
