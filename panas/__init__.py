"""One site alone: data, architecture search, hyperparameter search, training and privacy.

`panas.search`, `panas.tune` and `panas.load` are the three to start with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panas.api import load, search, tune

_HOMES = dict.fromkeys(("load", "search", "tune"), "panas.api")
"""Where each public name is defined."""

__all__ = ["load", "search", "tune"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and the libraries it needs, only then."""
    if name not in _HOMES:
        raise AttributeError(f"module 'panas' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
