"""The feature map of tables: random Fourier features and leaves of a forest.

| symbol | meaning |
|---|---|
| x | a row as `panas.data` scales it: numbers, signs of categories and of missing cells |
| w | weights of the columns, so that a standard deviation and a category weigh alike |
| b | bandwidth: the median distance of public rows, times `WIDE` |
| omega, phase | fixed draws, standard normal and uniform |

Fourier features: sqrt(2 / D) cos(omega^T (w x) / b + phase); their inner products approximate a
Gaussian kernel (Rahimi and Recht 2007). Where labelled public rows say that it pays, the leaves of
a forest grown on them stand beside (`panas.features.trees`), and both count half.

Then `panas.features.projection`, of the features of public rows, filled up with rows whose columns
are drawn apart; without public rows, with rows drawn from the declared scale alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from panas.data.files.columns import Column
from panas.features.projection import (
    GradientPath,
    Projection,
    cloud,
    filled_up,
    principal,
    unit_rows,
)
from panas.features.trees import Forest, grow, restored
from panas.runtime.seeds import one_thread, stream

KIND = "table"
FOURIER = 256  # D
WIDE = 2.0
DEVIATION, SIGN = 3.0, 0.5  # weights of a number and of a sign
SEEN_DEVIATION = 0.03  # of a column of public rows, from which on it gives the weight
FARTHEST = 16.0  # inputs are cut to plus and minus this
CHUNK = 1024  # rows at a time
SYNTHETIC = 2000  # rows that are drawn
FEWEST = 10  # public rows; fewer are not looked at
FEWEST_LABELS = 100  # public rows for a forest
BESIDE = 30.0  # synthetic rows that count beside the public ones
POWER, SYNTHETIC_POWER = 0.3, 0.3  # of whitening


@dataclass(frozen=True)
class Fourier:
    """Random Fourier features."""

    directions: Float[Tensor, "f D"]  # weights and bandwidth are in them
    phases: Float[Tensor, "D"]

    def __call__(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n D"]:
        """Rows of length about 1."""
        width = self.directions.shape[1]
        return (2 / width) ** 0.5 * torch.cos(x @ self.directions + self.phases)


@dataclass(frozen=True)
class Blocks:
    """All features of a row, before the projection."""

    fourier: Fourier
    forest: Forest | None

    def __call__(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n features"]:
        """Features of any rows: what is not finite counts as 0, what is too large is cut."""
        finite = torch.where(x.isfinite(), x.float(), 0.0).clamp(-FARTHEST, FARTHEST)
        waves = self.fourier(finite)
        if self.forest is None:
            return waves
        return torch.cat([waves, self.forest(finite)], dim=1) / 2**0.5


@dataclass(frozen=True)
class TableMap:
    """Rows of a table as unit vectors; see the module."""

    blocks: Blocks
    projection: Projection

    @property
    def width(self) -> int:
        """Number of coordinates d."""
        return self.projection.width

    @property
    def macs(self) -> int:
        """Multiply-accumulates a row."""
        return self.blocks.fourier.directions.numel() + self.projection.macs

    @property
    def numbers(self) -> int:
        """Fixed numbers that it holds."""
        return sum(array.numel() for array in self.arrays().values())

    def __call__(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of rows (n, ...), padded as `panas.data` does; zero of one that is not
        finite."""
        rows = [torch.empty(0, self.width)]
        x = _unpadded(x, len(self.blocks.fourier.directions))
        with one_thread(), torch.no_grad():
            for part in x.split(CHUNK) if len(x) else ():
                usable = part.isfinite().all(1)
                rows.append(unit_rows(self.projection(self.blocks(part)), usable))
        return torch.cat(rows)

    @property
    def gradient_path(self) -> GradientPath | None:
        """The same rows of finite rows (n, ...) up to rounding, with gradients; None with trees."""
        if self.blocks.forest is not None:
            return None

        def rows(x: Tensor) -> Tensor:
            waves = self.blocks.fourier(_unpadded(x, len(self.blocks.fourier.directions)))
            return F.normalize(self.projection(waves), dim=1)

        return rows

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return {"kind": KIND}

    def arrays(self) -> dict[str, Tensor]:
        """The fixed numbers, by name."""
        fourier, forest, p = self.blocks.fourier, self.blocks.forest, self.projection
        trees = {} if forest is None else forest.arrays()
        waves = {"directions": fourier.directions, "phases": fourier.phases}
        return {**waves, **trees, "mean": p.mean, "matrix": p.matrix}

    @staticmethod
    def restored(record: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> "TableMap":
        """What `to_json` and `arrays` hold."""
        fourier = Fourier(arrays["directions"], arrays["phases"])
        blocks = Blocks(fourier, restored(arrays, len(fourier.directions)))
        return TableMap(blocks, Projection(arrays["mean"], arrays["matrix"]))


def fit_table(
    columns: Sequence[Column],
    public: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"] | None,
    d: int,
) -> TableMap:
    """The map of rows of these columns, of at most d coordinates, fitted on public rows (n may be
    0) as `panas.data` scales and pads them, with their labels where those are public, too.

    Privacy: it reads nothing but its arguments, which are public, and draws from a fixed seed.
    """
    rows = _unpadded(public, sum(column.width for column in columns))
    usable = rows.isfinite().all(1)
    rows, labels = rows[usable], None if labels is None else labels[usable]
    with one_thread():
        seen = len(rows) >= FEWEST
        synthetic = _shuffled(columns, rows) if seen else _declared(columns)
        fourier = _fourier(
            _weights(columns, rows if seen else rows[:0]), rows if seen else synthetic
        )
        blocks = Blocks(fourier, _forest(fourier, rows, labels))
        drawn = cloud(blocks(synthetic))
        if not seen:
            return TableMap(blocks, principal(drawn, d, SYNTHETIC_POWER))
        both = filled_up(cloud(blocks(rows)), drawn, BESIDE)
        return TableMap(blocks, principal(both, d, POWER))


def _unpadded(x: Float[Tensor, "n ..."], features: int) -> Float[Tensor, "n f"]:
    return x.reshape(len(x), -1 if len(x) else features)[:, :features].float().cpu()


def _weights(columns: Sequence[Column], rows: Float[Tensor, "n f"]) -> Float[Tensor, "f"]:
    """Weights of the features: one over the deviation of public numbers, where they vary."""
    weights = []
    for column in columns:
        signs = column.width if column.kind == "text" else int(column.missing)
        weights += [DEVIATION] * (column.width - signs) + [SIGN] * signs
    w = torch.tensor(weights)
    if len(rows):
        deviation = rows.std(0)
        w = torch.where((w == DEVIATION) & (deviation > SEEN_DEVIATION), 1 / deviation, w)
    return w


def _fourier(weights: Float[Tensor, "f"], rows: Float[Tensor, "n f"]) -> Fourier:
    rng = stream(0, "features", "tables", "fourier")
    distances = torch.pdist(rows[:SYNTHETIC] * weights)
    bandwidth = max(WIDE * float(distances.median()), 1e-3)
    directions = torch.from_numpy(rng.standard_normal((len(weights), FOURIER)))
    phases = torch.from_numpy(rng.uniform(0, 2 * np.pi, FOURIER)).float()
    return Fourier((directions * weights[:, None] / bandwidth).float(), phases)


def _forest(
    fourier: Fourier, rows: Float[Tensor, "n f"], labels: Int[Tensor, "n"] | None
) -> Forest | None:
    """The forest, if public labels are enough."""
    if labels is None or len(rows) < FEWEST_LABELS or len(labels.unique()) < 2:
        return None
    return grow(rows, labels, stream(0, "features", "tables", "forest"))


def _shuffled(columns: Sequence[Column], rows: Float[Tensor, "n f"]) -> Float[Tensor, "m f"]:
    """Rows of which each column is drawn apart from public rows."""
    rng = stream(0, "features", "tables", "shuffled")
    parts = rows.split([column.width for column in columns], dim=1)
    draws = [torch.from_numpy(rng.integers(len(rows), size=SYNTHETIC)) for _ in columns]
    return torch.cat([part[draw] for part, draw in zip(parts, draws, strict=True)], dim=1)


def _declared(columns: Sequence[Column]) -> Float[Tensor, "m f"]:
    """Rows drawn by the scale of each column alone."""
    rng = stream(0, "features", "tables", "declared")
    parts = []
    for column in columns:
        x = np.full((SYNTHETIC, column.width), -1.0)
        if column.kind != "text":
            x[:, 0] = np.clip(rng.normal(0, 1 / DEVIATION, SYNTHETIC), -1, 1)
        elif column.categories:
            known = len(column.categories) + 1
            x[np.arange(SYNTHETIC), rng.integers(known, size=SYNTHETIC)] = 1
        else:
            x[:] = rng.choice([-1.0, 1.0], x.shape)
        parts.append(x)
    return torch.from_numpy(np.concatenate(parts, axis=1)).float()
