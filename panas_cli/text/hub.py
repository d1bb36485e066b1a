"""What a run came to as its hub knows it: no accuracy, ledger or sample of a site is there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panas_cli.text.printing import (
    counted,
    figure,
    print_text,
    print_titled,
    print_words,
    size_text,
    titled,
)

ELSEWHERE = (
    "epsilon: by the noise that releases tell, without the label histogram beside them; accuracies "
    "and ledgers stay with the sites, and never cross the wire: there, "
    "`panas site show DIR`"
)


def show_hub(run: Path, summary: Mapping[str, Any]) -> None:
    """The summary of a hub's run as text."""
    bytes_ = summary["communication"]
    table = titled(f"hub, method {summary['method']}, preset {summary['preset']}")
    for name in ("site", "through", "rounds", "releases", "noise multiplier", "epsilon of them"):
        left = name in ("site", "through")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for s in summary["sites"]:
        table.add_row(
            s["name"],
            ", ".join(s["through"]) or "-",
            str(len(s["rounds"])),
            str(s["releases"]),
            _span(s["noise_multipliers"]),
            figure(s["epsilon_of_releases"], ".3g"),
        )
    print_titled(table)
    if head := summary["head"]:
        print_words(
            f"shared head: accuracy {head['accuracy']:.3f} on {counted(head['samples'], 'sample')} "
            "that are public, and that it was made with"
        )
    print_words(
        f"communication: {size_text(bytes_['up_bytes'])} up, {size_text(bytes_['down_bytes'])} "
        f"down in {counted(summary['rounds'], 'round')}; {_carried(bytes_)}"
    )
    print_words("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in summary["seconds"].items() if v))
    print_text("")
    print_words(f"run directory: {run}")
    if summary["absent"]:
        names = ", ".join(summary["absent"])
        print_words(
            f"warning: not through with all stages: {names}; --resume takes up what is back"
        )
    print_words(ELSEWHERE)


def _carried(found: Mapping[str, int]) -> str:
    up, down = found["carried_up_bytes"], found["carried_down_bytes"]
    return f"with public files and all else {size_text(up)} up, {size_text(down)} down"


def _span(noise: list[float | None]) -> str:
    """The noise multipliers of a site's releases, from the least to the most."""
    known = sorted(m for m in noise if m is not None)
    if not known:
        return "-"
    low, high = f"{known[0]:.3g}", f"{known[-1]:.3g}"
    return low if low == high else f"{low} to {high}"
