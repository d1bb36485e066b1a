"""What a ledger refuses: shares that a budget for life does not hold, events that fit none."""

from pathlib import Path

from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account, within
from panas.privacy.ledger.charge import Charge
from panas.runtime.errors import BadInput, BudgetExhausted


def check_share(account: Account, run: str, share: Budget, path: Path) -> None:
    """Refuse a share that the budget for life does not hold."""
    if not account.admits(share):
        own = share.at(account.budget.delta)
        there = "" if own == share else f", which is epsilon {share.epsilon:g} at {share.delta:g}"
        raise BudgetExhausted(
            f"expected a share of at most epsilon {account.left():.3f} for run {run} on the data "
            f"of {path.parent}, which is left of {account.budget.epsilon:g} for life, got "
            f"{own.epsilon:g} at delta {own.delta:g}{there}; lower epsilon"
        )


def check_fits(account: Account, charge: Charge, path: Path) -> None:
    """Refuse an event for which the account has no leave, no run or no budget."""
    if charge.run and charge.run not in account.shares:
        raise BadInput(
            f"expected a run that has begun on {path}, got {charge.run!r}; begin it with its share "
            "of the budget"
        )
    if isinstance(charge.event, Unprotected):
        if not account.allow_unprotected:
            raise BadInput(
                f"expected every event on {path} to be protected, got {charge.mechanism} in the "
                f"{charge.phase}, which has epsilon infinity; allow it with "
                "allow_unprotected (of a run privacy.allow_unprotected=true, or preset = paper)"
            )
        return
    _check_total(account, charge, f"the data of {path.parent}")
    if charge.run:
        _check_total(account.of_run(charge.run), charge, f"run {charge.run} on {path.parent}")


def _check_total(account: Account, charge: Charge, what: str) -> None:
    """Refuse an event that does not fit the budget of an account, or the share of a run's."""
    # Beside other runs, the parts that this charge does not concern may have become dearer too.
    alone = {e.charge.run for e in account.entries} <= {charge.run}
    concerned = {leaf: within(leaf, charge.subset) for leaf in account.leaves}
    total = max(
        account.price([*account.events_on(leaf, charge.run), *[charge.event] * concerned[leaf]])
        for leaf in account.leaves
        if concerned[leaf] or not alone
    )
    if not total <= account.budget.epsilon:
        raise BudgetExhausted(
            f"expected {what} to stay within epsilon {account.budget.epsilon:g}, got {total:.3f} "
            f"with the next {charge.mechanism}; stopped before it, the last valid model is kept; "
            "raise epsilon or plan fewer rounds"
        )
