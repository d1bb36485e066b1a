"""Noise that is written down as a mechanism draws it, and given to it again.

A *call* is one request to the noise source. All normal numbers of a run in their order are one row
of m numbers; the uniform ones, which choose units, stay call by call.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from panas.privacy.noise import NoiseSource, SystemNoise

Call = tuple[Literal["normal", "uniform"], tuple[int, ...]]
"""What was asked for, and its shape."""


@dataclass
class Recorded:
    """A source that passes on what another one draws, and keeps it."""

    source: NoiseSource = field(default_factory=SystemNoise)
    calls: list[Call] = field(default_factory=list)
    normals: list[Tensor] = field(default_factory=list)
    uniforms: list[Tensor] = field(default_factory=list)

    def normal(self, *shape: int) -> Tensor:
        """What the source draws."""
        self.calls.append(("normal", tuple(shape)))
        self.normals.append(self.source.normal(*shape))
        return self.normals[-1].clone()

    def uniform(self, size: int) -> Tensor:
        """What the source draws."""
        self.calls.append(("uniform", (size,)))
        self.uniforms.append(self.source.uniform(size))
        return self.uniforms[-1].clone()

    @property
    def row(self) -> Float[Tensor, "m"]:
        """All normal numbers, in their order."""
        return torch.cat(
            [n.flatten() for n in [torch.zeros(0, dtype=torch.float64), *self.normals]]
        )


@dataclass
class Frozen:
    """A source that gives what it was given; of what is asked for beyond that, zeros.

    Without a unit, uniform numbers are those of the others: each unit keeps its own.
    """

    row: Float[Tensor, "m"]
    uniforms: list[Tensor]
    without: int | None = None
    calls: list[Call] = field(default_factory=list)
    _used: int = 0

    def normal(self, *shape: int) -> Tensor:
        """The next numbers of the row."""
        self.calls.append(("normal", tuple(shape)))
        size = math.prod(shape)
        numbers = self.row[self._used : self._used + size]
        self._used += size
        lacking = torch.zeros(size - len(numbers), dtype=torch.float64)
        return torch.cat([numbers, lacking]).reshape(shape)

    def uniform(self, size: int) -> Tensor:
        """Those of the call of the same place; zeros where another number is asked for."""
        at = sum(kind == "uniform" for kind, _ in self.calls)
        self.calls.append(("uniform", (size,)))
        numbers = self.uniforms[at] if at < len(self.uniforms) else torch.zeros(0)
        if self.without is not None and len(numbers) == size + 1:
            numbers = torch.cat([numbers[: self.without], numbers[self.without + 1 :]])
        return numbers.clone() if len(numbers) == size else torch.zeros(size, dtype=torch.float64)


def fits(calls: list[Call], recorded: list[Call], gone: int) -> bool:
    """Whether calls are those that were recorded, but for uniform numbers of units that are gone.

    Args:
        calls: of a run on a neighbour.
        recorded: of the run on the data themselves.
        gone: how many units the neighbour has less.
    """
    expected: list[Call] = [
        (kind, (shape[0] - gone,) if kind == "uniform" else shape) for kind, shape in recorded
    ]
    return calls == expected
