"""The label histogram of a client, noised: it sizes the public sample that a search uses."""

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Gaussian, Relation, Unprotected
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import NoiseSource
from panas.runtime.errors import BadInput

# How far one sample moves the counts, in L2 norm.
SENSITIVITY: Mapping[Relation, float] = {ADD_OR_REMOVE: 1.0, REPLACE: math.sqrt(2.0)}


def label_histogram(
    labels: Callable[[], Int[Tensor, "n"]],
    *,
    classes: int,
    event: Gaussian | Unprotected,
    ledger: Ledger,
    noise: NoiseSource,
) -> Float[Tensor, "classes"]:
    """The client's label counts with Gaussian noise, charged to its ledger before they are read.

    `event` is `Gaussian(m)`, or `Unprotected()` for the exact counts.
    """
    if not isinstance(event, Gaussian | Unprotected):
        raise BadInput(f"expected a Gaussian or unprotected histogram, got {event}; give its noise")
    sensitivity = SENSITIVITY[ledger.account().relation]
    charge = Charge(
        event=event,
        phase="search",
        mechanism="label-histogram",
        recipient="whoever sees the architecture",
        sensitivity=sensitivity,
    )
    with ledger.charge(charge):
        counts = torch.bincount(labels(), minlength=classes).double()
        if isinstance(event, Gaussian):
            counts = counts + sensitivity * event.noise_multiplier * noise.normal(classes)
    return counts.float()
