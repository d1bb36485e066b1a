"""What a client will charge to its budget, as far as it is known before tuning."""

from collections.abc import Sequence
from dataclasses import dataclass

from panas.privacy.accounting.events import Event


@dataclass(frozen=True, kw_only=True)
class TrainingSchedule:
    """A client's part in the federation, as far as its budget is concerned.

    Attributes:
        samples: n, its training samples, at least 1.
        epochs: local passes a round, at least 1.
        rounds: rounds that it still trains in, 0 or more.
        releases: releases that it still makes, all of the same record.
        release_share: share of epsilon that sizes the noise of the releases, in (0, 1).
        spent: what it was charged before.
    """

    samples: int
    epochs: int
    rounds: int = 1
    releases: int = 0
    release_share: float = 0.3
    spent: Sequence[Event] = ()
