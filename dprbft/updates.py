"""What methods exchange that have messages of their own: weights, prototypes, gradients, scores.

A `Bundle` is named arrays beside a record of plain values. A server sends one down as an `Order`, a
site sends one up as an `Update`, and both keep one as their memory between rounds. As with all
messages, decoding checks everything before it is used, and bytes that encoding again would not give
are refused. Encoding checks the same: what a site or a server may not receive is not sent.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprbft.messages import check_form, decoded, padded
from panas.runtime.errors import BadInput
from panas.runtime.store import (
    pack_tensors,
    read_bytes,
    unpack_tensors,
    write_bytes,
)

DTYPES = (torch.float32, torch.int64, torch.uint8)


@dataclass(frozen=True)
class Bundle:
    """Named arrays (float32, int64 or uint8) beside a record of plain JSON values."""

    arrays: Mapping[str, Tensor] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arrays or self.record)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The arrays whose names begin with `prefix` and a dot, without it: weights of a module."""
        start = f"{prefix}."
        return {k.removeprefix(start): v for k, v in self.arrays.items() if k.startswith(start)}

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        arrays = {name: array.clone() for name, array in self.arrays.items()}
        write_bytes(path, pack_tensors(arrays, {"record": json.dumps(self.record, sort_keys=True)}))

    @staticmethod
    def read(path: Path) -> "Bundle":
        """Read what `write` kept; BadInput if it is missing or damaged."""
        arrays, notes = unpack_tensors(read_bytes(path), path)
        return Bundle(arrays, json.loads(notes["record"]))


def named(prefix: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Arrays with a prefix and a dot before their names: what `Bundle.part` takes apart."""
    return {f"{prefix}.{name}": array.detach().cpu() for name, array in arrays.items()}


@dataclass(frozen=True)
class Order:
    """What a server sends to a site before a round (from 1 on), or after the last."""

    round: int
    bundle: Bundle

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        return _encoded("order", {"round": self.round}, self.bundle)

    @staticmethod
    def from_bytes(content: bytes) -> "Order":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        about, bundle = _decoded(content, "order", ("round",))
        order = Order(about["round"], bundle)
        check_form(order.to_bytes(), content, "order")
        return order


@dataclass(frozen=True)
class Update:
    """What a site sends in a round; `receipts` are the charges that cover it, of its ledger."""

    site: int
    round: int
    bundle: Bundle
    receipts: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        about = {"round": self.round, "site": self.site, "receipts": list(self.receipts)}
        return _encoded("update", about, self.bundle)

    @staticmethod
    def from_bytes(content: bytes) -> "Update":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        about, bundle = _decoded(content, "update", ("round", "site"))
        receipts = about.get("receipts")
        if not isinstance(receipts, list) or not all(isinstance(r, str) for r in receipts):
            raise BadInput("expected receipts as texts in an update, got others")
        update = Update(about["site"], about["round"], bundle, tuple(receipts))
        check_form(update.to_bytes(), content, "update")
        return update


def _encoded(kind: str, about: Mapping[str, Any], bundle: Bundle) -> bytes:
    for name, array in bundle.arrays.items():
        if array.dtype not in DTYPES:
            raise BadInput(f"expected float32, int64 or uint8 in an {kind}, got {array.dtype}")
        if array.is_floating_point() and not bool(torch.isfinite(array).all()):
            raise BadInput(f"expected finite numbers for {name!r:.60} in an {kind}, got others")
    whole = {"type": kind, **about, "record": bundle.record}
    try:
        text = padded(json.dumps(whole, sort_keys=True, allow_nan=False))
    except (ValueError, RecursionError) as e:
        raise BadInput(f"expected finite numbers in the record of an {kind}, got others") from e
    arrays = {name: array.clone() for name, array in bundle.arrays.items()}
    return pack_tensors(arrays, {"message": text})


def _decoded(content: bytes, kind: str, numbers: tuple[str, ...]) -> tuple[dict[str, Any], Bundle]:
    arrays, about = decoded(content, kind)
    if any(type(about.get(name)) is not int for name in numbers):
        raise BadInput(f"expected whole numbers for {', '.join(numbers)} in an {kind}, got others")
    if not isinstance(about.get("record"), dict):
        raise BadInput(f"expected a record in an {kind}, got none")
    return about, Bundle(arrays, about["record"])
