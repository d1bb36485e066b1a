"""The feature map of tables: random Fourier features, the columns themselves, leaves of a forest.

First `panas.features.waves`: Fourier features, columns and leaves of a row.

Columns and leaves stand beside where that makes labelled public rows likelier to a ridge head that
was fitted without them (`paying`): on a nearly linear table leaves crowd out the columns, on others
columns are in the way. All blocks count alike.

Then `panas.features.projection`, of the features of public rows, filled up with rows whose columns
are drawn apart; without public rows, with rows drawn from the declared scale alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from panas.data.files.columns import Column
from panas.data.samples import Samples
from panas.features.exact import MapCost, WholeMatrix, significant
from panas.features.projection import (
    GradientPath,
    Projection,
    check_names,
    cloud,
    filled_up,
    is_bounded,
    principal,
    unit_rows,
)
from panas.features.trees import NAMES, Forest, grow, restored
from panas.features.waves import DIRECTION_BITS, FOURIER, Blocks, Fourier, cost_of_rows
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread, stream

KIND = "table"
WIDE = 2.0
DEVIATION, SIGN = 3.0, 0.5  # weights of a number and of a sign
SEEN_DEVIATION = 0.03  # of a column of public rows, from which on it gives the weight
SCALE_BITS = 10  # of weights and distances that public rows decide
SYNTHETIC = 2000  # rows that are drawn
FEWEST = 10  # public rows; fewer are not looked at
LEAST_DISTANCE = 1e-3
FEWEST_LABELS, FEWEST_FOR_LEAVES = 50, 100  # public rows that may ask for columns, and leaves
MOST_COMPARED, FOLDS = 600, 5  # public rows that are asked
PENALTIES, LOGIT_SCALE = (0.1, 0.3, 1.0, 3.0), 12.0  # of the ridge heads that are compared
BESIDE = 30.0  # synthetic rows that count beside the public ones
POWER, SYNTHETIC_POWER = 0.3, 0.3  # of whitening


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
    def cost(self) -> MapCost:
        """What rows need."""
        b = self.blocks
        return cost_of_rows(len(b.fourier.directions), b.width, self.width)

    def __call__(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of padded rows (n, ...); zero of one that is not finite."""
        rows = [torch.empty(0, self.width)]
        x = _unpadded(x, len(self.blocks.fourier.directions))
        with one_thread(), torch.no_grad():
            for part in x.split(self.cost.chunk) if len(x) else ():
                usable = part.isfinite().all(1)
                rows.append(unit_rows(self.blocks.projected(part, self.projection), usable))
        return torch.cat(rows)

    def of(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of samples."""
        return self(samples.inputs())

    @property
    def gradient_path(self) -> GradientPath | None:
        """The same rows of finite rows (n, ...) up to rounding, with gradients; None with trees."""
        if self.blocks.forest is not None:
            return None

        def rows(x: Tensor) -> Tensor:
            features = self.blocks.smooth(_unpadded(x, len(self.blocks.fourier.directions)))
            return F.normalize(self.projection.smooth(features), dim=1)

        return rows

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return {"kind": KIND}

    def arrays(self) -> dict[str, Tensor]:
        """The fixed numbers, by name."""
        b, p = self.blocks, self.projection
        trees = {} if b.forest is None else b.forest.arrays()
        columns = {} if b.scale is None else {"scale": b.scale}
        waves = {"directions": b.fourier.directions, "phases": b.fourier.phases}
        return {**waves, **columns, **trees, "mean": p.mean, "matrix": p.matrix}

    @staticmethod
    def restored(record: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> "TableMap":
        """What `to_json` and `arrays` hold; BadInput if that is no map of a table.

        Sizes are those of a fit: a row of f features gives `FOURIER` waves, f columns, and leaves.
        """
        names = ["directions", "phases", "mean", "matrix"]
        names += [name for name in ("scale",) if name in arrays]
        names += NAMES if "column" in arrays else ()
        if dict(record) != {"kind": KIND}:
            raise BadInput("expected a map of a table, got another; make the map again")
        check_names(arrays, tuple(names))
        features = arrays["directions"].shape[0] if arrays["directions"].dim() == 2 else 0
        expected = {"directions": (features, FOURIER), "phases": (FOURIER,), "scale": (features,)}
        for name, shape in expected.items():
            if name in arrays and (arrays[name].shape != shape or not is_bounded(arrays[name])):
                raise BadInput(f"expected finite {name} of rows of a table; make the map again")
        if features < 1:
            raise BadInput("expected a map of at least 1 feature, got none; make the map again")
        fourier = Fourier(arrays["directions"], arrays["phases"])
        blocks = Blocks(fourier, arrays.get("scale"), restored(arrays, features))
        projection = Projection.restored(arrays["mean"], arrays["matrix"], blocks.width)
        return TableMap(blocks, projection)


def fit_table(
    columns: Sequence[Column],
    public: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"] | None,
    d: int,
) -> TableMap:
    """The map of rows of these columns, fitted on public rows.

    Args:
        columns: name, kind and scale of each.
        public: rows as `panas.data` scales and pads them; n may be 0.
        labels: of the rows, where they are public; None: the map uses none.
        d: the most coordinates.

    Privacy: it reads nothing but its arguments, which are public, and draws from a fixed seed.
    """
    rows = _unpadded(public, sum(column.width for column in columns))
    usable = rows.isfinite().all(1)
    rows, labels = rows[usable], None if labels is None else labels[usable]
    with one_thread():
        seen = len(rows) >= FEWEST
        synthetic = _shuffled(columns, rows) if seen else _declared(columns)
        weights = _weights(columns, rows if seen else rows[:0])
        fourier, scale = _smooth(weights, rows if seen else synthetic)
        blocks = Blocks(fourier)
        if labels is not None and len(rows) >= FEWEST_LABELS and len(labels.unique()) > 1:
            beside, leaves = paying(fourier, scale, rows, labels)
            forest = _forest(rows, labels) if leaves else None
            blocks = Blocks(fourier, scale if beside else None, forest)
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
    w = torch.tensor(weights, dtype=torch.float64)
    if len(rows):
        deviation = rows.double().std(0)
        seen = (w == DEVIATION) & (deviation > SEEN_DEVIATION)
        w = torch.where(seen, significant(1 / deviation, SCALE_BITS), w)
    return w


def _smooth(
    weights: Float[Tensor, "f"], rows: Float[Tensor, "n f"]
) -> tuple[Fourier, Float[Tensor, "f"]]:
    """Fourier features and scale of the columns, rounded: the same by every library."""
    rng = stream(0, "features", "tables", "fourier")
    median = max(float(torch.pdist(rows[:SYNTHETIC].double() * weights).median()), LEAST_DISTANCE)
    median = float(significant(torch.tensor(median), SCALE_BITS))
    drawn = torch.from_numpy(rng.standard_normal((len(weights), FOURIER)))
    directions = WholeMatrix.of(drawn * weights[:, None] / (WIDE * median), DIRECTION_BITS)
    phases = torch.from_numpy(rng.uniform(0, 2 * np.pi, FOURIER)).float()
    waves = Fourier((directions.steps * directions.step).float(), phases)
    return waves, (2**0.5 / median * weights).float()


def _forest(rows: Float[Tensor, "n f"], labels: Int[Tensor, "n"]) -> Forest:
    return grow(rows, labels, stream(0, "features", "tables", "forest"))


def paying(
    fourier: Fourier,
    scale: Float[Tensor, "f"],
    rows: Float[Tensor, "n f"],
    labels: Int[Tensor, "n"],
) -> tuple[bool, bool]:
    """Whether columns, and whether leaves, are to stand beside the Fourier features: what makes
    public rows likeliest that a ridge head was fitted without.

    Args:
        fourier: the features that stand in any case.
        scale: of the columns where they stand beside.
        rows: public ones, finite; fewer than `FEWEST_FOR_LEAVES` get no leaves.
        labels: their classes, from 0 up.
    """
    choices = list(product((False, True), (False, True)[: 1 + (len(rows) >= FEWEST_FOR_LEAVES)]))
    rng = stream(0, "features", "tables", "folds")
    order = torch.from_numpy(rng.permutation(len(rows))[:MOST_COMPARED])
    x, y = rows[order], labels[order].long()
    loss = torch.zeros(len(choices), len(PENALTIES), dtype=torch.float64)
    for out in torch.arange(len(x)).tensor_split(FOLDS):
        kept = torch.ones(len(x), dtype=torch.bool)
        kept[out] = False
        forest = _forest(x[kept], y[kept]) if choices[-1][1] else None
        for i, (columns, leaves) in enumerate(choices):
            blocks = Blocks(fourier, scale if columns else None, forest if leaves else None)
            features = blocks(x).double()
            u = F.normalize(features - features[kept].mean(0), dim=1)
            loss[i] += _losses(u[kept], y[kept], u[out], y[out])
    return choices[int(loss.amin(1).argmin())]


def _losses(
    u: Float[Tensor, "n f"], y: Int[Tensor, "n"], v: Float[Tensor, "m f"], of: Int[Tensor, "m"]
) -> Float[Tensor, "penalties"]:
    """Negative log-likelihood of rows v by ridge heads of rows u, one a penalty, in the dual."""
    classes = int(max(y.max(), of.max())) + 1
    values, vectors = torch.linalg.eigh(u @ u.T)
    across = LOGIT_SCALE * v @ u.T @ vectors
    aim = vectors.T @ (F.one_hot(y, classes).double() - 1 / classes)
    heads = [across / (values.clamp(min=0) + penalty) @ aim for penalty in PENALTIES]
    return torch.stack([F.cross_entropy(head, of, reduction="sum") for head in heads])


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
            numbers = rng.normal(0, 1 / DEVIATION, (SYNTHETIC, column.numbers))
            x[:, : column.numbers] = np.clip(numbers, -1, 1)
        elif column.categories:
            known = len(column.categories) + 1
            x[np.arange(SYNTHETIC), rng.integers(known, size=SYNTHETIC)] = 1
        else:
            x[:] = rng.choice([-1.0, 1.0], x.shape)
        parts.append(x)
    return torch.from_numpy(np.concatenate(parts, axis=1)).float()
