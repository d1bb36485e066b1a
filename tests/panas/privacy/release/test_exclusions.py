"""What is not covered is said in the same words by the card and by the docs."""

import re
from pathlib import Path

from panas.privacy.release.exclusions import EXCLUSIONS

PAGE = Path(__file__).resolve().parents[4] / "docs" / "privacy.md"


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
