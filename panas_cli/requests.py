"""What the user asked for on the command line, as facts.

No library is loaded here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from panas.runtime.errors import BadInput

FailOn = Literal["leak", "inconclusive"]


@dataclass(frozen=True)
class Request:
    """What the user asked for on the command line."""

    config: Path | None
    settings: dict[str, Any]
    device: str
    out: Path | None
    resume: bool
    workers: int | None
    json: bool


@dataclass(frozen=True)
class Reach:
    """How a run reaches its sites, as the words of the command line."""

    engine: Literal["inprocess", "flower"] | None = None
    hub: Path | None = None  # the folder of a hub, whose sites are elsewhere
    facts: Path | None = None  # what sites elsewhere declare


@dataclass(frozen=True)
class Asked:
    """What the user asked to be compared, as the words of the command line."""

    experiment: Path | None
    methods: str | None
    seeds: int | None
    size: str | None
    columns: str | None


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """What the user asked for of a network that was trained elsewhere.

    BadInput where figures are out of their range.
    """

    file: Path
    data: str
    others: str | None
    label: str | None
    mean: list[float]
    std: list[float]
    accuracy: float | None
    epsilon: float | None
    delta: float
    outputs: bool
    shadows: int
    workers: int
    out: Path | None
    fail_on: FailOn | None
    json: bool

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1 or (self.epsilon is not None and not self.epsilon > 0):
            raise BadInput(
                "expected --epsilon above 0, --delta in (0, 1), got "
                f"{self.epsilon}, {self.delta}; fix them"
            )
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise BadInput(
                f"expected --accuracy in [0, 1], got {self.accuracy}; give a share, as 0.98"
            )
