"""What a run of method joined came to, in words: what sites predict with, and what joining brought.

A summary's client has `shares` where it averages several predictors, as sites do that have joined
before they searched; clients of methods of rounds have none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from panas.training.ladder import Ladder
from panas_cli.text.printing import counted

CANDIDATES = {
    "public": "public head",
    "shared": "shared head",
    "own": "own head",
    "shrunk": "own head shrunk to the shared one",
    "residual": "shared head with private residual",
    "network": "network",
}
"""What a site that has joined may predict with."""
LEAST = 0.05
"""Share from which on a candidate is named."""
POINT = 0.01
"""The accuracy that a site must gain or lose to be counted."""


def has_joined(clients: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a summary's clients average predictors."""
    return any(c.get("shares") for c in clients)


def shares_text(shares: Mapping[str, float]) -> str:
    """What an average is made of, the largest parts, as validation samples weigh them."""
    parts = sorted(((share, name) for name, share in shares.items()), reverse=True)
    told = [(CANDIDATES[name], share) for share, name in parts if share >= LEAST]
    rest = 1 - sum(share for _, share in told)
    told += [("others", rest)] if rest >= LEAST / 10 else []
    return "predicts with " + ", ".join(f"{name} {share:.0%}" for name, share in told)


def kept_lines(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each site predicts with, and why."""
    return [_kept(c) for c in clients if c.get("shares")]


def _kept(client: Mapping[str, Any]) -> str:
    n = client["samples"]["validation"]
    why = (
        f"weighed by its {counted(n, 'validation sample')}"
        if n
        else "all alike: nothing to weigh by"
    )
    return f"{client['name']} {shares_text(client['shares'])}, {why}"


def gain_line(ladder: Ladder, clients: Sequence[Mapping[str, Any]]) -> str:
    """What joining brought over what each site does alone, and to how many."""
    assert ladder.joined is not None
    assert ladder.alone is not None
    gains = [
        round(steps.joined - steps.alone, 9)
        for c in clients
        if (steps := Ladder.from_json(c["ladder"])).joined is not None and steps.alone is not None
    ]
    mean = f"{ladder.joined - ladder.alone:+.3f}"
    helped = "helped" if float(mean) > 0 else "did not help"
    gained, lost = sum(g > POINT for g in gains), sum(g < -POINT for g in gains)
    text = (
        f"joining {helped} ({mean} over each site alone): of {counted(len(gains), 'site')}, "
        f"{gained} gained more than a point and {lost} lost more than one"
    )
    if ladder.public is not None and ladder.public >= ladder.joined:
        text += f"; public samples alone do as well ({ladder.public:.3f})"
    return text
