"""What the audit of a run finds, as `audit.json` holds it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import numpy as np

from attacks.audit.membership import NetworkAudit
from attacks.audit.verdict import ERROR, MARGIN, Verdict, bar_of, best_of
from attacks.conformance.company import Noise
from attacks.conformance.finding import Finding
from attacks.epsilon.release import ReleaseAudit
from attacks.inference.labels import LabelAudit
from attacks.reconstruction.metrics import ReconstructionScore


def as_json(record: object) -> dict[str, Any]:
    """The fields of a record; those that know their own JSON by that."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(v) for v in value]
        if hasattr(value, "to_json"):
            return value.to_json()
        return as_json(value) if is_dataclass(value) else value

    return {name: plain(value) for name, value in vars(record).items()}


@dataclass(frozen=True, kw_only=True)
class SiteAudit:
    """What the audit of one site found."""

    id: int
    name: str  # of its site
    release: str | None = None  # its kind; None where nothing was released
    round: int | None = None
    noise_multiplier: float | None = None
    epsilon: float | None  # that the ledger claims for all that the site did; None without a ledger
    samples: int = 0  # scored ones
    attacks: tuple[ReconstructionScore, ...] = ()
    controls: tuple[ReconstructionScore, ...] = ()
    labels: LabelAudit | None = None
    claim: ReleaseAudit | None = None  # None where the release promises nothing
    verdict: Verdict
    evidence: str
    network: NetworkAudit | None = None
    """Of the network that the site keeps; None where it has none, or too few samples."""
    findings: tuple[Finding, ...] = ()
    """Tests of the noise of what it sent (`attacks.conformance`)."""

    @property
    def best(self) -> ReconstructionScore | None:
        """The attack that gains most over its bar; None where nothing was attacked."""
        return best_of(self.attacks, self.controls) if self.attacks else None

    @property
    def bar(self) -> ReconstructionScore | None:
        """The best control that knows what the best attack knows, but for the release."""
        return None if (best := self.best) is None else bar_of(best, self.controls)

    def control(self, name: str) -> ReconstructionScore | None:
        """A control by its name."""
        return next((s for s in self.controls if s.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        best, bar = self.best, self.bar
        named = {"best_attack": best and best.name, "bar": bar and bar.name}
        infinite = {"epsilon": "infinity"} if self.epsilon == math.inf else {}
        return as_json(self) | named | infinite

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "SiteAudit":
        """What `to_json` gave."""
        types: dict[str, Callable[[Any], Any]] = {
            "epsilon": float,
            "labels": LabelAudit.from_json,
            "claim": ReleaseAudit.from_json,
            "network": NetworkAudit.from_json,
        }
        typed = {k: None if (v := record.get(k)) is None else f(v) for k, f in types.items()}
        scores = {
            name: tuple(ReconstructionScore.from_json(s) for s in record[name])
            for name in ("attacks", "controls")
        }
        findings = tuple(Finding.from_json(f) for f in record.get("findings", ()))
        fields = {k: v for k, v in record.items() if k not in ("best_attack", "bar")}
        return cls(**fields | scores | typed | {"findings": findings})


@dataclass(frozen=True)
class DrawnAudit:
    """A site's audit, and its pictures by name, as PNG bytes."""

    audit: SiteAudit
    pictures: Mapping[str, bytes]
    noise: Noise = field(default_factory=dict, compare=False)
    """Of its release, to be compared with that of others."""


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """What the audit of a run found."""

    seconds: float
    """Of the last stretch, where it was interrupted."""
    clients: tuple[SiteAudit, ...]
    findings: tuple[Finding, ...] = ()
    """Tests of the sites' releases beside each other, and of a sum."""

    @property
    def verdicts(self) -> list[Verdict]:
        """All of them: of releases, and of networks."""
        return [c.verdict for c in self.clients] + self._network_verdicts

    @property
    def _network_verdicts(self) -> list[Verdict]:
        return [c.network.verdict for c in self.clients if c.network]

    def _mean(self, pick: Callable[[SiteAudit], ReconstructionScore | None]) -> float | None:
        scores = [s.r2 for c in self.clients if (s := pick(c)) is not None]
        values = [round(r2, 6) for r2 in scores if math.isfinite(r2)]
        return round(float(np.mean(values)), 6) if values else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record; its summary has means over the sites that released something."""
        return {
            "scale": "[-1, 1]",
            "margin": MARGIN,
            "false_alarms": ERROR,
            "seconds": self.seconds,
            "clients": [c.to_json() for c in self.clients],
            "findings": [f.to_json() for f in self.findings],
            "summary": {
                "best_attack_r2": self._mean(lambda c: c.best),
                "bar_r2": self._mean(lambda c: c.bar),
                "same_class_mean_r2": self._mean(lambda c: c.control("same-class mean")),
                "ceiling_r2": self._mean(lambda c: c.control("ceiling")),
                "verdicts": dict(Counter(c.verdict for c in self.clients)),
                "network_verdicts": dict(Counter(self._network_verdicts)),
            },
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "RunAudit":
        """What `to_json` gave."""
        clients = tuple(SiteAudit.from_json(c) for c in record["clients"])
        findings = tuple(Finding.from_json(f) for f in record.get("findings", ()))
        return cls(seconds=record["seconds"], clients=clients, findings=findings)
