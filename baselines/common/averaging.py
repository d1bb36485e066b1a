"""Averages of weights by name, one site at a time: memory does not grow with the sites."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from panas.runtime.errors import BadInput

MOST = 1e300  # of a number


class Mean:
    """A weighted mean of arrays by name, one set at a time, in 64 bits.

    All sets have the names, shapes and types of `like`, or of the first one without it.
    """

    def __init__(self, like: Mapping[str, Tensor] | None = None) -> None:
        self._like = like
        self._sums: dict[str, Tensor] = {}
        self._weight = 0.0

    def add(self, arrays: Mapping[str, Tensor], weight: float) -> None:
        """Add a set; BadInput for other arrays, or a weight that is not finite and above 0."""
        if not (math.isfinite(weight) and weight > 0):
            raise BadInput(f"expected a finite weight above 0 of an update, got {weight}")
        if self._like is None:
            self._like = dict(arrays)
        check_arrays(arrays, self._like)
        for name, array in arrays.items():
            part = weight * array.double()
            self._sums[name] = self._sums[name] + part if name in self._sums else part
        self._weight += weight

    def result(self) -> dict[str, Tensor]:
        """The mean, of the arrays' own types, whole numbers rounded; empty if nothing was added."""
        kinds = {name: array.dtype for name, array in (self._like or {}).items()}
        return {name: _as(s / self._weight, kinds[name]) for name, s in self._sums.items()}


def check_arrays(
    arrays: Mapping[str, Tensor], like: Mapping[str, Tensor], what: str = "an update"
) -> None:
    """Refuse arrays of other names, shapes or types than expected.

    Args:
        arrays: from a message.
        like: whose names, shapes and types count alone.
        what: name of the message in the error.
    """
    if arrays.keys() != like.keys():
        missing = sorted(like.keys() ^ arrays.keys())[0]
        raise BadInput(f"expected {what} of {len(like)} arrays, got others, as {missing!r:.60}")
    for name, array in arrays.items():
        model = like[name]
        if (array.shape, array.dtype) != (model.shape, model.dtype):
            raise BadInput(
                f"expected {name!r:.60} of shape {(*model.shape,)} and {model.dtype} in "
                f"{what}, got {(*array.shape,)} and {array.dtype}"
            )


def number_in(record: Mapping[str, Any], name: str) -> float:
    """A number of an update's record; BadInput if it is none, or not finite."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        raise BadInput(
            f"expected a finite number {name!r} in an update's record, got {value!r:.60}; send one"
        )
    return float(value)


def weight_in(record: Mapping[str, Any], name: str) -> float:
    """A number above 0 of an update's record, with which it counts; BadInput if it is none."""
    weight = number_in(record, name)
    if not weight > 0:
        raise BadInput(
            f"expected {name!r} above 0 in an update's record, got {weight}; send a larger one"
        )
    return weight


def _as(mean: Tensor, kind: torch.dtype) -> Tensor:
    return (mean if kind.is_floating_point else mean.round()).to(kind)
