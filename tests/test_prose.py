"""Pages, docstrings and messages keep to the limits of `benchmarks.prose`."""

from pathlib import Path

import pytest

from benchmarks.prose import BANNED, LONGEST, groups, problems, sentences_of


@pytest.mark.parametrize(("group", "paths"), groups().items(), ids=list(groups()))
def test_sentences_are_short_and_plain(group: str, paths: list[Path]):
    assert problems(group, sentences_of(paths)) == []


def test_what_breaks_a_limit_is_found(tmp_path: Path):
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    words = "word " * LONGEST + "more"
    code = f"```\n{words * 3}\n```"
    page.write_text(f"# Title\n\nFirst {words}. A step that {BANNED[0]}.\n\n{code}\n")
    module.write_text(f'''"""A module."""\nraise ValueError(f"expected {{x}}; {words} again")\n''')
    texts = problems("all", sentences_of([page, module]))
    assert [line.split(": ")[1].split(" ")[0] for line in texts[:3]] == ["32", "says", "32"]
    assert texts[3].startswith("all: ")
    page.write_text("One. Two words. `a.b(c). D` counts as one word.\n")
    assert [s.words for s in sentences_of([page])] == [1, 2, 5]
