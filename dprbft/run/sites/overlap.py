"""Samples that two sites of a run have: each site charges them to a budget of its own."""

import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np
from jaxtyping import UInt64

from panas.data.load import REPEATED
from panas.runtime.errors import BadInput


def tell_of_overlap(values: Mapping[str, UInt64[np.ndarray, "_"]], *, strict: bool) -> None:
    """Warn where a site has samples of an earlier one; with `strict`, BadInput.

    `values` are the numbers of each site's samples by their values (`panas.data.samples`), by the
    site's name. Where more than a twentieth of a site's own samples repeat, as rows of few columns
    do, equal ones may belong to different people, and the site is left out.
    """
    first: dict[int, str] = {}
    for name, own in values.items():
        numbers = own.tolist()
        if len(own) - len(set(numbers)) > REPEATED * len(own):
            continue
        theirs = Counter(first[number] for number in numbers if number in first)
        for other, count in theirs.items():
            if strict:
                raise BadInput(
                    f"expected samples that one site alone has, as privacy.strict asks, got "
                    f"{count} of {name} that {other} has too; take them out of one of the two"
                )
            be = "sample is" if count == 1 else "samples are"
            warnings.warn(
                f"{count} of {name}'s {be} also {other}'s: what is promised for them is both "
                "sites' budgets together",
                stacklevel=2,
            )
        first = dict.fromkeys(numbers, name) | first
