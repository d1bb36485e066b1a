"""Representation and label of every training sample, as in the DPFNAS paper (algorithm 2).

Nothing protects them: whoever receives them can reconstruct the samples.
"""

from collections.abc import Mapping

from torch import Tensor

from panas.privacy.accounting.events import Unprotected
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import ArraySpec, Rows

CHARGED_AS = Unprotected
SENSITIVITY = None
READS = "training"
UNIT = False
BARE = (
    "the representation and the label of every sample leave as they are; whoever receives them "
    "can reconstruct the sample"
)


def run(rows: Rows, classes: int, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
    """The rows as they are.

    Args:
        rows: finite z (n, d) and y.
        classes: not read.
        scale: not read, as nothing is noised.
        noise: not read.
    """
    return {"z": rows.z.float(), "y": rows.y}


def arrays(classes: int, d: int) -> dict[str, ArraySpec]:
    """z (n, d) and y (n,)."""
    return {"z": ArraySpec((None, d)), "y": ArraySpec((None,), labels=True)}


def estimate(arrays: Mapping[str, Tensor], classes: int, scale: float) -> Rows:
    """The rows.

    Args:
        arrays: z and y, as `run` returned them.
        classes: not read.
        scale: not read.
    """
    return Rows(arrays["z"], arrays["y"])
