"""Hard limits on what a genome may cost, and whether one can still keep them as it is built.

A cost is a sum over blocks, adaptation layer and head, by `panas.architecture.cost` or by the
measured table of `panas.architecture.latency`. All are integers (latency in nanoseconds), so that
sums are exact.

| symbol | name |
|---|---|
| v | a `Vector`: one cost for each limit that is set |
| front | Pareto-minimal vectors of all ways to complete a genome with so many blocks more |

The front is exact (dynamic programming over the shape of the map and the number of blocks left): a
construction that follows it never gets stuck, and an empty front proves that nothing fits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from operator import mul
from typing import Any

from panas.architecture.blocks import Block, PoolBlock, Shape, shape_after
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


After = Callable[[Block, Shape], Shape | None]
Blocks = tuple[Block, ...]
State = tuple[Shape, int, bool]  # of the map; blocks left; is there a block that is no pool yet?


class FeasibilityTable:
    """What genomes and their beginnings cost, and whether they can keep the limits.

    Args:
        limits: the most that a genome may cost.
        shape: (channels, height, width) of an image.
        menu: every block that a genome may have.
        after: gives the shape behind a block, or None where the block may not stand.
    """

    def __init__(self, limits: Limits, shape: Shape, menu: Sequence[Block], after: After) -> None:
        self._limits, self._shape, self._menu, self._after = limits, shape, menu, after
        self._bound = limits.constraints.bound
        self._steps: dict[tuple[Block, Shape], tuple[Shape, Vector] | None] = {}
        self._fronts: dict[State, list[Vector]] = {}

    def excess(self, blocks: Sequence[Block]) -> str | None:
        """The limit that a whole genome exceeds, in words."""
        shape, v = self._walk(blocks)
        return self._limits.excess(_plus(v, self._limits.of_end(shape[0])))

    def completable(self, blocks: Sequence[Block], left: int) -> bool:
        """Whether some `left` blocks after `blocks` make a genome that keeps the limits."""
        shape, v = self._walk(blocks)
        solid = any(not isinstance(block, PoolBlock) for block in blocks)
        return any(self._keeps(_plus(v, rest)) for rest in self._front(shape, left, solid))

    def nothing_fits(self, lengths: Sequence[int]) -> BadInput:
        """Say which limit no genome of these lengths keeps, and how close one comes."""
        names, bound = self._limits.constraints.names, self._bound
        shares = [1 / max(1, limit) for limit in bound]
        alone = [[s if i == k else 0.0 for k, s in enumerate(shares)] for i in range(len(names))]
        for weights in (*alone, shares):  # each limit alone, then all together
            blocks, v = self._cheapest(lengths, weights)
            if any(w and x > limit for w, x, limit in zip(weights, v, bound, strict=True)):
                break
        has, want = (
            " and ".join(shown(n, x) for n, w, x in zip(names, weights, costs, strict=True) if w)
            for costs in (v, bound)
        )
        return BadInput(
            f"expected limits that a genome of the search space can keep, got at most {want}: the "
            f"cheapest, {'-'.join(map(str, blocks))}, has {has}; raise the limits"
        )

    def _cheapest(self, lengths: Iterable[int], weights: Sequence[float]) -> tuple[Blocks, Vector]:
        """The genome whose weighted costs have the lowest sum, limits aside."""

        @cache
        def best(shape: Shape, left: int, solid: bool) -> tuple[float, Blocks, Vector] | None:
            ways: list[tuple[Blocks, Vector]] = []
            if not left and solid:
                ways.append(((), self._limits.of_end(shape[0])))
            for block, after, v in self._moves(shape) if left else ():
                if rest := best(after, left - 1, solid or not isinstance(block, PoolBlock)):
                    ways.append(((block, *rest[1]), _plus(v, rest[2])))
            priced = [(sum(map(mul, weights, v)), b, v) for b, v in ways]
            return min(priced, key=lambda way: way[0], default=None)

        ways = [way for n in lengths if (way := best(self._shape, n, False))]
        return min(ways, key=lambda way: way[0])[1:]

    def _walk(self, blocks: Sequence[Block]) -> tuple[Shape, Vector]:
        shape, v = self._shape, (0,) * len(self._bound)
        for block in blocks:
            step = self._step(block, shape)
            if step is None:
                raise ValueError(f"{block} may not stand on a map of {shape}")
            shape, v = step[0], _plus(v, step[1])
        return shape, v

    def _step(self, block: Block, shape: Shape) -> tuple[Shape, Vector] | None:
        key = block, shape
        if key not in self._steps:
            after = self._after(block, shape)
            self._steps[key] = after and (after, self._limits.of_block(block, shape))
        return self._steps[key]

    def _moves(self, shape: Shape) -> list[tuple[Block, Shape, Vector]]:
        steps = [(block, self._step(block, shape)) for block in self._menu]
        return [(block, *step) for block, step in steps if step is not None]

    def _front(self, shape: Shape, left: int, solid: bool) -> list[Vector]:
        key = shape, left, solid
        if key not in self._fronts:
            ways = {self._limits.of_end(shape[0])} if not left and solid else set()
            for block, after, v in self._moves(shape) if left else ():
                if self._keeps(v):
                    rest = self._front(after, left - 1, solid or not isinstance(block, PoolBlock))
                    ways |= {_plus(v, r) for r in rest}
            self._fronts[key] = _minimal(filter(self._keeps, ways))
        return self._fronts[key]

    def _keeps(self, v: Vector) -> bool:
        return all(x <= limit for x, limit in zip(v, self._bound, strict=True))


def _minimal(vectors: Iterable[Vector]) -> list[Vector]:
    """Those that no other one is below or equal to in every entry."""
    kept: list[Vector] = []
    for v in sorted(vectors):  # so that whatever is below v comes before it
        if not any(all(a <= b for a, b in zip(k, v, strict=True)) for k in kept):
            kept.append(v)
    return kept


def _plus(a: Vector, b: Vector) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))
