"""What a site finds out about its own network: for its owner, and for a simulator's summary.

All of it is measured on the site's own test samples, and stays in the site's folder.
"""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dprbft.paths import report_file
from dprbft.site.site import Site
from panas.data.samples import Samples
from panas.runtime.store import read_json, write_json
from panas.training.baselines import Baselines, FittedBaselines, baselines, fit_baselines
from panas.training.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Test accuracies, a step above the other; None for a step that was not made."""

    public: float | None  # with what public samples alone teach
    alone: float | None  # on the site's own samples alone
    shared: float | None  # with the shared head
    joined: float  # with what the site keeps; NaN without test samples
    best: float  # the highest that was seen; nothing is chosen by it
    network: float | None  # of its own network by itself
    local: float | None = None  # after local training of a model that others have trained too
    # Test samples on which exactly one of alone and joined is right; None where not compared.
    differ: int | None = None


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """How what a site keeps does, and what it must beat."""

    samples: dict[str, int]  # by split
    metrics: Metrics
    baselines: Baselines | None  # None where the run leaves them out
    steps: Steps
    setting: dict[str, Any]  # of DP-SGD and release
    shares: dict[str, float]  # of each candidate in what is kept, where several are averaged
    selected_round: int = 1
    blend: float = 0.0  # the own head's share, where two heads are blended
    # Test accuracy of each candidate by itself, with the site's prior.
    candidates: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "samples": self.samples,
            "metrics": self.metrics.to_json(),
            "baselines": self.baselines.to_json() if self.baselines else None,
            "steps": {name: _told(figure) for name, figure in asdict(self.steps).items()},
            "setting": self.setting,
            "shares": self.shares,
            "candidates": {name: _told(figure) for name, figure in self.candidates.items()},
            "selected_round": self.selected_round,
            "blend": self.blend,
        }

    def write(self, home: Path) -> None:
        """Write the report to its place in a site's folder."""
        write_json(report_file(home), self.to_json())

    @staticmethod
    def read(home: Path) -> "SiteReport":
        """A site's report; BadInput if it made none."""
        record = read_json(report_file(home))
        known, steps = record["baselines"], dict(record["steps"])
        for name in ("joined", "best"):
            steps[name] = math.nan if steps[name] is None else steps[name]
        parts = {
            "metrics": Metrics.from_json(record["metrics"]),
            "baselines": Baselines.from_json(known) if known else None,
            "steps": Steps(**steps),
        }
        return SiteReport(**(record | parts))


def _told(figure: float | None) -> float | None:
    """A figure as JSON has it: no number of none, as the share of no samples is."""
    return figure if figure is not None and math.isfinite(figure) else None


def sizes(site: Site) -> dict[str, int]:
    """Samples of each split."""
    splits = ("search", "train", "validation", "test")
    return {name: len(getattr(site.data, name)) for name in splits}


def baselines_of(site: Site) -> Baselines | None:
    """What the site must beat on its test samples; None where the run leaves that out."""
    if not site.config.federation.baselines:
        return None
    public, seed, data = site.public, site.config.seed, site.data
    fitted = _on_public(public, seed) if len(public) else None
    return baselines(public, data.train, data.test, seed, fitted)


_FITTED: dict[tuple[int, int], FittedBaselines] = {}


def _on_public(public: Samples, seed: int) -> FittedBaselines:
    """The models of the public samples; the same for all sites that this process serves."""
    key = (id(public), seed)
    if key not in _FITTED:
        _FITTED.clear()
        _FITTED[key] = fit_baselines([public], "public", seed)
    return _FITTED[key]
