"""Fewer bits for the numbers of a release, after its noise: post-processing, so no privacy is paid.

`BLOCK` numbers after another share a step, a power of two by the largest of them, and each number
is rounded to a multiple of it (int8) or to 11 significant bits (float16). Powers of two decode
exactly, so that encoding again what was decoded gives the same bytes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int16
from torch import Tensor
from torch.nn.functional import pad

Compression = Literal["none", "float16", "int8"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
BLOCK = 32
EXPONENTS = ".exponents"
"""Ends the name of the array (blocks,), int16, with the exponent of each block's step."""


@dataclass(frozen=True)
class _Form:
    dtype: torch.dtype
    bits: int  # significant ones
    top: int  # the numbers of a block are below 2^top steps


_FORMS: dict[str, _Form] = {
    "float16": _Form(torch.float16, bits=11, top=15),
    "int8": _Form(torch.int8, bits=7, top=7),
}


def compression_named(name: object) -> Compression:
    """The one of this name; ValueError if there is none."""
    for known in COMPRESSIONS:
        if name == known:
            return known
    raise ValueError(f"expected {', '.join(COMPRESSIONS)} as compression")


def encode(arrays: Mapping[str, Tensor], compression: Compression) -> dict[str, Tensor]:
    """Arrays as they cross the wire; whole numbers stay as they are."""
    results = dict(arrays)
    if compression == "none":
        return results
    form = _FORMS[compression]
    for name, array in arrays.items():
        if array.is_floating_point():
            blocks = _blocks(array)
            e = _exponents(blocks, form)
            steps = torch.ldexp(blocks, -e[:, None]).flatten()[: array.numel()]
            steps = steps.round() if form.dtype is torch.int8 else steps
            results[name] = steps.to(form.dtype).reshape(array.shape)
            results[name + EXPONENTS] = e
    return results


def decode(arrays: Mapping[str, Tensor], compression: Compression) -> dict[str, Tensor]:
    """What `encode` gave, in float32; ValueError if arrays do not fit each other or the form.

    Arrays without exponents stay as they are: `encode` gives other bytes of them.
    """
    if compression == "none":
        return dict(arrays)
    form, result = _FORMS[compression], {}
    for name, array in arrays.items():
        e = arrays.get(name + EXPONENTS)
        if e is not None:
            shape = (math.ceil(array.numel() / BLOCK),)
            if array.dtype != form.dtype or e.dtype != torch.int16 or e.shape != shape:
                raise ValueError(f"expected {compression} and exponents of {BLOCK} numbers each")
            values = torch.ldexp(_blocks(array), e.double()[:, None])
            result[name] = values.flatten()[: array.numel()].reshape(array.shape).float()
        elif not name.endswith(EXPONENTS):
            result[name] = array
    return result


def rounded(arrays: Mapping[str, Tensor], compression: Compression) -> dict[str, Tensor]:
    """Arrays as their receiver decodes them."""
    return decode(encode(arrays, compression), compression)


def rounded_like(
    values: Float[Tensor, "..."], like: Float[Tensor, "..."], compression: Compression
) -> Float[Tensor, "..."]:
    """Values rounded by the steps of a decoded array, number by number; float64.

    Args:
        values: exact numbers, of the shape of `like`.
        like: the array as it was decoded, which shows how coarse each step is.
        compression: how it was encoded.
    """
    form, e = _FORMS[compression], _exponents(_blocks(like), _FORMS[compression])
    each = e.repeat_interleave(BLOCK)[: like.numel()].reshape(like.shape)
    steps = torch.ldexp(values.double(), -each)
    steps = steps.round() if form.dtype is torch.int8 else steps.to(form.dtype).double()
    return torch.ldexp(steps, each)


def rounding(array: Float[Tensor, "..."], compression: Compression) -> Float[Tensor, "..."]:
    """How far each number of a decoded array lies from what was encoded, at most; float64."""
    if compression == "none":
        return torch.zeros_like(array, dtype=torch.float64)
    blocks, form = _blocks(array), _FORMS[compression]
    if form.dtype is torch.int8:
        parts, relative = torch.full_like(blocks, 0.5), 0.0
    else:  # and half of the least number that there is
        parts, relative = torch.full_like(blocks, 2.0**-25), 2.0**-form.bits
    most = torch.ldexp(parts, _exponents(blocks, form)[:, None]) + relative * blocks.abs()
    return most.flatten()[: array.numel()].reshape(array.shape)


def _blocks(array: Tensor) -> Float[Tensor, "blocks numbers"]:
    flat = array.double().flatten()
    return pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)


def _exponents(blocks: Float[Tensor, "blocks numbers"], form: _Form) -> Int16[Tensor, "blocks"]:
    """Of the steps: as if the largest number of a block had been rounded already."""
    mantissa, exponent = torch.frexp(blocks.abs().amax(dim=1))
    carried = (mantissa * 2**form.bits).round() == 2**form.bits
    return (exponent + carried - form.top).to(torch.int16)
