"""Hard limits on what a genome may cost.

A cost is a sum over blocks, adaptation layer and head, by `panas.architecture.cost` or by the
measured table of `panas.architecture.latency`. All are integers (latency in nanoseconds), so that
sums are exact. A `Vector` v holds one cost for each limit that is set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from panas.architecture.blocks import Block, Shape, shape_after
from panas.architecture.cost import Cost, block_cost, linear_cost
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec, Norm
from panas.runtime.errors import BadInput

Vector = tuple[int, ...]  # in the order of `Constraints.names`
MS = 1_000_000  # nanoseconds of a millisecond


@dataclass(frozen=True, kw_only=True)
class LatencyTable:
    """Measured times of blocks on maps; a genome's latency is the sum over its parts.

    It serves to compare genomes: a whole network has fewer calls from Python and colder caches.
    """

    width: int
    classes: int
    norm: Norm
    blocks: Mapping[tuple[str, Shape], int] = field(hash=False)
    """Nanoseconds of a block, by its text and the shape of the map that comes in."""
    ends: Mapping[int, int] = field(hash=False)
    """Nanoseconds of global pooling, adaptation layer and head, by the channels that come in."""

    def latency_ms(self, genome: Genome, shape: Shape) -> float:
        """The latency of a genome on images of `shape`, in milliseconds."""
        total = 0
        for block in genome.blocks:
            total += _entry(self.blocks, (str(block), shape))
            shape = shape_after(block, shape)
        return (total + _entry(self.ends, shape[0])) / MS

    def to_json(self) -> dict[str, Any]:
        """The table as plain JSON."""
        return {
            "width": self.width,
            "classes": self.classes,
            "norm": self.norm,
            "blocks": [[text, [*shape], ns] for (text, shape), ns in sorted(self.blocks.items())],
            "ends": [[channels, ns] for channels, ns in sorted(self.ends.items())],
        }

    @classmethod
    def from_json(cls, data: object) -> "LatencyTable":
        """The table that `to_json` wrote; BadInput for anything else."""
        match data:
            case {
                "width": int(width),
                "classes": int(classes),
                "norm": "group" | "batch" as norm,
                "blocks": [*rows],
                "ends": [*ends],
                **rest,
            } if not rest and all(map(_is_row, rows)) and all(map(_is_end, ends)):
                blocks = {(text, (c, h, w)): ns for text, (c, h, w), ns in rows}
                return cls(width=width, classes=classes, norm=norm, blocks=blocks, ends=dict(ends))
        raise BadInput(
            "expected a latency table as to_json writes it, got another; measure it anew"
        )


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What a network may cost at most, each above 0; None for no limit."""

    parameters: int | None = None
    macs: int | None = None  # multiply-accumulates of one image
    bytes: int | None = None  # of the float32 state
    latency_ms: float | None = None  # of one image on one thread

    def __post_init__(self) -> None:
        for name in self.names:
            if not (value := getattr(self, name)) > 0:
                raise BadInput(f"expected a limit above 0, got {name} {value}; raise it")

    @property
    def names(self) -> tuple[str, ...]:
        """The limits that are set, in the order of a vector."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)

    @property
    def bound(self) -> Vector:
        """The limits as a vector."""
        limits = ((name, getattr(self, name)) for name in self.names)
        return tuple(int(MS * x + 1e-6) if name == "latency_ms" else x for name, x in limits)


@dataclass(frozen=True)
class Limits:
    """Constraints on bottom and head of the networks of one spec."""

    spec: NetworkSpec  # its shape plays no part
    constraints: Constraints
    latency: LatencyTable | None = None  # needed for a limit of latency

    def __post_init__(self) -> None:
        table = self.latency
        if self.constraints.latency_ms is not None and table is None:
            raise BadInput(
                "expected a latency table for a limit of latency, got none; measure one with "
                "panas.architecture.latency.measure"
            )
        own = (self.spec.width, self.spec.classes, self.spec.norm)
        if table is not None and (table.width, table.classes, table.norm) != own:
            raise BadInput(
                "expected a latency table of the same width, classes and norm, got one of "
                f"{(table.width, table.classes, table.norm)} for {own}; measure it anew"
            )

    def of_block(self, block: Block, shape: Shape) -> Vector:
        """What one block adds on a map of `shape`."""
        ns = _entry(self._table.blocks, (str(block), shape)) if self._table else 0
        return self._vector([block_cost(block, shape, self.spec.norm)], ns)

    def of_end(self, channels: int) -> Vector:
        """What adaptation layer and head add behind `channels` channels."""
        width = self.spec.width
        parts = [linear_cost(channels, width), linear_cost(width, self.spec.classes)]
        return self._vector(parts, _entry(self._table.ends, channels) if self._table else 0)

    def excess(self, v: Vector) -> str | None:
        """The first limit that v exceeds, in words."""
        names, bound = self.constraints.names, self.constraints.bound
        for name, value, limit in zip(names, v, bound, strict=True):
            if value > limit:
                return f"{shown(name, value)}, above the limit of {shown(name, limit)}"
        return None

    @property
    def _table(self) -> LatencyTable | None:
        return None if self.constraints.latency_ms is None else self.latency

    def _vector(self, parts: Iterable[Cost], nanoseconds: int) -> Vector:
        return tuple(
            nanoseconds if name == "latency_ms" else sum(getattr(part, name) for part in parts)
            for name in self.constraints.names
        )


def _entry(table: Mapping[Any, int], key: object) -> int:
    if key not in table:
        raise BadInput(
            f"expected a latency table of this search space, got one without {key}; "
            "measure it anew with panas.architecture.latency.measure"
        )
    return table[key]


def shown(name: str, value: int) -> str:
    """An entry of a vector, in words."""
    return f"{value / MS:.4g} ms of latency" if name == "latency_ms" else f"{value:,} {name}"


def _is_row(row: object) -> bool:
    match row:
        case [str(), [int(), int(), int()], int(ns)]:
            return ns >= 0
    return False


def _is_end(row: object) -> bool:
    match row:
        case [int(), int(ns)]:
            return ns >= 0
    return False
