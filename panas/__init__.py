"""One client alone: data, architecture search, hyperparameter search, training and privacy.

`panas.search` and `panas.tune` are the two to start with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panas.search import search
    from panas.tuned import tune

__all__ = ["search", "tune"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, and the libraries that it needs, only then."""
    if name == "search":
        return import_module("panas.search")
    if name == "tune":
        return import_module("panas.tuned").tune
    raise AttributeError(f"module 'panas' has no attribute {name!r}")
