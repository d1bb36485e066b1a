"""Releases in fewer bytes: how far numbers move, and that encoding again changes nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panas.privacy.release.compression import (
    BLOCK,
    COMPRESSIONS,
    EXPONENTS,
    Compression,
    decode,
    encode,
    rounded,
    rounding,
)

FORMS: list[Compression] = [c for c in COMPRESSIONS if c != "none"]
NUMBERS = st.floats(-(2.0**40), 2.0**40, width=32)


@given(st.lists(NUMBERS, max_size=3 * BLOCK), st.sampled_from(FORMS))
def test_numbers_move_no_further_than_the_bound_and_only_once(numbers: list[float], form: str):
    exact = torch.tensor(numbers)
    found = rounded({"x": exact}, form)["x"]  # type: ignore[arg-type]
    bound = rounding(found, form)  # type: ignore[arg-type]
    assert bool(((found.double() - exact.double()).abs() <= bound).all())
    again = encode({"x": found}, form)  # type: ignore[arg-type]
    first = encode({"x": exact}, form)  # type: ignore[arg-type]
    assert all(again[name].numpy().tobytes() == first[name].numpy().tobytes() for name in first)


@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_what_a_loop_makes_of_it(form: Compression):
    exact = torch.randn(3, 2 * BLOCK, generator=torch.Generator().manual_seed(1)) * 1e3
    found = rounded({"x": exact}, form)["x"].flatten().tolist()
    for at in range(0, exact.numel(), BLOCK):
        block = exact.flatten()[at : at + BLOCK].tolist()
        bits = {"int8": 7, "float16": 15}[form]
        step = 2.0 ** (int(np.frexp(max(map(abs, block)))[1]) - bits)
        for number, got in zip(block, found[at : at + BLOCK], strict=True):
            in_steps = number / step
            wanted = round(in_steps) if form == "int8" else float(np.float16(in_steps))
            assert got == wanted * step


@pytest.mark.parametrize(("form", "least"), [("float16", 1.85), ("int8", 3.5)])
def test_bytes_are_saved(form: Compression, least: float):
    arrays = {"A": torch.randn(4000), "B": torch.randn(10, 80), "y": torch.arange(5)}
    before, after = (
        sum(a.numel() * a.element_size() for a in found.values())
        for found in (arrays, encode(arrays, form))
    )
    assert before / after > least
    assert torch.equal(rounded(arrays, form)["y"], arrays["y"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update({"x" + EXPONENTS: torch.zeros(9, dtype=torch.int16)}),
        lambda a: a.update({"x" + EXPONENTS: a["x" + EXPONENTS].int()}),
        lambda a: a.update({"x": a["x"].float()}),
    ],
)
def test_arrays_that_do_not_fit_are_refused(form: Compression, change):
    arrays = encode({"x": torch.ones(40)}, form)
    change(arrays)
    with pytest.raises(ValueError, match="expected"):
        decode(arrays, form)
