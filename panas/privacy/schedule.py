"""What a site will charge to its budget, as far as it is known before tuning."""

from collections.abc import Sequence
from dataclasses import dataclass

from panas.privacy.accounting.events import Event
from panas.runtime.typed import check_fields


@dataclass(frozen=True, kw_only=True)
class TrainingSchedule:
    """A site's part in the federation, as far as its budget is concerned."""

    samples: int  # n, privacy units (`Samples.units`), at least 1, or a public number near it
    epochs: int  # local passes a round, at least 1
    steps_a_round: int | None = None  # of an optimiser, at least 1, in the place of `epochs`
    rounds: int = 1  # that it still trains in, 0 or more
    releases: int = 0  # that it still makes, all of the same record
    release_share: float = 0.3  # of epsilon, in (0, 1): sizes the noise of the releases
    spent: Sequence[Event] = ()  # what it was charged before

    def __post_init__(self) -> None:
        check_fields(self)
