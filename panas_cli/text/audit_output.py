"""What audits found, as text."""

import math

from rich.table import Table

from attacks.audit.external_model import ModelAudit
from attacks.audit.records import RunAudit, SiteAudit
from attacks.reconstruction.metrics import ReconstructionScore
from panas_cli.text.printing import figure, print_titled, print_words, titled

HEADERS = {
    "same-class mean": "class\nmean",
    "shuffled": "shuffled",
    "random extractor": "untrained",
    "ceiling": "ceiling",
}
"""Controls in the audit's table, and their columns."""


def show_audit(audit: RunAudit) -> None:
    """The best attack beside its controls, one row a site, and the verdicts with evidence."""
    rows = [(c, best) for c in audit.clients if (best := c.best)]
    if rows:
        print_titled(_attacked(rows))
    for c in audit.clients:
        print_words(f"{c.name}: {c.verdict}: {c.evidence}")
        if n := c.network:
            print_words(f"  its network: {n.verdict}: {n.evidence}")
        else:
            print_words("  its network: not audited: none is kept, or too few samples or classes")


def show_model_audit(audit: ModelAudit) -> None:
    """The verdicts on a network trained elsewhere."""
    n, seen = audit.network, audit.outputs
    members, others = n.accuracy
    print_words(
        f"{audit.model}: accuracy {members:.3f} on what it was trained on, {others:.3f} on others"
    )
    print_words(f"membership: {n.verdict}: {n.evidence}")
    if seen:
        print_words(f"its answers: {seen.verdict}: {seen.evidence}")
    if audit.duplicates:
        print_words(
            f"{audit.duplicates} of the others are among what it was trained on, and were left out"
        )


def _attacked(rows: list[tuple[SiteAudit, ReconstructionScore]]) -> Table:
    left = ("site", "release", "best attack", "verdict")
    of_release = ("found\nof 10", "epsilon\nshown", "claimed", "noise\nof claim")
    table = titled(
        "audit: R^2 of reconstructed training samples (1: perfect, 0: the mean public sample)",
        (*left[:3], "R^2", "bar", *HEADERS.values(), *of_release, "verdict"),
        left,
    )
    table.columns[-1].min_width = 10
    for c, best in rows:
        controls = [None if (s := c.control(name)) is None else s.r2 for name in HEADERS]
        shown: tuple[float | None, ...] = (None, None, None)
        if claim := c.claim:
            shown = claim.epsilon_lower_bound, claim.claimed_epsilon, claim.noise_over_claim
        table.add_row(
            c.name,
            c.release,
            best.name,
            _two(best.r2),
            _two(None if (bar := c.bar) is None else bar.r2),
            *(_two(r2) for r2 in controls),
            _two(best.reidentified),
            *(_two(x) for x in shown),
            c.verdict,
        )
    return table


def _two(x: float | None) -> str:
    return figure(None if x is None or math.isnan(x) else x, ".2f")
