"""What the user asked for on the command line, as facts.

No library is loaded here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
class CompareRequest:
    """What the user asked to be compared, as the words of the command line."""

    experiment: Path | None
    methods: str | None
    seeds: int | None
    size: str | None
    columns: str | None
