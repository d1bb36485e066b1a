"""Whole numbers of few bits, kept without gaps: eight weights of 7 bits take seven bytes."""

import math

import numpy as np
import torch
from jaxtyping import Int8, UInt8
from torch import Tensor

BITS = 7
MOST = 2 ** (BITS - 1) - 1  # on either side of 0


def packed(values: Int8[Tensor, "..."]) -> UInt8[Tensor, " b"]:
    """Numbers in [-MOST, MOST] as bytes, `BITS` bits each; the last byte is filled with 0."""
    raised = (values.cpu().numpy().reshape(-1, 1) + MOST).astype(np.uint8)
    return torch.from_numpy(np.packbits(np.unpackbits(raised, axis=1)[:, 8 - BITS :]))


def unpacked(kept: UInt8[Tensor, " b"], shape: tuple[int, ...]) -> Int8[Tensor, "..."]:
    """What `packed` was given; RuntimeError for bytes of another number of values."""
    count = math.prod(shape)
    if len(kept) != packed_bytes(count):
        raise RuntimeError(f"expected {packed_bytes(count)} bytes, got {len(kept)}")
    bits = np.unpackbits(kept.cpu().numpy(), count=count * BITS).reshape(count, BITS)
    raised = np.packbits(np.pad(bits, ((0, 0), (8 - BITS, 0))), axis=1).reshape(shape)
    return torch.from_numpy((raised.astype(np.int16) - MOST).astype(np.int8))


def packed_bytes(count: int) -> int:
    """Of so many numbers."""
    return -(-count * BITS // 8)
