"""`panas site accept`: what an owner takes as it is, after a backup was put back."""

from pathlib import Path

from dprbft.paths import ledger_file
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas_cli.text.printing import counted, figure, json_number, print_json, print_text


def accept(folder: Path, *, json: bool) -> None:
    """Charge what a restored ledger lacks, and say what is spent then."""
    path = ledger_file(folder)
    if not path.is_file():
        raise BadInput(f"expected a site with a {path.name} at {folder}, found none; check DIR")
    ledger = Ledger(path)
    charges = ledger.accept_restored()
    account = ledger.account()
    spent, left = account.spent(), account.left()
    if json:
        record = {"site": str(folder), "charges": charges, "spent": json_number(spent)}
        print_json(record | {"budget": json_number(account.budget.epsilon), "left": left})
        return
    print_text(
        f"{path}: {counted(charges, 'missing charge')} put back; epsilon {figure(spent)} of "
        f"{figure(account.budget.epsilon)} is spent, {figure(left)} is left"
    )
