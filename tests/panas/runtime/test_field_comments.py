"""What the source says of fields, and `help` shows of public settings."""

import inspect
from dataclasses import dataclass

import panas
from panas.runtime.field_comments import field_comments


@dataclass
class Planted:
    """Fields with each kind of comment."""

    a: int = 0  # beside
    # above,
    # in two lines
    b: int = 0
    c: int = 0
    """Below,
    in two lines."""
    d: str = "# no comment"


def test_comments_beside_above_and_below():
    assert field_comments(Planted) == {
        "a": "beside",
        "b": "above, in two lines",
        "c": "Below, in two lines.",
    }


def test_help_explains_the_fields_of_public_settings_once():
    for _ in range(2):
        told = inspect.getdoc(panas.EvolutionConfig) or ""
        assert told.count("\nFields:\n") == 1
    assert "    mutation: Probability p_m that a child is mutated, in [0, 1]." in told
    assert "    sensitivity: L2, under" in (inspect.getdoc(panas.Charge) or "")
