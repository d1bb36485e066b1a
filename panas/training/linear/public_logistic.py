"""A logistic regression of labelled public rows, as one candidate of a site's average.

Many tables are nearly linear in their columns, and say so to a regression on few rows, where heads
on the common map and forests need many. It has read public samples alone, at epsilon 0, like the
forest beside it (`panas.training.linear.public_forest`).

    logits = log((n softmax(V u + v) + 1 / C) / (n + 1)),   u = (x - mean) / deviation

of n public rows, so that no class is impossible. The penalty on V is chosen by cross-validation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from panas.data.samples import Samples
from panas.features.exact import logs, product
from panas.runtime.seeds import one_thread, stream
from panas.training.baselines import MOST_SAMPLES, at_most
from panas.training.linear.logistic import cross_validated

SEED = 0
FEWEST_DEVIATION = 1e-6  # of a column; one that varies less is not looked at


@dataclass(frozen=True)
class PublicLogistic:
    """V and v over the deviations, in float64, and the number of rows that they were fitted on."""

    weight: Float[Tensor, "classes f"]
    bias: Float[Tensor, "classes"]
    rows: int

    def logits(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes"]:
        """Logits of network inputs in [-1, 1].

        Privacy: a row depends on its own sample and on public ones.
        """
        seen = values(Samples(x.float().cpu(), torch.zeros(len(x)).long(), len(self.bias)))
        p = (product(seen, self.weight.T) + self.bias).softmax(1)
        return logs((self.rows * p + 1 / len(self.bias)) / (self.rows + 1)).float()

    def arrays(self) -> dict[str, Tensor]:
        """All of it, by name."""
        return {"weight": self.weight, "bias": self.bias, "rows": torch.tensor(self.rows)}

    @staticmethod
    def restored(arrays: Mapping[str, Tensor]) -> "PublicLogistic":
        """What `arrays` holds."""
        return PublicLogistic(arrays["weight"], arrays["bias"], int(arrays["rows"]))


def fit_public_logistic(public: Samples) -> PublicLogistic | None:
    """The regression of at most `MOST_SAMPLES` rows; none of rows of fewer than two classes.

    Privacy: it reads public samples alone, and draws from a fixed seed.
    """
    few = at_most(MOST_SAMPLES, public, stream(SEED, "public logistic"))
    if len(few.y.unique()) < 2:
        return None
    with one_thread():
        x = values(few)
        mean, deviation = x.mean(0), x.std(0, correction=0)
        scale = torch.where(deviation > FEWEST_DEVIATION, 1 / deviation, 0.0)
        u, nothing = ((x - mean) * scale).float(), torch.zeros(len(x), few.classes)
        rng = stream(SEED, "public logistic", "folds")
        fitted = cross_validated(u, few.y, {"nothing": nothing}, rng).residual
        assert fitted.bias is not None
        weight = fitted.weight.double() * scale
        return PublicLogistic(weight, fitted.bias.double() - weight @ mean, len(few))


def values(samples: Samples) -> Float[Tensor, "n f"]:
    """All columns of rows, in float64."""
    return samples.inputs().flatten(1).double()
