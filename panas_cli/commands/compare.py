"""`panas compare`: several methods on the same sites and seeds, in one table."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, cast, get_args

from rich.console import Console

from dprbft.config.files import merge, with_paths
from dprbft.run.comparison.carry_out import Machine, Results, carry_out, check_folder
from dprbft.run.comparison.experiment import (
    SIZES,
    ColumnName,
    Experiment,
    Size,
    read_experiment,
    refusal_of,
)
from dprbft.run.comparison.pictures import pictures
from dprbft.run.comparison.plan import Cell, Plan, Planned, plan
from dprbft.run.comparison.plan import Request as Comparison
from dprbft.run.comparison.table import table
from dprbft.run.events import Event
from panas.runtime.device import device_named
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers
from panas.runtime.store import exclusive, read_json, write_bytes, write_json
from panas_cli.options import CompareRequest, Request
from panas_cli.progress import about
from panas_cli.text.comparison import as_csv, as_markdown, print_table_of
from panas_cli.text.printing import counted, print_json, print_words
from panas_cli.text.sentences import sentence

REQUEST, TABLE = "request.json", "compare.json"
EVERY = 10.0
"""Seconds between two lines of what goes on within a run, at least."""


def compare(request: Request, options: CompareRequest) -> None:
    """Carry out all runs of a comparison, then write and show its table."""
    folder = request.out or Path("runs") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
    kept = folder / REQUEST
    if request.resume and not kept.exists():
        raise BadInput(f"expected a comparison to resume at {folder}, found none; leave it out")
    record = read_json(kept) if request.resume else {}
    comparison = _comparison(request, options, record)
    planned = plan(comparison)
    check_folder(folder, planned, resume=request.resume)
    device = device_named(request.device)
    workers = request.workers or (1 if device == "cuda" else default_workers())
    display = _Display(planned, folder)
    with exclusive(folder / "compare", wait=False):
        write_json(kept, _written(options, record, comparison))
        machine = Machine(workers=workers, device=device, listener=display.event)
        results = carry_out(folder, planned, machine, display.ended)
        if not results.found:  # there is nothing to show
            raise next(iter(results.failed.values()))
        result = table(results)
        _write(folder, result)
    if request.json:
        print_json(result | {"out": str(folder)})
    else:
        print_table_of(result, folder)
    for error in results.failed.values():
        raise error


def _comparison(request: Request, options: CompareRequest, known: dict[str, Any]) -> Comparison:
    """What is to be compared; what is not said on resuming is as it was."""

    def said(name: str) -> Any:
        given = getattr(options, name)
        return known.get(name) if given is None else given

    size = said("size") or "smoke"
    if size not in SIZES:
        raise BadInput(f"expected --size of {', '.join(SIZES)}, got {size!r:.60}; use smoke")
    path = said("experiment")
    experiment: Experiment | None = read_experiment(Path(path)) if path else None
    settings = with_paths(merge(known.get("settings", {}), request.settings))
    first = settings.pop("seed", 0)
    if why := refusal_of(settings):
        raise BadInput(why)
    return Comparison(
        size=cast(Size, size),
        experiment=experiment,
        methods=_words(said("methods")),
        columns=_columns(said("columns")),
        seeds=said("seeds"),
        first_seed=first,
        settings=settings,
    )


def _written(
    options: CompareRequest, known: dict[str, Any], comparison: Comparison
) -> dict[str, Any]:
    """The request, for the same command with --resume alone."""
    given = {k: v for k, v in asdict(options).items() if v is not None}
    if options.experiment:
        given["experiment"] = str(options.experiment.resolve())
    settings = {**comparison.settings, "seed": comparison.first_seed}
    return {**known, **given, "settings": settings}


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(w for w in (x.strip() for x in text.split(",")) if w)


def _columns(text: str | None) -> tuple[ColumnName, ...] | None:
    known = get_args(ColumnName)
    if text in (None, "both"):
        return None if text is None else known
    if text not in known:
        raise BadInput(f"expected --columns of sound, paper or both, got {text!r:.60}; use both")
    return (cast(ColumnName, text),)


def _write(folder: Path, found: dict[str, Any]) -> None:
    write_json(folder / TABLE, found)
    write_bytes(folder / "compare.md", as_markdown(found).encode())
    write_bytes(folder / "compare.csv", as_csv(found).encode())
    for name, content in pictures(found).items():
        write_bytes(folder / name, content)


class _Display:
    """Lines on stderr: each run as it ends, what goes on within long ones, and what is left."""

    def __init__(self, planned: Plan, folder: Path) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._began = self._said = self._last = time.perf_counter()
        self._took: dict[Cell, list[float]] = {}
        self._pending = list(planned.runs)
        self._done = 0
        methods = ", ".join(planned.methods)
        self._line(
            f"{counted(len(planned.runs), 'run')} of {counted(len(planned.methods), 'method')} "
            f"({methods}), {counted(len(planned.seeds), 'seed')}; directory: {folder}"
        )
        for name, why in planned.left_out.items():
            self._line(f"warning: {name} is left out: {why}")

    def event(self, event: Event) -> None:
        """Something within a run, if nothing was said for some time."""
        now = time.perf_counter()
        if now - self._said >= EVERY:
            self._line(f"  {sentence(event)}")

    def ended(self, planned: Planned, results: Results) -> None:
        """A run has ended, well or not."""
        now = time.perf_counter()
        # One that was finished before is read in no time; those that are left are not.
        known = results.found.get(planned)
        took = max(now - self._last, sum(known.seconds.values()) if known else 0.0)
        self._took.setdefault(planned.cell, []).append(took)
        self._last, self._done = now, self._done + 1
        cell = planned.cell
        parts = (cell.method, cell.column, cell.row or "", f"seed {planned.seed}")
        what = " ".join(part for part in parts if part)
        if planned in results.found:
            accuracy = fmean(results.found[planned].accuracy)
            told = f"accuracy {accuracy:.3f}"
        else:
            told = f"warning: {results.failed[planned]}"
        left = self._left(self._pending[self._done :])
        of = len(self._pending)
        self._line(f"{self._done} of {of}: {what}: {told}{f'; {left} left in all' if left else ''}")

    def _left(self, pending: Sequence[Planned]) -> str:
        """How long the other runs will take: as those of their kind, or as the mean of all."""
        if not pending:
            return ""
        every = fmean(fmean(seconds) for seconds in self._took.values())
        known = {cell: fmean(seconds) for cell, seconds in self._took.items()}
        return about(sum(known.get(planned.cell, every) for planned in pending))

    def _line(self, text: str) -> None:
        self._said = time.perf_counter()
        line = f"[{self._said - self._began:7.1f} s] {text}"
        print_words(line, self._console, whole=True)
