"""What a server sends is checked whole, before a site reads a sample or charges anything for it.

A method's `check_order` says what its orders look like, in terms of the network or memory that the
site has already. All of it is public: a refusal tells nothing of samples, and costs nothing.

Numbers are at most `LARGEST_WEIGHT`, far beyond what a server of this project sends: a site sends
no larger ones either (`common.training`), and what is averaged stays within. A network of such
weights may still overflow within: then a sample's gradient counts as zero
(`panas.privacy.gradients.private`), or the round's training is dropped, and the round is sent.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from baselines.common.averaging import check_arrays
from dprbft.messages import LARGEST_WEIGHT
from panas.runtime.errors import BadInput


def check_weights(arrays: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """Refuse arrays of other names, shapes or types than `like`, or with numbers too large."""
    check_arrays(arrays, like, "an order")
    if not are_bounded(arrays):
        raise BadInput(
            f"expected numbers of at most {LARGEST_WEIGHT:g} in an order, got larger; start the "
            "run again with a lower learning rate"
        )


def are_bounded(arrays: Mapping[str, Tensor]) -> bool:
    """Whether all numbers are finite, and no larger than a server's may be."""
    floats = [a for a in arrays.values() if a.is_floating_point()]
    return all(bool((a.abs() <= LARGEST_WEIGHT).all()) for a in floats)  # NaN is not


def check_record(record: Mapping[str, Any], **kinds: type | tuple[type, ...]) -> None:
    """Refuse a record that does not hold these names alone, each a value of its kind."""
    if record.keys() != kinds.keys():
        raise BadInput(
            f"expected {', '.join(kinds) or 'nothing'} in the record of an order, got others"
        )
    for name, kind in kinds.items():
        types = kind if isinstance(kind, tuple) else (kind,)
        if type(record[name]) not in types:
            raise BadInput(
                f"expected {name} as {types[0].__name__} in an order, got {record[name]!r:.40}"
            )


def check_rows(rows: list[Any], most: int) -> None:
    """Refuse what is no list of at most so many records."""
    if len(rows) > most or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"expected at most {most} records in the list of an order, got others")


def are_whole(values: Any) -> bool:
    """Whether this is a list of whole numbers."""
    return isinstance(values, list) and all(type(value) is int for value in values)


def check_flags(array: Tensor) -> None:
    """Refuse numbers that are neither 0 nor 1."""
    if bool((array > 1).any()):
        raise BadInput("expected 0 or 1 for each class in an order, got others")
