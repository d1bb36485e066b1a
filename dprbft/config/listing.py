"""Every setting of a run: its value, its default, what it means, and whether somebody set it."""

import types
import typing
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from dprbft.config.files import build_config, with_table
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from panas.runtime.faces import field_comments

OF_HUB = ("federation.remote", "federation.facts")
"""Settings that a hub fills in from its own folder."""

Value = str | int | float | bool | list[Any] | dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, as `--set key=value` names it."""

    key: str
    value: Value  # None: not set, and nothing stands in its place
    default: Value  # of the preset
    kind: str  # what a value is: a type, or the choices
    about: str  # unit, range and meaning; "" where the name says it all
    is_set: bool  # by a file, or on the command line

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, infinity as a word."""
        return {k: "infinity" if v == float("inf") else v for k, v in asdict(self).items()}


def list_settings(given: dict[str, Any]) -> list[Setting]:
    """All settings that the method reads, of which `given` (nested, as in TOML) are set.

    BadInput where a run with these settings would be refused.
    """
    given = with_table(given)
    built = build_config(given)
    config, family = built.model_dump(mode="json"), built.federation.family
    preset = {"preset": given["preset"]} if "preset" in given else {}
    defaults = build_config(preset).model_dump(mode="json")
    settings = []
    for key, kind, about in _declared():
        if not family.reads(key) or key in OF_HUB:
            continue
        section, _, name = key.rpartition(".")
        below = given.get(section, {}) if section else given
        current, usual = (d[section] if section else d for d in (config, defaults))
        settings.append(
            Setting(
                key=key,
                value=_plain(current[name]),
                default=_plain(usual[name]),
                kind=kind,
                about=about,
                is_set=isinstance(below, dict) and name in below,
            )
        )
    return settings


def _declared() -> Iterator[tuple[str, str, str]]:
    """Key, kind and meaning of every setting, in the order of the configuration."""
    for name, info in RunConfig.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            for key, kind, about in _of_section(section):
                yield f"{name}.{key}", kind, about
        else:
            yield name, *_field(info)


def _of_section(section: type[Section]) -> Iterator[tuple[str, str, str]]:
    flat = {name: (prefix, names) for name, prefix, names in section.flat()}
    for name, info in section.model_fields.items():
        if name not in flat:
            yield name, *_field(info)
            continue
        prefix, names = flat[name]
        owner: type = type(info.default)
        hints, inside = typing.get_type_hints(owner), field_comments(owner)
        for field in fields(owner):
            if field.name in names:
                about = "; ".join(t for t in (info.description, inside.get(field.name)) if t)
                yield prefix + field.name, _kind(hints[field.name]), about


def _field(info: FieldInfo) -> tuple[str, str]:
    bounds = ((BOUNDS[type(m)], m) for m in _bounds(info) if type(m) in BOUNDS)
    ranges = ", ".join(f"{words} {getattr(m, name)}" for (name, words), m in bounds)
    return _kind(info.annotation), "; ".join(t for t in (ranges, info.description) if t)


def _bounds(info: FieldInfo) -> Iterator[object]:
    """The bounds of a field, or of the numbers in it."""
    yield from info.metadata
    for inner in get_args(info.annotation):
        if get_origin(inner) is Annotated:
            yield from (m for field in get_args(inner)[1:] for m in field.metadata)


BOUNDS = {Ge: ("ge", "at least"), Gt: ("gt", "above"), Le: ("le", "at most"), Lt: ("lt", "below")}


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inside[0])
    if origin is Literal:
        return "one of " + ", ".join(str(x) for x in inside)
    if origin in (Union, types.UnionType):
        some = dict.fromkeys(k for t in inside if t is not type(None) and (k := _kind(t)))
        return " or ".join([*some, *(["none"] if type(None) in inside else [])])
    if origin is tuple:
        one = _kind(inside[0])
        return f"list of {one.removeprefix('one of ')}{'' if one.startswith('one of') else 's'}"
    if origin is dict:
        return f"table of {_kind(inside[1])}"
    return {int: "whole number", float: "number", bool: "true or false", str: "text"}.get(
        annotation, ""
    )


def _plain(value: Any) -> Value:
    """A value as a TOML file takes it."""
    return float("inf") if value == "Infinity" else value
