"""Arguments and fields of a wrong type are named, and `help` shows what is said of fields."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pytest

import panas
from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger.charge import Charge
from panas.runtime.errors import BadInput
from panas.runtime.faces import field_comments
from panas.runtime.typed import check_fields, checked


class Unasked(Protocol):
    """A Protocol that no object can be asked for."""

    def __call__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    share: float = 0.5
    times: int = 1
    kind: Literal["a", "b"] = "a"
    menu: tuple[int, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)
    on: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


@checked
def use(
    data: Any,
    *,
    config: Settings | None = None,
    out: str | Path | None = None,
    callback: Callable[[int], None] | None = None,
    settings: Mapping[str, int] | None = None,
    how: Unasked | None = None,
) -> Any:
    return data


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"config": {"share": 1}}, r"config as Settings or None, got dict; give Settings\(...\)"),
        ({"out": 3}, "out as a text or Path or None, got 3; change it"),
        ({"callback": 3}, "callback as a function or None"),
        ({"settings": [1]}, r"settings as a mapping or None, got \[1\]"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], says: str):
    with pytest.raises(BadInput, match=says):
        use(1, **given)


def test_what_fits_goes_through_and_numbers_of_other_libraries_are_numbers():
    assert use(
        {"any": 1}, out="a", callback=print, settings={}, config=Settings(), how=object()
    ) == {"any": 1}
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'data'"):
        use()  # type: ignore[call-arg]
    settings = Settings(share=np.float32(0.5), times=np.int64(3), pair=(0, 1), menu=(np.int8(1),))
    assert settings.times == 3
    assert Settings(share=2).share == 2


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("share", "x", "share as a number, got 'x'"),
        ("share", True, "a number, got True"),
        ("times", 1.5, "times as a whole number, got 1.5"),
        ("kind", "c", "kind as 'a' or 'b', got 'c'"),
        ("menu", 16, r"menu as a tuple \(a whole number, ...\), got 16"),
        ("menu", (16, "x"), "menu as a tuple"),
        ("pair", (1.0,), r"pair as a tuple \(a number, a number\), got \(1.0,\)"),
        ("on", 1, "on as True or False, got 1"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, says: str):
    with pytest.raises(BadInput, match=says):
        Settings(**{field: value})


def test_a_charge_of_an_unknown_phase_is_refused():
    facts = {"mechanism": "m", "recipient": "server", "sensitivity": 1.0}
    assert Charge(event=Gaussian(1.0), phase="search", **facts)
    with pytest.raises(BadInput, match="'training' or 'release' or 'search', got 'x'"):
        Charge(event=Gaussian(1.0), phase="x", **facts)


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


def test_comments_beside_above_and_below_are_shown_once_by_help():
    assert field_comments(Planted) == {
        "a": "beside",
        "b": "above, in two lines",
        "c": "Below, in two lines.",
    }
    for _ in range(2):
        doc = inspect.getdoc(panas.EvolutionConfig) or ""
        assert doc.count("\nFields:\n") == 1
    assert "    mutation: Probability p_m that a child is mutated, in [0, 1]." in doc
    assert "    sensitivity: L2, under" in (inspect.getdoc(panas.Charge) or "")
