"""A site with empty splits serves: every verb ends as usual, and nothing went wrong in it.

A hub elsewhere sees none of its failures, so what the owner would read of them is looked for.
"""

from pathlib import Path
from typing import Any

import pytest
from neighbour_trials import TRIALS
from neighbours import Recorded, by_node, differences, led_anew, pictures, recorded, rows

SLOW = ("local", "dprbft", "fedavg", "dp_fnas")
REST = [name for name in TRIALS if name not in (*SLOW, "joined")]


def few(of: Recorded, most: int) -> dict[str, Any]:
    """Data sets of no sample and of single ones, which are of a split each, and of two."""
    table = of.trial.owner.table
    made = rows(40) if table else pictures(40)
    spans = {"none": (0, 0), "first": (0, 1), "second": (1, 2), "sixth": (5, 6), "two": (0, 2)}
    return {
        name: made[a:b] if table else (made[0][a:b], made[1][a:b])
        for name, (a, b) in list(spans.items())[:most]
    }


def check(name: str, folder: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "honest").mkdir()
    of, wrong = recorded(folder / "honest", TRIALS[name]), {}
    asked = led_anew if of.trial.in_sum else by_node
    monkeypatch.setenv("PANAS_STATE", str(folder / "state"))
    (folder / "again").mkdir()
    of = of.noised_as(asked(folder / "again", of, of.trial.data()))
    for what, data in few(of, most).items():
        monkeypatch.setenv("PANAS_STATE", str(folder / f"state of {what}"))
        (folder / what).mkdir()
        seen = asked(folder / what, of, data)
        texts = differences(of.seen, seen, of.trial)
        failed = [path.read_text() for path in (folder / what).rglob("failed.json")]
        if texts or failed:
            wrong[what] = [*texts, *failed]
    assert not wrong, "\n".join(f"{what}: {'; '.join(texts)}" for what, texts in wrong.items())


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in SLOW),
        pytest.param("joined", 2, marks=pytest.mark.thorough),
        *(pytest.param(name, 5, marks=pytest.mark.thorough) for name in REST),
    ],
)
def test_a_site_with_empty_splits_serves(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    check(name, tmp_path, most, monkeypatch)
