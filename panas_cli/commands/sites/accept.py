"""`panas site accept`: what an owner takes as it is, after a backup was put back."""

from pathlib import Path

from dprbft.site.directory import read_site, site_ledger
from panas_cli.text.printing import counted, figure, json_number, print_json, print_text


def accept(folder: Path, *, json: bool) -> None:
    """Charge what a restored ledger lacks, and say what is spent then."""
    read_site(folder)
    ledger = site_ledger(folder)
    charges = ledger.accept_restored()
    account = ledger.account()
    spent, left = account.spent(), account.left()
    if json:
        record = {"site": str(folder), "charges": charges, "spent": json_number(spent)}
        print_json(record | {"budget": json_number(account.budget.epsilon), "left": left})
        return
    print_text(
        f"{ledger.path}: {counted(charges, 'missing charge')} put back; epsilon {figure(spent)} of "
        f"{figure(account.budget.epsilon)} is spent, {figure(left)} is left"
    )
