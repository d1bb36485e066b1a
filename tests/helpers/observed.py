"""What an adversary sees of one site."""

from torch import Tensor, nn

from attacks.threats.observation import Observation, WhiteBox, rows_of
from panas.data.samples import Samples
from panas.features.map import FeatureMap

Extractor = nn.Module | FeatureMap


def observed(
    kind: str, made_by: Extractor, public: Samples, m: float | None = None, **arrays: Tensor
) -> Observation[WhiteBox]:
    return Observation("north", kind, arrays, m, WhiteBox(made_by), public)  # type: ignore[arg-type]


def raw(made_by: Extractor, private: Samples, public: Samples) -> Observation[WhiteBox]:
    """Rows in clear."""
    z = rows_of(made_by, private)
    return observed("raw_rows", made_by, public, z=z, y=private.y)
