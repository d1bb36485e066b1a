"""What the audit of a run finds, as `audit.json` holds it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attacks.audit.membership import NetworkAudit
from attacks.audit.verdict import MARGIN, Verdict
from attacks.epsilon.release import ReleaseAudit
from attacks.inference.labels import HistogramScore, LabelScore
from attacks.reconstruction.metrics import ReconstructionScore


@dataclass(frozen=True, kw_only=True)
class LabelAudit:
    """What a release says of labels."""

    rows: LabelScore | None
    """None where no row was released."""
    histogram: HistogramScore

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        rows = self.rows and self.rows.to_json()
        return {"rows": rows, "histogram": self.histogram.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "LabelAudit":
        """What `to_json` gave."""
        rows = record["rows"] and LabelScore.from_json(record["rows"])
        return cls(rows=rows, histogram=HistogramScore.from_json(record["histogram"]))


@dataclass(frozen=True, kw_only=True)
class ClientAudit:
    """What the audit of one client found."""

    id: int
    release: str | None = None
    """Its kind; None where nothing was released."""
    round: int | None = None
    noise_multiplier: float | None = None
    epsilon: float | None
    """That the ledger claims for all that the client did; None without a ledger."""
    samples: int = 0
    """Scored ones."""
    attacks: tuple[ReconstructionScore, ...] = ()
    controls: tuple[ReconstructionScore, ...] = ()
    labels: LabelAudit | None = None
    claim: ReleaseAudit | None = None
    """None where the release promises nothing."""
    verdict: Verdict
    evidence: str
    network: NetworkAudit | None = None
    """Of the network that the client keeps; None where it has none, or too few samples."""

    @property
    def best(self) -> ReconstructionScore | None:
        """The attack with the largest R^2; None where nothing was attacked."""
        return max(
            self.attacks, key=lambda s: -math.inf if math.isnan(s.r2) else s.r2, default=None
        )

    def control(self, name: str) -> ReconstructionScore | None:
        """A control by its name."""
        return next((s for s in self.controls if s.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return {
            "id": self.id,
            "release": self.release,
            "round": self.round,
            "noise_multiplier": self.noise_multiplier,
            "epsilon": "infinity" if self.epsilon == math.inf else self.epsilon,
            "samples": self.samples,
            "attacks": [s.to_json() for s in self.attacks],
            "controls": [s.to_json() for s in self.controls],
            "labels": self.labels and self.labels.to_json(),
            "claim": self.claim and self.claim.to_json(),
            "verdict": self.verdict,
            "evidence": self.evidence,
            "network": self.network and self.network.to_json(),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "ClientAudit":
        """What `to_json` gave."""
        epsilon, labels = record["epsilon"], record.get("labels")
        claim, network = record.get("claim"), record.get("network")
        scores = {
            name: tuple(ReconstructionScore.from_json(s) for s in record[name])
            for name in ("attacks", "controls")
        }
        typed = {
            "epsilon": None if epsilon is None else float(epsilon),
            "labels": labels and LabelAudit.from_json(labels),
            "claim": claim and ReleaseAudit.from_json(claim),
            "network": network and NetworkAudit.from_json(network),
        }
        return cls(**record | scores | typed)


@dataclass(frozen=True)
class DrawnAudit:
    """A client's audit, and its pictures by name, as PNG bytes."""

    audit: ClientAudit
    pictures: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class AuditSummary:
    """Means over the clients that released something; None if none did."""

    best_attack_r2: float | None
    same_class_mean_r2: float | None
    ceiling_r2: float | None
    verdicts: dict[str, int]
    network_verdicts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """What the audit of a run found."""

    seconds: float
    """Of the last stretch, where it was interrupted."""
    clients: tuple[ClientAudit, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        """All of them: of releases, and of networks."""
        found = [c.verdict for c in self.clients]
        return found + [c.network.verdict for c in self.clients if c.network]

    @property
    def summary(self) -> AuditSummary:
        """What the clients have in common."""

        def mean(pick: Callable[[ClientAudit], ReconstructionScore | None]) -> float | None:
            scores = [s for c in self.clients if (s := pick(c)) is not None]
            values = [round(s.r2, 6) for s in scores if math.isfinite(s.r2)]
            return round(float(np.mean(values)), 6) if values else None

        return AuditSummary(
            best_attack_r2=mean(lambda c: c.best),
            same_class_mean_r2=mean(lambda c: c.control("same-class mean")),
            ceiling_r2=mean(lambda c: c.control("ceiling")),
            verdicts=dict(Counter(c.verdict for c in self.clients)),
            network_verdicts=dict(Counter(c.network.verdict for c in self.clients if c.network)),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return {
            "scale": "[-1, 1]",
            "margin": MARGIN,
            "seconds": self.seconds,
            "clients": [c.to_json() for c in self.clients],
            "summary": asdict(self.summary),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "RunAudit":
        """What `to_json` gave."""
        clients = tuple(ClientAudit.from_json(c) for c in record["clients"])
        return cls(seconds=record["seconds"], clients=clients)
