"""`panas report`: a run's results on one screen, and as one HTML file; several runs compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dprbft.config.files import load_config
from dprbft.run.summary import summarise
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes
from panas_cli.options import ReportRequest
from panas_cli.report.compare import COLUMNS, WORDS, compare, compared_html
from panas_cli.report.facts import RunFacts, read_facts
from panas_cli.report.page import html_of, page_of
from panas_cli.text.output import show
from panas_cli.text.printing import print_json, print_table, print_text

PAGE = "report.html"
"""In a run's folder."""
COMPARED = "compared.html"
"""In the folder of the first of several runs."""


def report(runs: Sequence[Path], request: ReportRequest) -> None:
    """Show one run, or compare several, and write the page; its path is the last line."""
    if request.out is not None and request.out.is_dir():
        raise BadInput(
            f"expected a file's path for --out, got the folder {request.out}; name a file"
        )
    if len(runs) > 1:
        _compare(runs, request)
        return
    (run,) = runs
    summary = summarise(run, load_config(run))
    show(run, summary, request.json, request.details)
    if not request.json:
        _write(request.out or run / PAGE, html_of(page_of(read_facts(run, summary))))


def _compare(runs: Sequence[Path], request: ReportRequest) -> None:
    summaries = [summarise(run, load_config(run)) for run in runs]
    if request.json:
        print_json({"runs": [s | {"run": str(run)} for s, run in _pairs(summaries, runs)]})
        return
    facts: list[RunFacts] = [read_facts(run, s) for s, run in _pairs(summaries, runs)]
    page = compare(facts)
    print_table(COLUMNS, page.rows, left=WORDS)
    _write(request.out or runs[0] / COMPARED, compared_html(page))


def _pairs(
    summaries: Sequence[dict[str, Any]], runs: Sequence[Path]
) -> list[tuple[dict[str, Any], Path]]:
    return list(zip(summaries, runs, strict=True))


def _write(path: Path, page: str) -> None:
    write_bytes(path, page.encode())
    print_text(f"report: {path}")
