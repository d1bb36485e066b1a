"""What a test of conformance found, and when it is an alarm.

All tests of a run share one error, `ERROR`: half of it those of single releases, evenly over sites
and tests, and half those of releases beside each other.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ERROR = 0.001
"""How often a run of honest sites may raise an alarm, all tests together."""


@dataclass(frozen=True)
class Finding:
    """One test of a release, or of several."""

    test: str  # its name
    part: str  # of the release: an array, or what is compared
    p: float  # chance of this, or of something less likely, if the claim is true
    says: str  # what an alarm means, as half a sentence
    of: tuple[str, ...] = ()  # releases that were compared; none: the one that was tested

    def __str__(self) -> str:
        return f"{self.says} ({self.test}, p = {self.p:.0e})"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; `from_json` reads it back."""
        return asdict(self) | {"of": list(self.of)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Finding":
        """What `to_json` gave."""
        return cls(**record | {"of": tuple(record["of"])})


def alarms(findings: Sequence[Finding], error: float) -> list[Finding]:
    """Those that are too unlikely for a true claim, the least likely first.

    Args:
        findings: of all tests that share the error.
        error: that they may make together, in (0, 1).
    """
    found = [f for f in findings if f.p < error / len(findings)]
    return sorted(found, key=lambda f: f.p)


def of_many(p: float, tests: int) -> float:
    """The chance that the least likely of so many tests is as unlikely as this."""
    return -math.expm1(tests * math.log1p(-p)) if p < 1 else 1.0
