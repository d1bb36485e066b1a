"""One site alone: data, architecture search, hyperparameter search, training and privacy.

`panas.search`, `panas.tune` and `panas.load` are the three to start with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panas.api import search
    from panas.tuned_api import tune

_HOMES = {
    "search": "panas.api",
    "tune": "panas.tuned_api",
}
"""Where each public name is defined."""

__all__ = ["search", "tune"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and the libraries it needs, only then."""
    if name not in _HOMES:
        raise AttributeError(f"module 'panas' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
