"""An extension point has one home: no module outside its folder branches on a name in it."""

import re
from pathlib import Path

import pytest
from one_home import ROOT, branches_on, names_in, sources

from panas.privacy.release.exclusions import EXCLUSIONS

HOMES: dict[str, tuple[Path, ...]] = {
    "release kinds": (ROOT / "panas/privacy/release/kinds", ROOT / "panas/privacy/release"),
    "search modes": (ROOT / "panas/search_modes", ROOT / "panas/search_modes"),
    "methods": (
        ROOT / "baselines",
        ROOT / "baselines",
        ROOT / "dprbft/methods",
        ROOT / "dprbft/config/families.py",  # literal facts of the methods of the core
    ),
}
"""The folder whose modules are the names, and the places that may branch on them."""

EXISTING = [name for name, (folder, *_) in HOMES.items() if folder.is_dir()]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXISTING)
def test_names_are_compared_at_home_alone(name: str) -> None:
    folder, *homes = HOMES[name]
    names = names_in(folder) | ({"dprbft"} if name == "methods" else set())
    assert names
    results = [f"{path}:{n}" for path, text in sources(*homes) for n in branches_on(text, names)]
    assert not results, f"ask the {name} instead: {', '.join(results)}"


@pytest.mark.parametrize(
    "planted",
    [
        *('if kind == "moments": pass', 'x = 1 if "raw_rows" != kind else 2'),
        *('if kind in ("moments", "other"): pass', 'if kind not in {"public_rows"}: pass'),
        *('match kind:\n    case "moments": pass', 'match kind:\n    case "x" | "moments": pass'),
        *('heads = {"moments": 1, "other": 2}', 'heads["moments"]', 'heads.get("moments", None)'),
        'if kind.startswith("raw_rows"): pass',
    ],
)
def test_a_planted_branch_is_caught(planted: str) -> None:
    names = names_in(HOMES["release kinds"][0])
    assert branches_on(planted, names) == [2 if planted.startswith("match") else 1]


@pytest.mark.parametrize(
    "innocent",
    [
        *('release: str = "moments"', 'replace(observation, kind="raw_rows")'),
        *('raise ValueError("moments")', 'if kind == "none": pass', "if kind == name: pass"),
    ],
)
def test_a_name_that_is_merely_given_is_not(innocent: str) -> None:
    assert not branches_on(innocent, names_in(HOMES["release kinds"][0]))


PAGE = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "privacy.md"


def listed(page: str) -> list[str]:
    """The points of the list that follows "Not covered"."""
    after = page.split("Not covered, and said so", 1)[1].split("\n## ", 1)[0]
    points = re.findall(r"^- (.*(?:\n  .*)*)", after, re.M)
    return [" ".join(point.replace("`", "").split()) for point in points]


def test_the_docs_list_what_every_card_says_is_not_covered() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert listed(page) == list(EXCLUSIONS)
    # The planted bug: a point of the docs that no card has.
    assert listed(page.replace("- people", "- the weather\n- people")) != list(EXCLUSIONS)
