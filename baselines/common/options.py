"""A method's own settings: `federation.options` of a run, as the method's model reads them."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from panas.runtime.errors import BadInput

S = TypeVar("S", bound=Section)
UNPROTECTED: Mapping[str, Any] = {"epsilon": float("inf"), "allow_unprotected": True}
"""`privacy` of a run as published, where nothing bounds what leaves."""


def options_of(config: RunConfig, kind: type[S]) -> S:
    """The settings of a run's method; BadInput, in one line, names the key that does not fit."""
    try:
        return kind.model_validate(config.federation.options)
    except ValidationError as e:
        error = e.errors()[0]
        key = ".".join(str(p) for p in ("federation.options", *error["loc"]))
        if error["type"] == "extra_forbidden":
            known = ", ".join(kind.model_fields)
            raise BadInput(
                f"expected options of {config.federation.method} ({known}), got {key}; change it"
            ) from e
        message = error["msg"].removeprefix("Value error, ").replace("Input should be", "to be")
        raise BadInput(f"expected {key} {message}, got {error['input']!r:.60}; change it") from e
