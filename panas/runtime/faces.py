"""A package's public names, each imported when first asked for: `import panas` loads no library.

Of dataclasses, `help` then shows what their source says of each field.
"""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from panas.runtime.field_comments import explain_fields


def face(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `homes` are the modules below it that define its public
    names."""

    def lookup(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        result = getattr(import_module(f"{package}.{homes[name]}"), name)
        if isinstance(result, type) and is_dataclass(result):
            explain_fields(result)
        return result

    return lookup
