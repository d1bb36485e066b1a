"""`panas report`: what a run came to, as text; also what `run` and `train` end with."""

import json as json_library
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dprbft.config.files import load_config
from dprbft.run.summary import summarise
from panas.runtime.store import read_json

HEADERS = {
    "same-class mean": "class\nmean",
    "shuffled": "shuffled",
    "random extractor": "untrained",
    "ceiling": "ceiling",
}
"""Controls in the audit's table, and their columns."""


def report(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show a run's results: clients, accuracy, privacy, communication, audit."""
    show(run, summarise(run, load_config(run)), json)


def print_json(record: dict[str, Any]) -> None:
    """One JSON object on stdout, and nothing else."""
    sys.stdout.write(json_library.dumps(record, allow_nan=False) + "\n")


def print_text(line: str) -> None:
    """One line on stdout."""
    sys.stdout.write(line + "\n")


def show(run: Path, summary: dict[str, Any], json: bool) -> None:
    """The summary, and the audit if there is one, as text or JSON."""
    audit = read_json(run / "audit.json") if (run / "audit.json").exists() else None
    if json:
        print_json(summary | {"run": str(run), "audit": audit and audit["summary"]})
        return
    console = _console()
    console.print(_clients(summary))
    a, bytes_, s = summary["accuracy"], summary["communication"], summary["seconds"]
    console.print(
        f"accuracy: mean {a['mean']:.3f}, std {a['std']:.3f} over clients (on their own test "
        f"splits: the simulator's view); last round {_share(a['local_last'])} before and "
        f"{_share(a['global_last'])} after the head's replacement",
        soft_wrap=True,
    )
    console.print(
        f"communication: {_bytes(bytes_['up_bytes'])} up, {_bytes(bytes_['down_bytes'])} down in "
        f"{_count(summary['rounds'], 'round')}; the search sent nothing",
        soft_wrap=True,
    )
    console.print("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in s.items()))
    if audit:
        console.print()
        show_audit(audit)
    console.print(f"\nrun directory: {run}", soft_wrap=True)


def _console() -> Console:
    console = Console(highlight=False, markup=False)
    # A pipe has no width of its own; tables cut to 80 columns would lose the genomes.
    return console if console.is_terminal else Console(highlight=False, markup=False, width=140)


def _clients(summary: dict[str, Any]) -> Table:
    table = Table(
        title=f"{summary['dataset']}, preset {summary['preset']}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name, justify in (
        ("client", "right"),
        ("genome", "left"),
        ("parameters", "right"),
        ("before", "right"),
        ("after", "right"),
        ("kept", "right"),
        ("epsilon", "right"),
        ("release", "right"),
        ("search", "right"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for c in summary["clients"]:
        a, e = c["accuracy"], c["epsilon"]
        table.add_row(
            str(c["id"]),
            c["genome"],
            f"{c['parameters']:,}",
            _share(a["local_last"]),
            _share(a["global_last"]),
            f"{a['selected']:.3f} (round {c['selected_round']})",
            f"{_epsilon(e['spent'])} of {_epsilon(e['budget'])}",
            _epsilon(e["release"]),
            _epsilon(e["search"]),
        )
    return table


def show_audit(audit: dict[str, Any]) -> None:
    """The best attack beside its controls, one row a client, and the verdicts with evidence."""
    console = _console()
    rows = [c for c in audit["clients"] if c["attacks"]]
    if rows:
        console.print(_attacked(rows))
    for c in audit["clients"]:
        console.print(f"client {c['id']}: {c['verdict']}: {c['evidence']}", soft_wrap=True)
        if n := c.get("network"):
            console.print(f"  its network: {n['verdict']}: {n['evidence']}", soft_wrap=True)
        else:
            console.print("  its network: not audited: none is kept, or too few samples or classes")


def show_model_audit(audit: dict[str, Any]) -> None:
    """The verdicts on a network trained elsewhere."""
    console = _console()
    a = audit["network"]["accuracy"]
    console.print(
        f"{audit['model']}: accuracy {a['members']:.3f} on what it was trained on, "
        f"{a['others']:.3f} on others"
    )
    n, seen = audit["network"], audit["outputs"]
    console.print(f"membership: {n['verdict']}: {n['evidence']}", soft_wrap=True)
    if seen:
        console.print(f"its answers: {seen['verdict']}: {seen['evidence']}", soft_wrap=True)


def _attacked(rows: list[dict[str, Any]]) -> Table:
    """R^2 of the best attack and of its controls, and what each release claims."""
    table = Table(
        title="audit: R^2 of reconstructed training images (1: perfect, 0: the mean public image)",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("client", "release", "best attack", "R^2", *HEADERS.values()):
        table.add_column(name, justify="left" if name in ("release", "best attack") else "right")
    for name in ("found\nof 10", "epsilon\nshown", "claimed", "noise\nof claim"):
        table.add_column(name, justify="right")
    table.add_column("verdict", min_width=10)
    for c in rows:
        best = max(c["attacks"], key=lambda x: -math.inf if x["r2"] is None else x["r2"])
        controls = {x["name"]: x["r2"] for x in c["controls"]}
        claim = c.get("claim") or {}
        table.add_row(
            str(c["id"]),
            c["release"],
            best["name"],
            _r2(best["r2"]),
            *(_r2(controls.get(name)) for name in HEADERS),
            _r2(best.get("reidentified")),
            _r2(claim.get("epsilon_lower_bound")),
            _r2(claim.get("claimed_epsilon")),
            _r2(claim.get("noise_over_claim")),
            c["verdict"],
        )
    return table


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _share(x: float | None) -> str:
    return "-" if x is None else f"{x:.3f}"


def _r2(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def _epsilon(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:.3g}"


def _bytes(n: int) -> str:
    return f"{n / 1e6:.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB"
