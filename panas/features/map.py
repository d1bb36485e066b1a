"""The common representation: one fixed map phi from a sample to a vector of norm at most 1.

Moments of representations can be pooled over sites only where all sites compute the same ones. So
phi is decided by rule from public facts and public samples alone, before any site reads a sample
of its own. On one machine equal arguments give equal bytes, in every process and with any number of
threads. Between machines they nearly always do (`panas.features.projection`); leaves are grown by
the scikit-learn that is installed.

A row has its bits whatever is beside it, on a CPU: maps move their inputs there.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from panas.data.facts import Facts
from panas.data.samples import Samples, concat
from panas.features import axes, images, tables
from panas.features.exact import MapCost
from panas.features.gabor import cost_of_images
from panas.features.projection import GradientPath
from panas.features.trees import MOST_LEAVES
from panas.features.waves import FOURIER, cost_of_rows
from panas.runtime.errors import BadInput
from panas.runtime.store import pack_tensors, read_tensors, write_bytes

WIDTH = 128
NOTE = "map"  # of the file's metadata


@runtime_checkable
class FeatureMap(Protocol):
    """A fixed map of samples."""

    @property
    def width(self) -> int:
        """Number of coordinates d."""

    @property
    def cost(self) -> MapCost:
        """What samples need."""

    def __call__(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Rows (n, d), float32, of network inputs (n, c, h, w).

        Privacy: every row has norm at most 1, whatever its sample holds, and depends on that sample
        alone, bit for bit. It has length 1, less 1e-5 at most, or is zero for a sample that is not
        finite or has no features. Its numbers are whole steps of 2^-20.
        """

    def of(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Rows (n, d) of samples: of their embeddings, where an encoder has made some."""

    @property
    def gradient_path(self) -> GradientPath | None:
        """Nearly the same rows, with gradients, for attacks; None where there are none."""

    def to_json(self) -> dict[str, Any]:
        """All but the arrays; `kind` names the map."""

    def arrays(self) -> dict[str, Tensor]:
        """The fixed numbers, by name."""


RESTORE: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], FeatureMap]] = {
    images.KIND: images.GaborMap.restored,
    tables.KIND: tables.TableMap.restored,
    axes.KIND: axes.AxesMap.restored,
}
"""By kind, how a map is made again of its JSON and its arrays."""


def fit_map(facts: Facts, public: Samples, d: int = WIDTH, *, labelled: bool = True) -> FeatureMap:
    """The map of a federation's data.

    Args:
        facts: public; they decide what kind of map it is.
        public: samples that anybody may see; none (`Facts.no_samples`) will do.
        d: most coordinates, >= 1; a map of few features has fewer.
        labelled: whether the labels of `public` are public, too, and mean something.

    Privacy: there is no way for a private sample to reach it. Equal arguments give the same map.
    """
    if d < 1:
        raise BadInput(f"expected a feature map of at least 1 coordinate, got {d}; change it")
    if len(public) and public.shape != facts.shape:
        raise BadInput(
            f"expected public samples of shape {facts.shape}, got {public.shape}; bring them to it"
        )
    if facts.columns:
        labels = public.y if labelled else None
        return tables.fit_table(facts.columns, public.inputs(), labels, d)
    if facts.vectors:
        return axes.fit_axes(public.inputs().flatten(1), d)
    if facts.encoder:
        return axes.fit_axes(_embeddings(public, facts.encoder.outputs), d, facts.encoder)
    return images.fit_gabor(facts.shape, public.inputs(), d)


def _embeddings(public: Samples, outputs: int) -> Float[Tensor, "n e"]:
    """Vectors of public samples; BadInput if an encoder has not made them."""
    if not len(public):
        return torch.empty(0, outputs)
    e = public.embeddings
    if e is None or e.shape[1] != outputs:
        raise BadInput(
            f"expected {outputs} numbers of the encoder for each public sample, got "
            f"{'none' if e is None else e.shape[1]}; encode them with the run's encoder"
        )
    return e


def values_of(facts: Facts) -> int:
    """Numbers of a sample that a map of coordinates reads: no map has more of these."""
    return facts.encoder.outputs if facts.encoder else math.prod(facts.shape)


def common_map(facts: Facts, public: Samples, unlabelled: Samples, most: int) -> FeatureMap:
    """The map of a federation, by the one rule that each site and the hub follow for themselves.

    Args:
        facts: that the sites declare.
        public: labelled samples that anybody may see; may be none.
        unlabelled: such without labels; may be none.
        most: coordinates, at most; of images no more than they have values.

    A table's map is of its labelled public rows, if there are any; else of all public samples.
    """
    d = most if facts.columns else min(most, values_of(facts))
    if facts.columns and len(public):
        return fit_map(facts, public, d)
    seen = concat([replace(part, groups=None) for part in (public, unlabelled)])
    return fit_map(facts, seen, d, labelled=not len(unlabelled))


def cost_of(facts: Facts, d: int = WIDTH) -> MapCost:
    """What the map of these facts needs at most, beside rows given and made; reads nothing."""
    if facts.columns:  # at most: public rows decide on columns and leaves beside the waves
        f = sum(column.width for column in facts.columns)
        return cost_of_rows(f, FOURIER + f + MOST_LEAVES, d)
    if facts.vectors or facts.encoder:
        return axes.cost_of_vectors(values_of(facts), d)
    return cost_of_images(facts.shape, d)


def write_map(path: Path, feature_map: FeatureMap) -> None:
    """Write a map; equal maps give equal bytes."""
    note = json.dumps(feature_map.to_json(), sort_keys=True)
    write_bytes(path, pack_tensors(feature_map.arrays(), {NOTE: note}))


def read_map(path: Path) -> FeatureMap:
    """The map that `write_map` wrote; `BadInput` if the file is missing, damaged or no map."""
    arrays, notes = read_tensors(path)
    try:
        record = json.loads(notes.get(NOTE, "{}"))
    except ValueError:
        record = None
    if not isinstance(record, dict) or record.get("kind") not in list(RESTORE):
        raise BadInput(f"expected a feature map in {path}, got another file; make the map again")
    return restored_map(record, arrays)


def restored_map(record: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> FeatureMap:
    """The map of what `to_json` and `arrays` gave; BadInput unless a fit could give its sizes."""
    kind = record.get("kind")
    if kind not in list(RESTORE):
        raise BadInput(
            f"expected a map of {', '.join(RESTORE)}, got {kind!r:.40}; make the map again"
        )
    return RESTORE[kind](record, arrays)
