"""The feature map of vectors, an encoder's or given ones: unit rows on principal axes.

| symbol | meaning |
|---|---|
| v | a vector of e numbers: a sample itself, or what a frozen public encoder makes of it |
| mean, U | mean and principal axes of the vectors of public samples |

    z = (v - mean) U_d diag(deviation^-.6),   phi = z / |z|

Of fewer than `FEWEST` public vectors the axes are random ones by a fixed seed, and the mean is 0.
There are no more axes than public vectors less one, which span no more.

Privacy: a row has norm at most 1 and its bits whatever is beside it, as every map's
(`panas.features.projection`). A vector that is not finite, has a number above `LARGEST`, or is zero
becomes a zero row.

Pictures reach an encoder one at a time (`panas.features.encoders.encoder`); a map from a file has
the encoder's facts, and `with_encoder` gives it the encoder.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.data.encoder import MOST_OUTPUTS, EncoderFacts
from panas.data.samples import Samples
from panas.features.encoders.encoder import LARGEST, Encoder
from panas.features.exact import MapCost, WholeMatrix
from panas.features.projection import (
    MATRIX_BITS,
    GradientPath,
    Projection,
    check_names,
    cloud,
    principal,
    unit_rows,
)
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread, stream

KIND = "axes"
FEWEST = 10  # public vectors; fewer are not looked at
POWER = 0.6  # of whitening
CHUNK = 1024  # rows at a time


@dataclass(frozen=True)
class AxesMap:
    """Vectors of e numbers as unit rows; see the module."""

    projection: Projection
    encoder_facts: EncoderFacts | None = None  # None: samples are vectors themselves
    encoder: Encoder | None = field(default=None, compare=False)  # where it is at hand

    @property
    def width(self) -> int:
        """Number of coordinates d."""
        return self.projection.width

    @property
    def outputs(self) -> int:
        """Numbers e of a vector."""
        return len(self.projection.mean)

    @property
    def cost(self) -> MapCost:
        """What vectors need, beside their encoder."""
        return cost_of_vectors(self.outputs, self.width)

    def __call__(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of vectors (n, e) or (n, 1, 1, e), or of pictures in [-1, 1].

        The encoder reads pictures, one at a time. A row is zero where a vector has no features.
        """
        if x.dim() == 4 and self.encoder_facts is not None:
            x = self._reader()((x + 1) / 2)
        return self.rows(x.reshape(len(x), self.outputs).cpu())

    def of(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Unit rows of samples: of their embeddings where these are there."""
        if self.encoder_facts is None:
            return self(samples.inputs())
        if samples.embeddings is not None:
            return self.rows(samples.embeddings)
        if not len(samples):
            return torch.empty(0, self.width)
        return self.rows(self._reader().of(samples))

    def rows(self, v: Float[Tensor, "n e"]) -> Float[Tensor, "n d"]:
        """Unit rows of vectors, each by itself, bit for bit."""
        results = [torch.empty(0, self.width)]
        with one_thread(), torch.no_grad():
            for part in v.float().split(self.cost.chunk) if len(v) else ():
                usable = (part.abs() <= LARGEST).all(1) & (part != 0).any(1)
                z = self.projection(torch.where(usable[:, None], part, 0.0))
                results.append(unit_rows(z, usable))
        return torch.cat(results)

    def _reader(self) -> Encoder:
        if self.encoder is None:
            assert self.encoder_facts is not None
            f = self.encoder_facts
            raise BadInput(
                f"expected the encoder {f.name} (SHA-256 {f.digest}...) to read pictures with, "
                "got none; give its file with --encoder FILE"
            )
        return self.encoder

    @property
    def gradient_path(self) -> GradientPath | None:
        """The same rows of vectors up to rounding, with gradients; None where an encoder makes
        them, through which no gradients flow."""
        if self.encoder_facts is not None:
            return None

        def rows(x: Tensor) -> Tensor:
            return F.normalize(self.projection.smooth(x.flatten(1)), dim=1)

        return rows

    def to_json(self) -> dict[str, Any]:
        """All but the arrays; the encoder is named by its facts."""
        f = self.encoder_facts
        return {"kind": KIND, "outputs": self.outputs, "encoder": f.to_json() if f else None}

    def arrays(self) -> dict[str, Tensor]:
        """The fixed numbers, by name."""
        return {"mean": self.projection.mean, "matrix": self.projection.matrix}

    @staticmethod
    def restored(record: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> "AxesMap":
        """What `to_json` and `arrays` hold; BadInput if that is no map of vectors."""
        e, encoder = record.get("outputs"), record.get("encoder")
        if sorted(record) != ["encoder", "kind", "outputs"] or type(e) is not int:
            raise BadInput("expected a map of vectors, got another; make the map again")
        if not 1 <= e <= MOST_OUTPUTS:
            raise BadInput(f"expected a map of 1 to {MOST_OUTPUTS} numbers; make the map again")
        facts = None if encoder is None else EncoderFacts.from_json(encoder)
        if facts is not None and facts.outputs != e:
            raise BadInput(f"expected a map of an encoder's {facts.outputs} outputs, got {e}")
        check_names(arrays, ("mean", "matrix"))
        return AxesMap(Projection.restored(arrays["mean"], arrays["matrix"], e), facts)


def with_encoder(feature_map: AxesMap, encoder: Encoder) -> AxesMap:
    """The map with the encoder that its facts name; BadInput for another one."""
    facts = feature_map.encoder_facts
    if facts is None:
        raise BadInput("expected no encoder, since samples are vectors already, got one")
    if different := facts.differs_from(encoder.facts):
        raise BadInput(f"expected the encoder {facts.name} of the run, got {different}")
    return replace(feature_map, encoder=encoder)


def fit_axes(public: Float[Tensor, "n e"], d: int, encoder: EncoderFacts | None = None) -> AxesMap:
    """The map of vectors, fitted on public ones.

    Args:
        public: vectors of public samples; n may be 0; those that have no features are left out.
        d: the most coordinates.
        encoder: that makes the vectors; None: samples are vectors themselves.

    Raises:
        BadInput: if an encoder makes no vector of use of any of them.

    Privacy: it reads nothing but its arguments, which are public, and draws from a fixed seed.
    """
    e, public = public.shape[1], public.float().cpu()
    usable = (public.abs() <= LARGEST).all(1) & (public != 0).any(1)
    seen = public[usable]
    if encoder and len(public) >= FEWEST and not len(seen):
        raise BadInput(
            f"expected vectors of public pictures by {encoder.name}, got none that is finite, at "
            f"most {LARGEST:g} and not zero; check the scale, mean and std of its input"
        )
    if len(seen) < FEWEST:
        return AxesMap(random_axes(e, min(d, e)), encoder)
    return AxesMap(principal(cloud(seen), min(d, e, len(seen) - 1), POWER), encoder)


def random_axes(e: int, d: int) -> Projection:
    """Random axes by a fixed seed, which few numbers of a vector make alike; the mean is 0."""
    drawn = torch.from_numpy(stream(0, "features", "axes").standard_normal((e, d)))
    whole = WholeMatrix.of(drawn / math.sqrt(e), MATRIX_BITS)
    return Projection(torch.zeros(e), (whole.steps * whole.step).float().contiguous())


def cost_of_vectors(e: int, d: int) -> MapCost:
    """What a map of vectors needs, beside their encoder.

    Args:
        e: numbers of a vector, at most `MOST_OUTPUTS`.
        d: coordinates.
    """
    return MapCost(
        macs=e * d, row_bytes=8 * (5 * e + 6 * d), most_rows=CHUNK, fixed_bytes=4 * (e + 3 * e * d)
    )
