"""The audit of an implementation: every mechanism run again, its noise, its prices, its sums.

Exact tests have no chance in them: a mechanism fails or does not. All others share the error of
`attacks.conformance.finding.ERROR`, over all parts of a run: a sound implementation raises an alarm
in one of a thousand runs, at most.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from attacks.conformance.finding import ERROR, Finding, alarms
from attacks.replay.charges import findings_of_charges
from attacks.replay.frozen import UnitLoss, check_runs, replay
from attacks.replay.mechanism import Mechanism
from attacks.replay.own import own_mechanisms
from attacks.replay.prices import findings_of_prices
from attacks.replay.sampling import PLAN, findings_of_batches
from attacks.replay.secure import findings_of_sum
from attacks.replay.sources import findings_of_source, repeats
from panas.privacy.noise import SystemNoise
from panas.runtime.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class PartAudit:
    """What the tests of one part found."""

    name: str
    seconds: float
    findings: tuple[Finding, ...]
    worst: tuple[UnitLoss, ...] = ()  # of a mechanism, the units that cost most of what was charged


@dataclass(frozen=True)
class ImplementationAudit:
    """What the audit of an implementation found."""

    parts: tuple[PartAudit, ...]

    @cached_property
    def alarms(self) -> tuple[tuple[str, Finding], ...]:
        """Part and test of each alarm, the least likely first."""
        by_finding = [(part.name, f) for part in self.parts for f in part.findings]
        raised = alarms([f for _, f in by_finding], ERROR)
        return tuple((name, f) for f in raised for name, g in by_finding if g is f)

    @property
    def tests(self) -> int:
        """How many tests there were."""
        return sum(len(part.findings) for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return {
            "sound": not self.alarms,
            "tests": self.tests,
            "error": ERROR,
            "alarms": [{"part": name, **_plain(f)} for name, f in self.alarms],
            "parts": [
                {
                    "part": part.name,
                    "seconds": round(part.seconds, 2),
                    "tests": len(part.findings),
                    "least_p": float(min((f.p for f in part.findings), default=1.0)),
                    "worst_units": [asdict(u) | {"over_charge": _number(u)} for u in part.worst],
                }
                for part in self.parts
            ],
        }


def _plain(finding: Finding) -> dict[str, Any]:
    return finding.to_json() | {"p": float(finding.p)}


def _number(unit: UnitLoss) -> float | str:
    return round(unit.over_charge, 6) if np.isfinite(unit.over_charge) else "infinity"


def audit_implementation(
    mechanism: Mechanism | None = None,
    *,
    rng: np.random.Generator,
    on_progress: Callable[[str], None] = lambda _: None,
    only: Sequence[str] = (),
) -> ImplementationAudit:
    """Audit the project's own mechanisms, and one of a user's own.

    Args:
        mechanism: the user's; None for none.
        rng: draws the rows that mechanisms run on; no privacy rests on it.
        on_progress: is told the name of each part that is done.
        only: words in the names of parts that are tested; none: all parts.
    """
    if mechanism is not None:
        check_runs(mechanism, rng)
    done = []
    with TemporaryDirectory() as folder, _own_state(Path(folder) / "state"):
        for name, tests in _parts(Path(folder), mechanism, rng):
            if only and not any(word in name for word in only):
                continue
            done.append(_timed(name, tests))
            on_progress(name)
    if not done:
        raise BadInput(f"expected a part of the audit, got {', '.join(only)}; name another")
    return ImplementationAudit(tuple(done))


@contextmanager
def _own_state(folder: Path) -> Iterator[None]:
    """What ledgers keep in the user's state folder, here: ledgers of an audit are nobody's."""
    before = os.environ.get("PANAS_STATE")
    os.environ["PANAS_STATE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("PANAS_STATE")
        if before is not None:
            os.environ["PANAS_STATE"] = before


Tests = Callable[[], tuple[Sequence[Finding], Sequence[UnitLoss]]]


def _parts(
    folder: Path, mechanism: Mechanism | None, rng: np.random.Generator
) -> Iterator[tuple[str, Tests]]:
    if mechanism is not None:
        yield mechanism.name, partial(_of_mechanism, mechanism, rng)
    for own in own_mechanisms(folder):
        yield own.name, partial(_of_mechanism, own, rng)
    others: dict[str, Callable[[], Sequence[Finding]]] = {
        "noise source": lambda: findings_of_source(SystemNoise),
        "Poisson batches": lambda: findings_of_batches(PLAN),
        "prices": lambda: list(findings_of_prices()),
        "ledger and gate": findings_of_charges,
        "secure sum": findings_of_sum,
    }
    for name, tests in others.items():
        yield name, partial(_without_units, tests)


def _of_mechanism(
    mechanism: Mechanism, rng: np.random.Generator
) -> tuple[Sequence[Finding], Sequence[UnitLoss]]:
    replayed = replay(mechanism, rng)
    return [*replayed.findings, *repeats(mechanism, rng)], replayed.worst


def _without_units(
    tests: Callable[[], Sequence[Finding]],
) -> tuple[Sequence[Finding], Sequence[UnitLoss]]:
    return tests(), ()


def _timed(name: str, tests: Tests) -> PartAudit:
    begun = time.perf_counter()
    try:
        findings, worst = tests()
    except Exception as e:
        says = f"it fails where it is sound: {type(e).__name__}: {e!s:.80}"
        findings, worst = [Finding("failures", name, 0.0, says)], ()
    return PartAudit(
        name=name,
        seconds=time.perf_counter() - begun,
        findings=tuple(findings),
        worst=tuple(worst),
    )
