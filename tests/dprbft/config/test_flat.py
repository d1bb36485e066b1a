"""Sections whose keys are those of a dataclass of the domain."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import ValidationError

from dprbft.config.flat import Flat, Section


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A dataclass as the domain has them."""

    steps: int = 3
    length: float | None = 0.5
    left: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"expected steps of at least 1, got {self.steps}; raise them")


class Sport(Section):
    """Two of them, and a key of its own."""

    name: str = "walking"
    walk: Annotated[Walk, Flat()] = Walk(steps=4)
    run: Annotated[Walk, Flat("run_", only=("steps", "length"))] = Walk(left=True)


def test_the_fields_of_a_dataclass_are_keys_over_its_defaults():
    sport = Sport.model_validate({"length": 2, "run_steps": 9})
    assert sport.walk == Walk(steps=4, length=2.0)
    assert sport.run == Walk(steps=9, left=True)


def test_what_is_written_reads_back_equal():
    sport = Sport.model_validate({"length": None, "run_length": 1})
    written = sport.model_dump()
    assert written == {
        "name": "walking",
        "steps": 4,
        "length": None,
        "left": False,
        "run_steps": 3,
        "run_length": 1.0,
    }
    assert Sport.model_validate(written) == sport
    assert Sport.model_validate_json(sport.model_dump_json()) == sport
    assert "length" not in sport.model_dump(exclude_none=True)


@pytest.mark.parametrize(
    "keys", [{"run_left": True}, {"walk": {"steps": 3}}, {"stride": 1}, {"steps": 0}]
)
def test_other_keys_and_what_the_dataclass_refuses_are_refused(keys: dict):
    with pytest.raises(ValidationError):
        Sport.model_validate(keys)
