"""What a genome costs as it is built, and whether it can still keep its limits.

| symbol | name |
|---|---|
| v | a `Vector`: one cost for each limit that is set |
| front | Pareto-minimal vectors of all ways to complete a genome with so many blocks more |

The front is exact (dynamic programming over the shape of the map and the number of blocks left): a
construction that follows it never gets stuck, and an empty front proves that nothing fits.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import mul

from panas.architecture.blocks import Block, PoolBlock, Shape
from panas.architecture.limits import Limits, Vector, shown
from panas.runtime.errors import BadInput

After = Callable[[Block, Shape], Shape | None]
Blocks = tuple[Block, ...]
State = tuple[Shape, int, bool]  # of the map; blocks left; is there a block that is no pool yet?


class FeasibilityTable:
    """What genomes and their beginnings cost, and whether they can keep the limits.

    `after` gives the shape behind a block, or None where the block may not stand.
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
