"""What sites report of a candidate, fused; how far that is below before; and who is dropped.

Source: DecNAS, section 4.3.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from panas.runtime.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A pruned network, PM."""

    id: str
    widths: tuple[int, ...]  # filters of each prunable layer
    resource: float  # Res(PM)
    accuracy: float | None = None  # the last that was reported

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "widths": list(self.widths)}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Candidate":
        """Read back `to_json`."""
        return Candidate(**{**record, "widths": tuple(record["widths"])})


def fused_accuracy(counts: Iterable[tuple[float, float]]) -> float | None:
    """The accuracy over all validation samples of a group, of each site's right and wrong answers:
    its sites' accuracies, weighted by their samples. Noised counts do as well. None without any."""
    pairs = list(counts)
    if not pairs:
        return None
    right, wrong = (sum(side) for side in zip(*pairs, strict=True))
    return min(1.0, max(0.0, right / max(1.0, right + wrong)))


def degradation(before: float, after: float, resources: tuple[float, float]) -> float:
    """Accuracy lost over resource saved, from the network before an iteration to a candidate."""
    saved = resources[0] - resources[1]
    if saved <= 0:
        raise BadInput(f"expected a candidate that saves some of the resource, got {saved}")
    return (before - after) / saved


def ranked(
    candidates: Sequence[Candidate], accuracy: float | None, resource: float
) -> list[Candidate]:
    """The least degradation first; those that nobody reported on last.

    `accuracy` and `resource` are of the network before the iteration. Where nobody has reported on
    that, the best candidate is taken to have lost nothing.
    """
    known = [c.accuracy for c in candidates if c.accuracy is not None]
    before = max(known, default=0.0) if accuracy is None else accuracy

    def loss(c: Candidate) -> float:
        if c.accuracy is None:
            return math.inf
        return degradation(before, c.accuracy, (resource, c.resource))

    return sorted(candidates, key=loss)
