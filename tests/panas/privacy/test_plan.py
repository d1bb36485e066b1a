"""A plan's sampling, clip, noise and events are those of one client's rounds."""

import numpy as np
import pytest
import torch

from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.gradients.private import ClipAndNoise
from panas.privacy.noise import ReproducibleNoise, poisson_batch
from panas.privacy.plan import Plan
from panas.runtime.errors import BadInput

PLAN = Plan(samples=9, batch_size=3, clip=0.7, noise_multiplier=2.0, epochs=2, rounds=1)


@pytest.mark.parametrize(
    ("samples", "batch", "epochs", "rate", "steps"),
    [(100, 10, 1, 0.1, 10), (100, 30, 1, 0.3, 4), (10, 64, 3, 1.0, 3), (49, 7, 2, 1 / 7, 14)],
)
def test_rate_and_steps(samples: int, batch: int, epochs: int, rate: float, steps: int) -> None:
    plan = Plan(
        samples=samples, batch_size=batch, clip=1.0, noise_multiplier=2.0, epochs=epochs, rounds=5
    )
    assert plan.rate == pytest.approx(rate)
    assert plan.steps == steps
    assert plan.training_event == SampledGaussian(plan.rate, 2.0, steps)
    assert plan.events() == (SampledGaussian(plan.rate, 2.0, 5 * steps),)


def test_a_plan_without_releases_has_no_release_event() -> None:
    with pytest.raises(BadInput, match="plan with releases"):
        _ = PLAN.release_event


def test_batches_are_drawn_one_a_step_when_they_are_asked_for() -> None:
    one, other = (ReproducibleNoise(np.random.default_rng(4)) for _ in range(2))
    steps = 0
    for batch in PLAN.batches(one, 9):
        assert torch.equal(batch, poisson_batch(9, 1 / 3, other))
        assert torch.equal(one.normal(5), other.normal(5))  # between two batches
        steps += 1
    assert steps == PLAN.steps == 6


def test_a_step_divides_by_the_expected_batch() -> None:
    assert PLAN.clip_and_noise == ClipAndNoise(clip=0.7, noise_multiplier=2.0, batch_size=3.0)
