"""A site's whole privacy plan: sampling, clip, noise and accounting events, as one fact.

Sigma is written here and nowhere else; `panas.privacy.calibration.calibrate` solves for it. A plan
is priced under add-or-remove-one, of one privacy unit: a sample, or a group with all its samples.

| symbol | name |
|---|---|
| n | `samples`, a public number near that of the privacy units: training samples or groups |
| B | `batch_size`, the *expected* number of units of a Poisson batch |
| q = B / n | `rate` |
| sigma | `noise_multiplier` of DP-SGD |
| C | `clip`, norm to which each unit's gradient is clipped |
| m | `release_noise`, noise multiplier of one release |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Int, Int64
from torch import Tensor

from panas.privacy.accounting.events import Event, Gaussian, SampledGaussian
from panas.privacy.gradients.private import ClipAndNoise
from panas.privacy.noise import NoiseSource, poisson_batches
from panas.privacy.unit import number_units, rows_of
from panas.runtime.errors import BadInput
from panas.runtime.typed import check_fields


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one site will do with its training samples, and with how much noise.

    >>> import panas
    >>> plan = panas.Plan(
    ...     samples=1000, batch_size=100, clip=1.0, noise_multiplier=1.1, epochs=2, rounds=3
    ... )
    >>> plan.rate, plan.steps
    (0.1, 20)
    >>> plan.events()
    (SampledGaussian(rate=0.1, noise_multiplier=1.1, steps=60),)
    """

    samples: int  # n, at least 1; public, and perhaps noised: there may be more units, or fewer
    batch_size: int  # above n: the full batch
    clip: float  # C, above 0
    noise_multiplier: float  # sigma of DP-SGD, above 0
    epochs: int  # passes over the data a round
    rounds: int  # in which the site trains
    steps_a_round: int | None = None  # in the place of whole passes
    releases: int = 0  # of the same record
    release_noise: float | None = None  # None: nothing is released under noise

    @property
    def rate(self) -> float:
        """Sampling rate q in (0, 1]."""
        return min(1.0, self.batch_size / self.samples)

    @property
    def steps(self) -> int:
        """Optimiser steps of one round."""
        if self.steps_a_round is not None:
            return self.steps_a_round
        return max(1, math.ceil(self.epochs / self.rate - 1e-9))

    @property
    def clip_and_noise(self) -> ClipAndNoise:
        """What one step does to its gradient."""
        return ClipAndNoise(
            clip=self.clip,
            noise_multiplier=self.noise_multiplier,
            batch_size=self.rate * self.samples,
        )

    def batches(
        self, noise: NoiseSource, samples: int, groups: Int64[Tensor, "n"] | None = None
    ) -> Iterator[Int[Tensor, "b"]]:
        """The indices of one round's Poisson batches; a group comes with all its samples.

        Args:
            noise: what draws them.
            samples: how many there are. Each unit is drawn at the plan's rate, whatever n says: so
                the price holds, and the number of batches and the divisor tell nothing of it.
            groups: of each sample; None: every sample is a unit.
        """
        if groups is None:
            return poisson_batches(samples, self.rate, self.steps, noise)
        units = number_units(groups)
        number = int(units.max()) + 1 if len(units) else 0
        drawn = poisson_batches(number, self.rate, self.steps, noise)
        return (rows_of(units, batch) for batch in drawn)

    @property
    def training_event(self) -> SampledGaussian:
        """What one round of DP-SGD costs."""
        return SampledGaussian(self.rate, self.noise_multiplier, self.steps)

    @property
    def release_event(self) -> Gaussian:
        """What one release costs."""
        if self.release_noise is None:
            raise BadInput("expected a plan with releases, got one without; set release_noise")
        return Gaussian(self.release_noise)

    def events(self) -> tuple[Event, ...]:
        """Everything the plan will charge."""
        training = replace(self.training_event, steps=self.steps * self.rounds)
        releases = (self.release_event,) * self.releases if self.release_noise else ()
        return (training, *releases) if self.rounds else releases


@dataclass(frozen=True, kw_only=True)
class TrainingSchedule:
    """What a site will charge to its budget, as far as it is known before tuning."""

    samples: int  # n, privacy units (`Samples.units`), at least 1, or a public number near it
    epochs: int  # local passes a round, at least 1
    steps_a_round: int | None = None  # of an optimiser, at least 1, in the place of `epochs`
    rounds: int = 1  # that it still trains in, 0 or more
    releases: int = 0  # that it still makes, all of the same record
    release_share: float = 0.3  # of epsilon, in (0, 1): sizes the noise of the releases
    spent: Sequence[Event] = ()  # what it was charged before

    def __post_init__(self) -> None:
        check_fields(self)
