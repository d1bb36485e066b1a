"""`panas report`: what a run came to, as text; also what `run` and `train` end with."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from dprbft.config.files import load_config
from dprbft.run.summary import summarise
from panas.runtime.store import read_json
from panas_cli.audit_output import show_audit
from panas_cli.printing import console, print_json


def report(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show a run's results: clients, accuracy, privacy, communication, audit."""
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
        f"splits: the simulator's view); last round {_share(a['local_last'])} before and "
        f"{_share(a['global_last'])} after the head's replacement",
        soft_wrap=True,
    )
    screen.print(
        f"communication: {_bytes(bytes_['up_bytes'])} up, {_bytes(bytes_['down_bytes'])} down in "
        f"{_count(summary['rounds'], 'round')}; the search sent nothing",
        soft_wrap=True,
    )
    screen.print("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in s.items()))
    if audit:
        screen.print()
        show_audit(audit)
    screen.print(f"\nrun directory: {run}", soft_wrap=True)


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


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _share(x: float | None) -> str:
    return "-" if x is None else f"{x:.3f}"


def _epsilon(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:.3g}"


def _bytes(n: int) -> str:
    return f"{n / 1e6:.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB"
