"""A second device in this process: it computes like the CPU, and refuses tensors of the other one.

Where no GPU is at hand, it shows that a whole computation takes place on the device that it was
given: an operation on tensors of two devices fails, as it would on a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

TYPE = "lazy"
NAME = f"{TYPE}:0"
DEVICE = torch.device(NAME)
_ANY_DEVICE = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class TwoDevices(RuntimeError):
    """An operation had tensors of both devices."""


class OnAccelerator(torch.Tensor):
    """A tensor of the device; `held` has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnAccelerator":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs))
        self.operations += any(isinstance(a, OnAccelerator) for a in leaves)
        return _run(func, args, kwargs or {})


@contextmanager
def accelerator() -> Iterator[_Mode]:
    """Within the block the device is there; yields what counts its operations."""
    with _Mode() as mode:
        yield mode


def _run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
    there = [t for t in tensors if isinstance(t, OnAccelerator)]
    # A single number of the CPU may meet any tensor, and an index may stay on the CPU.
    others = [t for t in tensors if not isinstance(t, OnAccelerator) and t.dim()]
    if there and others and func not in _ANY_DEVICE and "index" not in func.__name__:
        raise TwoDevices(f"{func} of tensors on {DEVICE} and on the CPU")
    device = kwargs.get("device")
    asked = None if device is None else torch.device(device).type
    if asked == TYPE:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    made = func(*_held(args), **_held(kwargs))
    if func is torch.ops.aten.copy_.default:
        return args[0]
    if asked not in (None, TYPE) or (asked is None and not there):
        return made
    known = {id(t.held): t for t in there}
    return tree_map_only(Tensor, lambda t: _moved(t, known), made)


def _moved(made: Tensor, known: Mapping[int, OnAccelerator]) -> Tensor:
    same = known.get(id(made))  # an operation in place gives its argument back
    return OnAccelerator(made) if same is None else same


def _held(of: Any) -> Any:
    return tree_map_only(OnAccelerator, lambda t: t.held, of)
