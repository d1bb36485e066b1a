"""A section of the configuration: plain keys, among them those of the domain's own dataclasses.

A field annotated `Annotated[EvolutionConfig, Flat()]` holds an `EvolutionConfig`, whose fields are
written as keys of the section: `search.population`, not `search.evolution.population`. So a
setting has one type and one default, those of the dataclass that its user takes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_serializer,
    model_validator,
)

from panas.runtime.errors import BadInput

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""Of a site."""


@dataclass(frozen=True)
class Flat:
    """Marks a dataclass whose fields are keys of the section."""

    prefix: str = ""  # of these keys
    only: tuple[str, ...] = ()  # the fields that are keys, the others keep their defaults; () all


def about(default: Any, description: str) -> Any:
    """A field: its default, and its unit, range and meaning, which `panas config` lists."""
    return Field(default, description=description)


class Section(BaseModel):
    """A frozen group of settings; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, keys: Any) -> Any:
        """Put the keys of each dataclass together, over its defaults."""
        if not isinstance(keys, dict):
            return keys
        cls._refuse_true(keys)
        gathered = dict(keys)
        for name, prefix, names in cls.flat():
            if isinstance(gathered.get(name), dict):
                raise ValueError(f"expected no table {name!r}, got one; write its keys without it")
            changes = {f: gathered.pop(prefix + f) for f in names if prefix + f in gathered}
            if changes:
                gathered[name] = asdict(cls.model_fields[name].default) | changes
        return gathered

    @classmethod
    def _refuse_true(cls, keys: dict[str, Any]) -> None:
        """Refuse true and false where a number is meant: they would pass as 1 and 0."""
        defaults = {name: info.default for name, info in cls.model_fields.items()}
        for name, prefix, names in cls.flat():
            defaults |= {prefix + f: getattr(defaults[name], f) for f in names}
        for key, value in keys.items():
            if isinstance(value, bool) and not isinstance(defaults.get(key, value), bool):
                word = str(value).lower()
                raise ValueError(f"expected a value for {key}, got {word}; give a number or a name")

    @model_serializer(mode="wrap")
    def _spread(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Write the fields of each dataclass as keys of the section."""
        spread = handler(self)
        for name, prefix, names in self.flat():
            own = spread.pop(name)
            spread |= {prefix + f: own[f] for f in names if f in own}
        return spread

    @classmethod
    def flat(cls) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Each dataclass's name in the section, the prefix of its keys, and its fields."""
        for name, info in cls.model_fields.items():
            for mark in info.metadata:
                if isinstance(mark, Flat):
                    every = tuple(f.name for f in fields(info.default))
                    yield name, mark.prefix, mark.only or every


S = TypeVar("S", bound=Section)


def validated(kind: type[S], given: dict[str, Any], origin: str) -> S:
    """Settings that fit; BadInput, in one line, if they do not.

    Args:
        kind: the section or configuration to make.
        given: its settings by name, not checked so far.
        origin: file or command that gives them, for the message.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as e:
        error = e.errors()[0]
        what = error["msg"].replace("Input should be", "to be").removeprefix("Value error, ")
        if error["type"] == "string_pattern_mismatch":  # of a name
            what = (
                "to be 1 to 64 letters, digits, dots, hyphens and underscores, a letter or digit "
                "first"
            )
        if key := ".".join(str(part) for part in error["loc"]):
            what = f"{key} {what}, got {error['input']!r:.80}"
        raise BadInput(f"{origin}: expected {what}; change it") from e


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their keys on the command line: `section.key`, or the key alone."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inside = isinstance(value, Mapping)
        flat |= {f"{name}.{key}": v for key, v in value.items()} if inside else {name: value}
    return flat
