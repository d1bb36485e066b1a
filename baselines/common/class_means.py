"""Class means of representations: what FedGH and FedProto exchange, noised where there is a budget.

| symbol | name |
|---|---|
| z | representation of a sample, clipped to norm R |
| S_c, n_c | sum of z / R of the samples of class c, and their number |
| C_c = R S_c / n_c | `means` of class c |

Under a budget S and n get Gaussian noise in one release, which a sample more or less moves by
sqrt(2) (`panas.privacy.release.kinds.class_sums`). The rest is computed of them: classes whose n_c
is within the noise are left out, and means are clipped to norm R, which true ones keep.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from baselines.common.averaging import check_arrays
from baselines.common.spending import Mechanism, Spending, charged
from dprbft.site.site import Site
from dprbft.updates import Bundle
from panas.data.samples import Samples
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import class_sums
from panas.privacy.release.rows import checked_rows, clip_rows, counts_by_class, sums_by_class
from panas.runtime.errors import BadInput

MECHANISM = Mechanism("class-sums", class_sums.SENSITIVITY, phase="release")
Represent = Callable[[Samples], Float[Tensor, "n d"]]


@dataclass(frozen=True)
class ClassMeans:
    """Mean representations of the k classes that a site has, as far as the noise lets it know."""

    classes: Int64[Tensor, "k"]
    means: Float[Tensor, "k d"]
    counts: Float[Tensor, "k"]  # of samples, noised like the sums

    def to_arrays(self) -> dict[str, Tensor]:
        """As an update holds them."""
        return {"classes": self.classes, "means": self.means, "counts": self.counts}


def means_in(bundle: Bundle, classes: int, width: int) -> ClassMeans:
    """Those of an update; BadInput if they are not of different classes, or not of this width.

    Args:
        bundle: of an update, untrusted.
        classes: C; the classes in it must differ, and be 0 to C - 1.
        width: of the representations.
    """
    result = bundle.arrays.get("classes", torch.empty(0, dtype=torch.int64))
    k = len(result) if result.dim() == 1 else -1
    if not 0 <= k <= classes:
        raise BadInput(f"expected means of at most {classes} classes in an update, got others")
    like = ClassMeans(
        torch.zeros(k, dtype=torch.int64), torch.zeros(k, width), torch.zeros(k)
    ).to_arrays()
    check_arrays(bundle.arrays, like)
    means = ClassMeans(**bundle.arrays)
    if len(result.unique()) < k or bool(((result < 0) | (result >= classes)).any()):
        raise BadInput(f"expected different classes of 0 to {classes - 1} in an update, got others")
    if not bool((means.counts > 0).all()):
        raise BadInput("expected counts above 0 in an update, got others")
    return means


def release_means(
    site: Site, represent: Represent, spending: Spending, round: int, bound: float
) -> tuple[ClassMeans, str]:
    """A site's class means and the id of their charge, which comes before anything is read.

    Args:
        site: its training samples and its ledger.
        represent: training samples to representations (n, width).
        spending: its plan says the noise; without a plan the means are exact.
        round: from 1.
        bound: R, norm to which representations are clipped under a budget, above 0.

    Privacy: the plan's `release_event`; without a plan none, which the ledger says.
    """
    plan, train = spending.plan, site.data.train
    event = plan.release_event if plan else None
    with charged(site, MECHANISM, event, round) as receipt:
        z = represent(train)
        if plan is None:
            return exact_means(z, train), receipt.id
        rows = checked_rows(Rows(z / bound, train.y, train.groups), train.classes, site.id)
        s = class_sums.SENSITIVITY * plan.release_event.noise_multiplier
        noised = class_sums.run(rows, train.classes, s, SystemNoise())
    return means_of(noised["S"], noised["counts"], s, bound), receipt.id


def means_of(
    sums: Float[Tensor, "classes d"], counts: Float[Tensor, "classes"], noise: float, bound: float
) -> ClassMeans:
    """Means of noised sums of rows of norm 1.

    Args:
        sums: noised sum of each class's rows.
        counts: noised number of rows of each class.
        noise: standard deviation on each number, 0 or more.
        bound: R, by which the means are scaled back.
    """
    kept = (counts > max(0.5, noise)).nonzero().flatten()
    means = bound * clip_rows(sums[kept] / counts[kept, None].clamp(min=1.0))
    return ClassMeans(kept, means, counts[kept])


def exact_means(z: Float[Tensor, "n d"], samples: Samples) -> ClassMeans:
    """Class means as they are, of the classes that there are."""
    ones = torch.ones(len(samples), dtype=torch.float64)
    counts = counts_by_class(ones, samples.y, samples.classes)
    kept = (counts > 0).nonzero().flatten()
    sums = sums_by_class(z.double(), samples.y, samples.classes)
    return ClassMeans(kept, (sums[kept] / counts[kept, None]).float(), counts[kept].float())


def bound_of(width: int) -> float:
    """R: with it a number of a representation has size 1."""
    return math.sqrt(width)
