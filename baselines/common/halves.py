"""A site's training samples in two disjoint parts: one for weights, one for the architecture.

The ledger knows them as "train" and "search": charges on one are none on the other, and the total
of both is that of the worse (parallel composition). That holds since a sample's part depends on the
sample and the site's key alone.
"""

import hashlib
from typing import NamedTuple

from dprbft.site.counting import count_units
from dprbft.site.data import key_of
from dprbft.site.site import Site
from panas.data.samples import Samples
from panas.data.splits import hashed_split
from panas.runtime.errors import BadInput


class Halves(NamedTuple):
    """The two parts; every training sample is in one."""

    weights: Samples  # "train" in the ledger
    architecture: Samples  # "search" in the ledger


def planned_halves(site: Site, share: float = 0.5) -> tuple[int, int]:
    """Units of both parts to plan with, public numbers: the first part's are counted with noise,
    once, and the second has them in proportion to its share."""
    if not site.budget.private:
        parts = halves(site, share)
        return max(1, parts.weights.units), max(1, parts.architecture.units)
    if (known := site.declared_units) is not None:
        return max(1, round(known * (1 - share))), max(1, round(known * share))
    first = count_units(site, halves(site, share).weights)
    return first, max(1, round(first * share / (1 - share)))


def halves(site: Site, share: float = 0.5) -> Halves:
    """Each unit is for the architecture by a chance of `share`, in (0, 1).

    BadInput, in a run of this machine, if a part is left without samples: among machines a refusal
    would tell of their number, and an empty part serves.

    Privacy: one unit more is one more in one part, and moves no other.
    """
    # A key of its own: the samples that the first split left here have hashes of one range only.
    key = hashlib.blake2b(b"halves", key=key_of(site.paths)).digest()
    parts = hashed_split(site.data.train, search=share, validation=0.0, test=0.0, key=key)
    result = Halves(site.data.train.take(parts.train), site.data.train.take(parts.search))
    if not site.config.federation.remote and not all(len(part) for part in result):
        raise BadInput(
            f"expected training samples for weights and for the architecture of "
            f"{site.paths.name}, got {len(site.data.train)} in all; use fewer sites"
        )
    return result
