"""A network with its preprocessing, from raw samples to probabilities, as one module of tensors.

| samples | input, n at a time | what the program does first |
|---|---|---|
| pictures of 8 bits | `images`, uint8 (n, c, h, w) | x / 127.5 - 1 |
| other pictures | `images`, float32 (n, c, h, w) in [0, 1]: a value over the largest | 2 x - 1 |
| the same, of facts without a range (`unit` is false) | `images`, float32 (n, c, h, w) | nothing |
| a table | `rows`, float64 (n, columns): `cell_codes` | `panas.data.files.columns` |

The output is `probabilities`, float32 (n, classes): the softmax of the network's logits.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor, nn

from panas.data.facts import Facts
from panas.data.files.columns import FINE, LARGEST, PERSON, SIGNS, TURN, Column, side_of
from panas.data.files.raw import Raw
from panas.features.encoders.trunk import restored
from panas.training.checkpoint import SavedNetwork

OTHER = -1.0
"""The code of a text that is none of a column's categories."""


class Pixels(nn.Module):
    """Pictures to network inputs in [-1, 1]."""

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.is_bytes, self.unit = facts.dtype == "uint8", facts.unit

    def forward(self, x: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """The network's inputs."""
        if self.is_bytes:
            return x.to(torch.float32) / 127.5 - 1
        return 2 * x - 1 if self.unit else x


class Rows(nn.Module):
    """Cells of a table to squares of features in [-1, 1], as `Column.features` makes them."""

    scaled: Tensor  # positions of columns with a reach
    free: Tensor  # of numbers without
    turned: Tensor  # of those that have an angle
    missing: Tensor  # of columns with a feature for missing cells
    centre: Tensor
    reach: Tensor
    order: Tensor  # of the features

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        at: dict[str, list[int]] = {"scaled": [], "free": [], "turned": [], "missing": []}
        self.texts: list[tuple[int, int]] = []  # position, and number of categories
        for i, column in enumerate(columns):
            if column.missing:
                at["missing"].append(i)
            if column.kind == "text":
                self.texts.append((i, len(column.categories)))
            else:
                free = "free" if column.numbers == 1 else "turned"
                at[free if column.reach is None else "scaled"].append(i)
        for name, positions in at.items():
            self.register_buffer(name, torch.tensor(positions, dtype=torch.int64))
        scaled = [columns[i] for i in at["scaled"]]
        centres, reaches = [c.centre for c in scaled], [c.reach for c in scaled]
        self.register_buffer("centre", torch.tensor(centres, dtype=torch.float64))
        self.register_buffer("reach", torch.tensor(reaches, dtype=torch.float64))
        widths = [column.width for column in columns]
        self.side, self.features = side_of(sum(widths)), sum(widths)
        self.register_buffer("order", torch.tensor(_order(columns, at, self.texts)))

    def forward(self, rows: Float64[Tensor, "n columns"]) -> Float[Tensor, "n 1 s s"]:
        """The network's inputs."""
        absent = rows.isnan()
        cells = torch.where(absent, torch.zeros_like(rows), rows)
        scaled = ((cells[:, self.scaled] - self.centre) / self.reach).clamp(-1, 1)
        free, turned = _tanh(cells[:, self.free]), cells[:, self.turned]
        angle = _angle(turned)
        three = (_tanh(turned) / 2, angle.sin() / 2, (angle + math.pi / 2).sin() / 2)
        parts = [
            torch.where(absent[:, at], torch.zeros_like(part), part)
            for at, part in (
                (self.scaled, scaled),
                (self.free, free),
                *((self.turned, t) for t in three),
            )
        ]
        for position, categories in self.texts:
            signs = _signs(cells[:, position : position + 1], categories)
            gone = absent[:, position : position + 1].expand_as(signs)
            parts.append(torch.where(gone, torch.zeros_like(signs), signs))
        gone = absent[:, self.missing]
        parts.append(2 * gone.to(rows.dtype) - 1)
        padded = rows.new_zeros(rows.shape[0], self.side**2 - self.features)
        features = torch.cat([*parts, padded], dim=1)[:, self.order]
        return features.to(torch.float32).reshape(-1, 1, self.side, self.side)


def _tanh(cells: Float64[Tensor, "n f"]) -> Float64[Tensor, "n f"]:
    return torch.tanh(cells.sign() * torch.log1p(cells.abs()))


def _angle(cells: Float64[Tensor, "n f"]) -> Float64[Tensor, "n f"]:
    """The angle of a number without a scale; its cosine is a sine, which all formats have."""
    size = cells.abs().clamp(max=LARGEST)
    return cells.sign() * ((size + FINE).log() - math.log(FINE)) * (2 * math.pi / TURN)


def _order(
    columns: Sequence[Column], at: dict[str, list[int]], texts: Sequence[tuple[int, int]]
) -> list[int]:
    """Where each feature, in the order of the columns, is among the parts of `Rows.forward`."""
    starts = np.cumsum([0, *(column.width for column in columns)])
    made = [starts[i] for i in (*at["scaled"], *at["free"])]
    made += [starts[i] + k for k in range(3) for i in at["turned"]]
    for i, categories in texts:
        made += [starts[i] + k for k in range(categories + 1 if categories else SIGNS)]
    made += [starts[i + 1] - 1 for i in at["missing"]]
    padding = range(len(made), side_of(len(made)) ** 2)
    return [*np.argsort(made).tolist(), *padding]


def _signs(code: Float64[Tensor, "n 1"], categories: int) -> Float64[Tensor, "n f"]:
    """Features of a text, by its code."""
    if categories:
        matches = (code == torch.arange(categories, dtype=code.dtype)).to(code.dtype)
        return 2 * torch.cat([matches, 1 - matches.sum(dim=1, keepdim=True)], dim=1) - 1
    steps = 2.0 ** torch.arange(SIGNS - 1, -1, -1, dtype=code.dtype)  # the highest bit first
    shifted = torch.floor(code / steps)
    return 2 * (shifted - 2 * torch.floor(shifted / 2)) - 1


class Program(nn.Module):
    """Raw samples to probabilities.

    Args:
        prepare: raw samples to the network's inputs.
        bottom: inputs to the representation; a trunk is part of it.
        head: representation to logits.
    """

    def __init__(self, prepare: nn.Module, bottom: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.prepare, self.bottom, self.head = prepare, bottom, head

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n classes"]:
        """Probability of each class."""
        return self.head(self.bottom(self.prepare(x))).softmax(dim=1)


def program_of(saved: SavedNetwork) -> Program:
    """The program of a network; BadInput for one saved without facts."""
    facts = saved.facts
    prepare = Rows(facts.columns) if facts.columns else Pixels(facts)
    if saved.trunk is None:
        return Program(prepare, saved.bottom, saved.head).eval()
    trunk = restored(saved.trunk.to_json(), saved.trunk.packed(), whole=True)
    return Program(prepare, nn.Sequential(trunk, saved.bottom), saved.head).eval()


def input_name(facts: Facts) -> str:
    """What the program's input is called."""
    return "rows" if facts.columns else "images"


def text_code(text: str, column: Column) -> float:
    """A text as the program takes it: its category's number, or a byte of a fixed hash."""
    if column.categories:
        return float(column.categories.index(text)) if text in column.categories else OTHER
    return float(hashlib.blake2b(text.encode(), digest_size=1, person=PERSON).digest()[0])


def cell_codes(raw: Raw, facts: Facts) -> Float64[Tensor, "n columns"]:
    """Rows of a table as the program takes them: numbers, days since 1970, codes of texts, NaN.

    Args:
        raw: rows as read, with the columns of the facts.
        facts: of the network's data.
    """
    cells = np.stack([raw.x[:, raw.columns.index(c.name)] for c in facts.columns], axis=1)
    for i, column in enumerate(facts.columns):
        if column.kind == "text":
            codes = np.array([text_code(t, column) for t in raw.texts.get(column.name, ())] or [0])
            absent = np.isnan(cells[:, i])
            positions = np.where(absent, 0, cells[:, i]).astype(np.int64)
            cells[:, i] = np.where(absent, np.nan, codes[positions])
    return torch.from_numpy(cells)


def samples_of(facts: Facts, n: int, generator: torch.Generator) -> Tensor:
    """Random inputs of the program, which no sample has shaped: of a table some cells are missing.

    Args:
        facts: of the network's data.
        n: how many, at least 1.
        generator: draws them.
    """
    if not facts.columns:
        shape = (n, *facts.shape)
        if facts.dtype == "uint8":
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.rand(shape, generator=generator)
    columns = []
    for column in facts.columns:
        if column.kind == "text":
            most = len(column.categories) or 256
            x = torch.randint(-1 if column.categories else 0, most, (n,), generator=generator)
            columns.append(x.double())
        else:
            spread = torch.randn(n, generator=generator, dtype=torch.float64)
            columns.append(column.centre + (column.reach or 10.0) * spread)
    rows = torch.stack(columns, dim=1)
    return torch.where(torch.rand(rows.shape, generator=generator) < 0.1, torch.nan, rows)
