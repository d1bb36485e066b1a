"""A client's privacy budget: (epsilon, delta), for one sample added or removed."""

import math
from dataclasses import dataclass

from panas.errors import BadInput


@dataclass(frozen=True)
class Budget:
    """What one client may spend over the whole run.

    Attributes:
        epsilon: above 0; infinity means training without differential privacy.
        delta: in (0, 1), and below 1/n for a client with n samples (see `check`).

    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise BadInput(f"expected epsilon above 0, got {self.epsilon}; give a larger --epsilon")
        if not 0 < self.delta < 1:
            raise BadInput(f"expected delta in (0, 1), got {self.delta}; give another --delta")

    @property
    def private(self) -> bool:
        """Whether the budget is finite."""
        return math.isfinite(self.epsilon)

    def check(self, samples: int, client: int) -> None:
        """Refuse a delta that would allow a whole record to be published.

        Raises:
            BadInput: if delta is not below 1/samples.

        """
        if self.private and self.delta * samples >= 1:
            raise BadInput(
                f"expected delta below 1/n = {1 / samples:.1e} for client {client} with "
                f"{samples} training samples, got {self.delta:g}; give a smaller --delta"
            )
