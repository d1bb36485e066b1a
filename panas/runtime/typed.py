"""Arguments and settings of a wrong type, refused at the boundary in one sentence.

Types that say nothing here, as `Any` or a Protocol that cannot be asked, are taken as they are.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from panas.runtime.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")

NUMBERS: Mapping[Any, type] = {int: Integral, float: Real}
WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    type(None): "None",
    Callable: "a function",
    tuple: "a tuple",
    Mapping: "a mapping",
}
SHOWN = (str, int, float, tuple, list)
LONGEST = 60  # characters of a wrong value, at most, in a message


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function that refuses arguments of another type than its annotations name."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            arguments = {}  # the function itself says what is missing
        _check(arguments, _hints(function))
        return function(*args, **kwargs)

    return call


def check_fields(settings: object) -> None:
    """Refuse a dataclass with a field of a type that its annotation does not name."""
    kind: Callable[..., Any] = type(settings)
    _check(vars(settings), _hints(kind))


@cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner)


def _check(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if name in hints and not _is(value, hints[name]):
            got = repr(value) if isinstance(value, SHOWN) else type(value).__name__
            kinds: tuple[Any, ...] = (hints[name], *get_args(hints[name]))
            made = next(
                (kind.__name__ for kind in kinds if hasattr(kind, "__dataclass_fields__")), None
            )
            remedy = f"give {made}(...)" if made else "change it"
            raise BadInput(
                f"expected {name} as {_words(hints[name])}, got {got[:LONGEST]}; {remedy}"
            )


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is(value, each) for each in args)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if origin is tuple:
        return isinstance(value, tuple | list) and _are(value, args)
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    if origin is not None or isinstance(hint, type):
        try:
            return isinstance(value, origin or hint)
        except TypeError:  # a Protocol that cannot be asked
            return True
    return True


def _are(values: tuple[Any, ...] | list[Any], hints: tuple[Any, ...]) -> bool:
    """Whether the items of a tuple are of their types."""
    if hints[1:] == (...,):
        hints = hints[:1] * len(values)
    return len(values) == len(hints) and all(map(_is, values, hints))


def _words(hint: Any) -> str:
    """A type in words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_words, args))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is tuple:
        each = [_words(part) for part in args if part is not ...]
        return f"a tuple ({', '.join(each)}{', ...' if ... in args else ''})"
    kind = origin or hint
    return WORDS.get(kind, getattr(kind, "__name__", str(kind)))
