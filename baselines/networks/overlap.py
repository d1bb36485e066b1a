"""Weights that networks of different size share: what a smaller one holds of a larger one's.

Of an array with n entries along an axis the smaller network holds k <= n: the first k along the
axes of channels (0 and 1), the middle k along those of a kernel (2 and beyond).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from baselines.common.averaging import check_arrays


def window(whole: Sequence[int], part: Sequence[int]) -> tuple[slice, ...]:
    """Where in an array of one shape an array of another lies."""
    starts = [
        0 if axis < 2 else (n - k) // 2 for axis, (n, k) in enumerate(zip(whole, part, strict=True))
    ]
    return tuple(slice(start, start + k) for start, k in zip(starts, part, strict=True))


def cut(whole: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of the weights that a network of the names and shapes of `like` holds of `whole`."""
    return {
        name: whole[name][window(whole[name].shape, part.shape)].contiguous().clone()
        for name, part in like.items()
    }


class OverlapMean:
    """The weighted mean of each entry of `whole` over the networks that hold it, in 64 bits."""

    def __init__(self, whole: Mapping[str, Tensor]) -> None:
        self._whole = whole
        self._sums = {k: torch.zeros(t.shape, dtype=torch.float64) for k, t in whole.items()}
        self._weights = {k: torch.zeros_like(t) for k, t in self._sums.items()}

    def add(self, arrays: Mapping[str, Tensor], like: Mapping[str, Tensor], weight: float) -> None:
        """Add a network with a weight above 0; BadInput if it is not of the shapes of `like`."""
        check_arrays(arrays, like)
        for name, array in arrays.items():
            place = window(self._whole[name].shape, array.shape)
            self._sums[name][place] += weight * array.double()
            self._weights[name][place] += weight

    def result(self) -> dict[str, Tensor]:
        """The means; entries that no network held are as they were."""
        found = dict[str, Tensor]()
        for name, old in self._whole.items():
            weight = self._weights[name]
            mean = self._sums[name] / weight.clamp(min=torch.finfo(torch.float64).tiny)
            new = torch.where(weight > 0, mean, old.double())
            found[name] = (new if old.is_floating_point() else new.round()).to(old.dtype)
        return found
