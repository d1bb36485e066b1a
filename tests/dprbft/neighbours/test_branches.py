"""The table of branches in the documents: complete, and the one that tests know."""

from pathlib import Path

import pytest
from branches import GREETING, TABLES, branches, page
from neighbour_trials import TRIALS

from dprbft.config.families import family_of, method_names
from dprbft.messages import Verb
from dprbft.methods.serve import VERBS

ROOT = Path(__file__).resolve().parents[3]


def served(method: str) -> set[str]:
    """The verbs that a site of a method serves, beside the greeting."""
    return {verb.value for verb in VERBS[family_of(method).name]}


@pytest.mark.parametrize("method", method_names())
def test_every_verb_of_every_method_has_an_entry(method: str):
    for verb in served(method) | {"hello", "leave"}:
        assert branches(method, verb), f"{method}: {verb}: add it to tests/helpers/branches.py"


def test_every_verb_is_listed_and_no_other():
    listed = {verb for table in (GREETING, *TABLES.values()) for verb in table}
    assert listed == {verb.value for verb in Verb}


def test_every_method_is_tried():
    assert {trial.method for trial in TRIALS.values()} == set(method_names())


def test_the_page_is_the_table():
    written = (ROOT / "docs" / "reference" / "branches.md").read_text()
    assert written == page(), "python tests/helpers/branches.py > docs/reference/branches.md"
