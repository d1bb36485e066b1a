"""The label histogram of a site, noised: its class frequencies in searches and predictors.

In method `joined` the server balances classes by it, but in a secure sum, where it stays.
A sample counts 1. The samples of a group count alike and as much as keeps its counts to L2 norm 1:
one class a group counts 1 in all, several of them more.
"""

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Gaussian, Relation, Unprotected
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import Rows
from panas.privacy.release.rows import counts_by_class, unit_weights
from panas.privacy.unit import check_unit
from panas.runtime.errors import BadInput

LABEL_HISTOGRAM = "label-histogram"  # as the ledger and site.toml call it

# How far one unit moves the counts, in L2 norm.
SENSITIVITY: Mapping[Relation, float] = {ADD_OR_REMOVE: 1.0, REPLACE: math.sqrt(2.0)}


def label_histogram(
    labels: Callable[[], tuple[Int[Tensor, "n"], Int64[Tensor, "n"] | None]],
    *,
    classes: int,
    event: Gaussian | Unprotected,
    ledger: Ledger,
    noise: NoiseSource,
    recipient: str = "whoever sees the architecture",
) -> Float[Tensor, "classes"]:
    """The site's label counts with Gaussian noise, charged to its ledger before they are read.

    Args:
        labels: reads classes (n,), and groups (n,) where they are the privacy unit.
        classes: C, at least 1.
        event: `Gaussian(m)`, or `Unprotected()` for the counts without noise.
        ledger: of the samples whose labels are read, its account open.
        noise: the operating system's, unless for a test.
        recipient: who sees the outcome, for the ledger's line.
    """
    if not isinstance(event, Gaussian | Unprotected):
        raise BadInput(f"expected a Gaussian or unprotected histogram, got {event}; give its noise")
    account = ledger.account()
    sensitivity = SENSITIVITY[account.relation]
    charge = Charge(
        event=event,
        phase="search",
        mechanism=LABEL_HISTOGRAM,
        recipient=recipient,
        sensitivity=sensitivity,
    )
    with ledger.charge(charge):
        y, groups = labels()
        check_unit(account.unit, groups)
        counts = unit_counts(y, groups, classes)
        if isinstance(event, Gaussian):
            counts = counts + sensitivity * event.noise_multiplier * noise.normal(classes)
    return counts.float()


def unit_counts(
    y: Int[Tensor, "n"], groups: Int64[Tensor, "n"] | None, classes: int
) -> Float[Tensor, "classes"]:
    """Label counts without noise: a unit more or less moves them by 1 in L2 norm, at most.

    Args:
        y: classes (n,), 0 to C - 1.
        groups: unit of each sample (n,), which shares a weight of 1; None: a sample is a unit.
        classes: C, at least 1.
    """
    ones = torch.ones(len(y), 1, dtype=torch.float64)

    def length(ones: Float[Tensor, "m 1"], y: Int[Tensor, "m"]) -> float:
        return float(counts_by_class(ones[:, 0], y, classes).norm())

    return counts_by_class(unit_weights(Rows(ones, y, groups), 1.0, length), y, classes)
