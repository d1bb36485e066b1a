"""What a site finds out about its own network: for its owner, and for a simulator's summary.

All of it is measured on the site's own test samples, and stays in the site's folder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dprbft.paths import report_file
from dprbft.site.site import Client
from dprbft.site.state import State
from panas.data.samples import Samples
from panas.runtime.store import read_json, write_json
from panas.training.baselines import Baselines, FittedBaselines, baselines, fit_baselines
from panas.training.evaluate import represent
from panas.training.metrics import Metrics, measure


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """How the network that validation selected does, and what it must beat."""

    samples: dict[str, int]  # by split
    metrics: Metrics
    baselines: Baselines | None  # None where the run leaves them out

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "samples": self.samples,
            "metrics": self.metrics.to_json(),
            "baselines": self.baselines.to_json() if self.baselines else None,
        }

    @staticmethod
    def read(home: Path) -> "SiteReport":
        """A site's report; BadInput if it made none."""
        record = read_json(report_file(home))
        known = record["baselines"]
        return SiteReport(
            samples=record["samples"],
            metrics=Metrics.from_json(record["metrics"]),
            baselines=Baselines.from_json(known) if known else None,
        )


def write_report(client: Client, state: State) -> None:
    """Measure a site's selected network, and what it must beat, on its test samples."""
    bottom, head = state.kept_networks(client)
    data, test = client.data, client.data.test
    with torch.no_grad():
        z = represent(bottom, test)
        logits = head.cpu()(z.cpu())
    must_beat = None
    if client.config.federation.baselines:
        fitted = _on_public(client.public, client.config.seed) if len(client.public) else None
        must_beat = baselines(client.public, data.train, test, client.config.seed, fitted)
    splits = ("search", "train", "validation", "test")
    report = SiteReport(
        samples={name: len(getattr(data, name)) for name in splits},
        metrics=measure(logits, test.y),
        baselines=must_beat,
    )
    write_json(report_file(client.home), report.to_json())


_FITTED: dict[tuple[int, int], FittedBaselines] = {}


def _on_public(public: Samples, seed: int) -> FittedBaselines:
    """The models of the public samples; the same for all sites that this process serves."""
    key = (id(public), seed)
    if key not in _FITTED:
        _FITTED.clear()
        _FITTED[key] = fit_baselines([public], "public", seed)
    return _FITTED[key]
