"""Charges for several steps of DP-SGD at once, in methods whose rounds are single steps.

The ledger prices all that was charged at every charge, and writes it to the disk: for a thousand
rounds of one step that takes longer than the steps. So a charge pays for a block of steps, before
the first of them; later ones use its receipt. A step that is done again after a death is paid
already: what a site has done is kept before it leaves, so the first outcome never did.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from baselines.common.spending import (
    Mechanism,
    Planned,
    Spending,
    after_round,
    begin,
    charged,
    current,
)
from dprbft.site.site import Client
from panas.privacy.plan import Plan
from panas.runtime.errors import BudgetExhausted


@dataclass(frozen=True, kw_only=True)
class Prepaid:
    """What a site has planned for one part of its samples, and paid of it; a plan's round is a
    block of steps."""

    spending: Spending
    receipt: str = ""  # of the last charge
    left: int = 0  # steps that it still pays for

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return {"spending": self.spending.to_json(), "receipt": self.receipt, "left": self.left}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Prepaid":
        """Read back `to_json`."""
        return Prepaid(**{**record, "spending": Spending.from_json(record["spending"])})

    @property
    def plan(self) -> Plan | None:
        """None without protection."""
        return self.spending.plan


class Paid(NamedTuple):
    """A step that may be done."""

    account: Prepaid  # as it stands after the step
    receipt: str  # of the charge that covers it


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps on one part of a site's samples."""

    subset: str  # as the ledger names the part
    samples: int  # privacy units of the part
    number: int  # of all rounds, at least 1
    batch_size: int  # expected
    clip: float
    at_once: int = 10  # steps that a charge pays for, at most

    @property
    def blocks(self) -> int:
        """Charges for all of them."""
        return math.ceil(self.number / self.at_once)

    @property
    def block(self) -> int:
        """Steps that a charge pays for: as few as so many charges allow."""
        return math.ceil(self.number / self.blocks)


def plan_steps(client: Client, steps: Steps, noise_multiplier: float | None = None) -> Prepaid:
    """The least noise that the budget allows, or the given one.

    BudgetExhausted if no noise is enough, or the given one is not.
    """
    planned = Planned(
        batch_size=steps.batch_size,
        clip=steps.clip,
        epochs=1,
        steps_a_round=steps.block,
        rounds=steps.blocks,
        subset=steps.subset,
        samples=steps.samples,
    )
    spending = begin(client, planned)
    if noise_multiplier is None:
        return Prepaid(spending=spending)
    if spending.plan is not None and spending.plan.noise_multiplier > noise_multiplier:
        raise BudgetExhausted(
            f"expected noise of at least {spending.plan.noise_multiplier:.3g} times the clip for "
            f"{steps.number} steps on {client.place.name}, got {noise_multiplier:g}; raise "
            "federation.options.noise_multiplier or privacy.epsilon"
        )
    plan = Plan(
        samples=steps.samples,
        batch_size=steps.batch_size,
        clip=steps.clip,
        noise_multiplier=noise_multiplier,
        epochs=1,
        steps_a_round=steps.block,
        rounds=steps.blocks,
    )
    return Prepaid(spending=replace(spending, plan=plan))


@contextmanager
def paid_step(
    client: Client, account: Prepaid, mechanism: Mechanism, round: int
) -> Iterator[Paid | None]:
    """Within it the part may be read for one step.

    None where the budget pays for no further step: nothing may be read. Without a plan the step is
    charged as unprotected.
    """
    spending = account.spending
    if spending.plan is None:
        with charged(client, mechanism, None, round) as receipt:
            yield Paid(account, receipt.id)
    elif account.left:
        yield Paid(replace(account, left=account.left - 1), account.receipt)
    else:
        spending = current(client, spending)
        if spending.skips or spending.plan is None:
            yield None
            return
        plan = spending.plan
        with charged(client, mechanism, plan.training_event, round) as receipt:
            after = after_round(client, spending)
            left = Prepaid(spending=after, receipt=receipt.id, left=plan.steps - 1)
            yield Paid(left, receipt.id)
