"""`panas ledger`: the privacy card of every client."""

from pathlib import Path
from typing import Annotated

import typer

from dprbft.layout import ledger_file
from panas.errors import BadInput
from panas.privacy.accounting import Gaussian, SampledGaussian, Unprotected
from panas.privacy.ledger import Account, Entry, Ledger, totals
from panas_cli.report import print_json, print_text

UNPROTECTED = {
    "raw_rows": "the representation and the label of every sample leave as they are; whoever "
    "receives them can reconstruct the sample",
    "search on private samples": "architecture and settings were chosen by looking at private "
    "samples; whoever sees them learns from those samples, without bound",
    "sgd": "the network was trained without noise; its weights can remember single samples",
    "label-histogram": "the exact label counts decided the public sample that was searched on",
    "moments": "sums of representations leave without noise",
    "class_sums": "sums of representations leave without noise",
}


def ledger(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show what every client has spent, on what, and what is not covered."""
    if not ledger_file(run).is_file():
        raise BadInput(f"expected a run directory with a ledger at {run}, found none")
    accounts = Ledger(ledger_file(run)).accounts()
    rows = totals(accounts)
    if json:
        print_json({"run": str(run), "clients": rows})
        return
    for account, row in zip(accounts, rows, strict=True):
        print_text(
            f"client {account.client}: epsilon = {_figure(row['spent'])} of "
            f"{_figure(row['budget'])} at delta = {row['delta']:g}, for one training sample "
            "added or removed"
        )
        for line in _lines(account):
            print_text(f"  {line}")
    print_text(
        "not covered: that a client takes part and when, how long it computes, its number of "
        "samples, and the round and head that its validation split selects (they stay with it)"
    )


def _lines(account: Account) -> list[str]:
    """One line for each mechanism, with what all its uses cost together."""
    lines = []
    for phase in ("search", "training", "release"):
        entries = [e for e in account.entries if e.phase == phase]
        for mechanism in dict.fromkeys(e.mechanism for e in entries):
            lines.append(_line(account, phase, [e for e in entries if e.mechanism == mechanism]))
    return lines


def _line(account: Account, phase: str, entries: list[Entry]) -> str:
    first = entries[0]
    title = f"{phase}: {first.mechanism} x {len(entries)}, to {first.recipient}"
    if any(isinstance(e.event, Unprotected) for e in entries):
        return f"{title}: epsilon = infinity: {UNPROTECTED[first.mechanism]}"
    part = Account(account.client, account.budget, False, tuple(entries))
    return f"{title}: epsilon = {part.spent():.3f} ({_noise(entries)})"


def _noise(entries: list[Entry]) -> str:
    sampled = [e.event for e in entries if isinstance(e.event, SampledGaussian)]
    plain = [e.event for e in entries if isinstance(e.event, Gaussian)]
    sigmas = {e.noise_multiplier for e in sampled} | {e.noise_multiplier for e in plain}
    text = "noise multiplier " + ", ".join(f"{s:.4g}" for s in sorted(sigmas))
    if sampled:
        text += f", {sum(e.steps for e in sampled)} steps at q = {sampled[0].rate:.3g}"
    return text


def _figure(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:.3f}"
