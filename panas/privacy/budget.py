"""A site's privacy budget: (epsilon, delta), for one sample or group of its data."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from panas.privacy.accounting.closed_form import equivalent_epsilon
from panas.runtime.errors import BadInput
from panas.runtime.typed import check_fields


@dataclass(frozen=True)
class Budget:
    """What one site may spend over the whole run."""

    epsilon: float  # above 0; infinity means training without differential privacy
    delta: float  # in (0, 1), and below 1/n for a site with n samples (see `check`)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.epsilon > 0:
            raise BadInput(f"expected epsilon above 0, got {self.epsilon}; raise it")
        if not 0 < self.delta < 1:
            raise BadInput(f"expected delta in (0, 1), got {self.delta}; give another")

    @property
    def private(self) -> bool:
        """Whether the budget is finite."""
        return math.isfinite(self.epsilon)

    def at(self, delta: float) -> "Budget":
        """The same at another delta: what the Gaussian mechanism that costs it costs there.

        Epsilon is 1e-12 at least, since that of a budget is above 0.
        """
        return Budget(max(1e-12, equivalent_epsilon(self.epsilon, self.delta, delta)), delta)

    def split(self, weights: Mapping[str, float]) -> dict[str, "Budget"]:
        """Parts of the budget in proportion to weights above 0, which need not add up to 1.

        Privacy: what the parts pay for composes to the budget, by basic composition. A run's
        ledger, which composes all events, is tighter.

        >>> import panas
        >>> parts = panas.Budget(8.0, 1e-5).split({"search": 1, "training": 3})
        >>> round(parts["training"].epsilon, 3)
        6.0
        """
        if not weights or not all(0 < w < math.inf for w in weights.values()):
            raise BadInput(f"expected weights above 0 for a split, got {dict(weights)}; mend them")
        # Rounded down by more than all the sums of floats can be off.
        whole = math.fsum(weights.values()) * (1 + 1e-12)
        return {
            name: Budget(self.epsilon * (w / whole), self.delta * (w / whole))
            for name, w in weights.items()
        }

    def check(self, samples: int, who: str) -> None:
        """Refuse a delta of 1/n or more for n samples (or groups), and warn of one above 1/(10 n).

        Delta is the probability with which the promise may fail altogether: publishing one of n
        samples, drawn by lot, is (0, 1/n)-private.
        """
        expected = self.delta * samples
        if not self.private or expected <= 0.1:
            return
        of = f"{who} with {samples} training samples"
        if expected >= 1:
            raise BadInput(
                f"expected delta below 1/n = {1 / samples:.1e} for {of}, got {self.delta:g}, at "
                "which publishing a whole sample counts as private; give a smaller delta"
            )
        warnings.warn(
            f"delta {self.delta:g} is above 1/(10 n) = {0.1 / samples:.1e} for {of}: with up to "
            f"that probability the promise fails; a smaller delta promises more",
            stacklevel=2,
        )
