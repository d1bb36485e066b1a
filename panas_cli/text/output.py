"""What a run came to, as text: what `run`, `train` and `report` end with."""

from pathlib import Path
from typing import Any

from rich.table import Table

from attacks.audit.records import RunAudit
from dprbft.config.files import load_config
from dprbft.run.summary import summarise
from panas.runtime.store import read_json
from panas_cli.text.audit_output import show_audit
from panas_cli.text.printing import console, counted, figure, print_json, titled

COLUMNS = [
    "client",
    "genome",
    "parameters",
    "before",
    "after",
    "kept",
    "epsilon",
    "release",
    "search",
]


def report(run: Path, json: bool) -> None:
    """Gather what a run came to, and show it."""
    show(run, summarise(run, load_config(run)), json)


def show(run: Path, summary: dict[str, Any], json: bool) -> None:
    """The summary, and the audit if there is one, as text or JSON."""
    audit = read_json(run / "audit.json") if (run / "audit.json").exists() else None
    if json:
        print_json(summary | {"run": str(run), "audit": audit and audit["summary"]})
        return
    screen = console()
    screen.print(_clients(summary))
    a, bytes_, s = summary["accuracy"], summary["communication"], summary["seconds"]
    screen.print(
        f"accuracy: mean {a['mean']:.3f}, std {a['std']:.3f} over clients (on their own test "
        f"splits: the simulator's view); last round {figure(a['local_last'])} before and "
        f"{figure(a['global_last'])} after the head's replacement",
        soft_wrap=True,
    )
    screen.print(
        f"communication: {_bytes(bytes_['up_bytes'])} up, {_bytes(bytes_['down_bytes'])} down in "
        f"{counted(summary['rounds'], 'round')}; the search sent nothing",
        soft_wrap=True,
    )
    screen.print("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in s.items()))
    if audit:
        screen.print()
        show_audit(RunAudit.from_json(audit))
    screen.print(f"\nrun directory: {run}", soft_wrap=True)


def _clients(summary: dict[str, Any]) -> Table:
    table = titled(f"{summary['dataset']}, preset {summary['preset']}")
    for name in COLUMNS:
        left = name == "genome"
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for c in summary["clients"]:
        a, e = c["accuracy"], c["epsilon"]
        table.add_row(
            str(c["id"]),
            c["genome"],
            f"{c['parameters']:,}",
            figure(a["local_last"]),
            figure(a["global_last"]),
            f"{a['selected']:.3f} (round {c['selected_round']})",
            f"{figure(e['spent'], '.3g')} of {figure(e['budget'], '.3g')}",
            figure(e["release"], ".3g"),
            figure(e["search"], ".3g"),
        )
    return table


def _bytes(n: int) -> str:
    return f"{n / 1e6:.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB"
