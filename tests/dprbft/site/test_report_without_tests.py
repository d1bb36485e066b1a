"""A report of a site without test samples: figures of nothing are none, and it is read back."""

import math
from pathlib import Path

import torch

from dprbft.site.results.report import SiteReport, Steps
from panas.training.metrics import measure


def test_a_report_without_test_samples_is_written_and_read(tmp_path: Path):
    nothing = math.nan
    SiteReport(
        samples={"train": 1, "test": 0},
        metrics=measure(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)),
        baselines=None,
        steps=Steps(
            public=None, alone=nothing, shared=nothing, joined=nothing, best=nothing, network=0.5
        ),
        setting={},
        shares={},
        candidates={"shared": nothing},
    ).write(tmp_path)
    read = SiteReport.read(tmp_path)
    assert (read.steps.alone, read.steps.network) == (None, 0.5)
    assert math.isnan(read.steps.joined)
    assert read.candidates == {"shared": None}
    assert read.metrics.accuracy is None
