"""What a site keeps between rounds, what it counts for the server, and what a round costs it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from baselines.common.spending import Mechanism, Planned, Spending, begin, charged
from dprbft.methods.rounds.plan import count_units
from dprbft.site.site import Client
from panas.privacy.accounting.events import Gaussian
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import LABEL_HISTOGRAM, unit_counts
from panas.training.any_model import logits_of

HELD_OUT = "search"
"""Validation samples, as the ledger names what is apart from "train": no training reads them."""

NEGLIGIBLE = 0.01
"""Share of delta that may be the chance of both parts to depend on one sample."""

BACKWARD = 3
"""Passes of MACs that training takes for a sample: forward, and twice that backward."""


@dataclass(frozen=True)
class Cost:
    """What a phase has cost a site."""

    macs: float = 0.0  # multiply-accumulates of training and testing
    down: int = 0  # bytes of messages received
    up: int = 0  # bytes of messages sent

    def more(self, macs: float, down: int, up: int) -> "Cost":
        """The same after a round."""
        return Cost(self.macs + macs, self.down + down, self.up + up)


@dataclass(frozen=True, kw_only=True)
class Here:
    """A site's record between rounds, beside the weights of its networks."""

    spending: Spending  # of DP-SGD and the label histogram
    counting: float | None  # noise multiplier of what it counts of validation samples; None: none
    widths: tuple[int, ...]  # of the network that it predicts with
    told: bool = False  # whether its label histogram has left
    final: bool = False  # whether it has planned its last rounds
    waiting: Mapping[str, str] = field(default_factory=dict)  # networks not sent yet: receipts
    cost: Mapping[str, Cost] = field(default_factory=dict)  # by phase
    frontier: tuple[Mapping[str, Any], ...] = ()  # what the server says of it at last

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Here":
        """Read back `to_json`."""
        known = {
            "spending": Spending.from_json(record["spending"]),
            "widths": tuple(record["widths"]),
            "cost": {phase: Cost(**cost) for phase, cost in record["cost"].items()},
            "frontier": tuple(record["frontier"]),
        }
        return Here(**{**record, **known})

    def paid(self, phase: str, macs: float, sizes: tuple[int, int]) -> "Here":
        """The same after a round of a phase, with the bytes that came down and went up."""
        cost = self.cost.get(phase, Cost()).more(macs, *sizes)
        return replace(self, cost={**self.cost, phase: cost})


def counting_noise(client: Client, reports: int) -> float | None:
    """The least noise multiplier at which so many counts of validation samples cost the budget.

    None without a budget; with one, None says that nothing may be counted.
    """
    if not (reports and stand_apart(client)):
        return None
    planned = Planned(
        batch_size=1,
        clip=1.0,
        epochs=1,
        rounds=0,
        releases=reports,
        release_share=0.99,  # nothing else reads these samples
        subset=HELD_OUT,
        samples=1,  # no batch is drawn of them
    )
    plan = begin(client, planned).plan
    return plan.release_noise if plan else None


def stand_apart(client: Client) -> bool:
    """Whether one unit more or less changes validation or training samples, but never both.

    Where no unit's hash is of the validation part, that part takes one from training
    (`panas.data.splits.hashed_split`), and a unit more changes both. Many units rule that out, but
    for a chance far below delta; how many there are at least, the noised count says.
    """
    count_units(client)
    least = 1 - client.config.data.validation_fraction
    return bool(least ** client.least_units() <= NEGLIGIBLE * client.budget.delta)


def label_counts(client: Client, noise: float | None, round: int) -> tuple[list[float], str]:
    """How many training samples there are of each class, and the receipt.

    Privacy: charged, then read; Gaussian noise of multiplier `noise`, exact and unprotected
    without. A sample (or a whole group) moves the counts by 1 in L2 norm.
    """
    mechanism = Mechanism(LABEL_HISTOGRAM, 1.0, phase="release")
    with charged(client, mechanism, _event(noise), round) as receipt:
        train = client.data.train
        counts = unit_counts(train.y, train.groups, train.classes)
        return _noised(counts, noise), receipt.id


def right_and_wrong(
    client: Client, model: nn.Module, noise: float | None, round: int
) -> tuple[list[float], str]:
    """How many validation samples a network gets right, and how many wrong; and the receipt.

    Privacy: as `label_counts`. Both counts leave, so that the number of samples does not; one
    sample is in one of the two.
    """
    mechanism = Mechanism("right-answers", 1.0, phase="release", subset=HELD_OUT)
    with charged(client, mechanism, _event(noise), round) as receipt:
        held = client.data.validation
        wrong = (logits_of(model, held).argmax(1) != held.y).long()
        return _noised(unit_counts(wrong, held.groups, 2), noise), receipt.id


def _event(noise: float | None) -> Gaussian | None:
    return None if noise is None else Gaussian(noise)


def _noised(counts: Float[Tensor, "c"], noise: float | None) -> list[float]:
    if noise is not None:
        counts = counts + noise * SystemNoise().normal(*counts.shape)
    return [float(n) for n in counts.to(torch.float32)]
