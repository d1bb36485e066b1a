"""Batches of a plan, and batches that are no Poisson samples of it."""

import numpy as np
import pytest
import torch

from attacks.conformance.finding import ERROR, alarms
from attacks.replay import sampling
from attacks.replay.sampling import PLAN, findings_of_batches
from panas.privacy import noise


def found() -> set[str]:
    return {f.part for f in alarms(findings_of_batches(PLAN), ERROR)}


def test_a_plans_batches_pass():
    assert found() == set()


def test_faults_fail(monkeypatch: pytest.MonkeyPatch):
    def patched(batch: object) -> set[str]:
        with monkeypatch.context() as m:
            m.setattr(noise, "poisson_batch", batch)
            return found()

    def of_one_size(samples: int, rate: float, source: noise.NoiseSource) -> torch.Tensor:
        return source.uniform(samples).argsort()[: round(rate * samples)]

    def too_many(samples: int, rate: float, source: noise.NoiseSource) -> torch.Tensor:
        return torch.nonzero(source.uniform(samples) < 1.15 * rate).flatten()

    def the_same(samples: int, rate: float, source: noise.NoiseSource) -> torch.Tensor:
        return torch.nonzero(torch.from_numpy(np.random.default_rng(0).random(samples)) < rate)[
            :, 0
        ]

    assert "rows, sizes of batches" in patched(of_one_size)
    assert "rows" in patched(too_many)
    assert "rows, two batches" in patched(the_same)


def test_groups_come_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling.Plan, "batches", _of_rows)
    assert "groups are whole" in found()


def _of_rows(
    plan: sampling.Plan, source: noise.NoiseSource, samples: int, groups: object
) -> object:
    return noise.poisson_batches(samples, plan.rate, plan.steps, source)
