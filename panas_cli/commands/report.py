"""`panas report`: a run's results on one screen, and as one HTML file; several runs compared."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dprbft.config.files import load_config
from dprbft.paths import read_sites
from dprbft.run.summary import summarise
from dprbft.site.results.pictures import draw_missing
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes
from panas_cli.options import ReportRequest
from panas_cli.report.compare import COLUMNS, WORDS, compare, compared_html
from panas_cli.report.events import write_events
from panas_cli.report.facts import RunFacts, read_facts
from panas_cli.report.live import EVERY, is_over, live_html, live_of
from panas_cli.report.page import html_of, page_of
from panas_cli.text.output import show
from panas_cli.text.printing import print_json, print_table, print_text, print_words

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
    if request.watch and (len(runs) > 1 or request.json):
        raise BadInput("expected one run and no --json with --watch; leave one out")
    if request.tensorboard is not None and len(runs) > 1:
        raise BadInput("expected one run with --tensorboard, got several; write each by itself")
    if len(runs) > 1:
        _compare(runs, request)
        return
    (run,) = runs
    if request.watch:
        _watch(run, request.out or run / PAGE)
    summary = summarise(run, load_config(run))
    facts = read_facts(run, summary)
    if request.tensorboard is not None:
        write_events(request.tensorboard, facts)
    show(run, summary, request.json, request.details)
    if request.details and facts.spec is not None:
        homes = [paths.home for paths in read_sites(run) if paths.is_present]
        config = load_config(run)
        drawn = sum(len(draw_missing(home, config, facts.spec)) for home in homes)
        if drawn and not request.json:
            print_words(
                f"{drawn} pictures of searches and trials are in the sites' search/ and tune/"
            )
    if not request.json:
        _write(request.out or run / PAGE, html_of(page_of(facts)))


def _compare(runs: Sequence[Path], request: ReportRequest) -> None:
    summaries = [summarise(run, load_config(run)) for run in runs]
    if request.json:
        print_json({"runs": [s | {"run": str(run)} for s, run in _pairs(summaries, runs)]})
        return
    facts: list[RunFacts] = [read_facts(run, s) for s, run in _pairs(summaries, runs)]
    page = compare(facts)
    print_table(COLUMNS, page.rows, left=WORDS)
    _write(request.out or runs[0] / COMPARED, compared_html(page))


def _watch(run: Path, page: Path) -> None:
    """Write the page of a run under way again and again, until the run is done."""
    told = False
    while not is_over(run):
        write_bytes(page, live_html(live_of(run)).encode())
        if not told:
            print_text(f"report: {page}, every {EVERY} s until the run is done; Ctrl-C ends this")
            told = True
        time.sleep(EVERY)


def _pairs(
    summaries: Sequence[dict[str, Any]], runs: Sequence[Path]
) -> list[tuple[dict[str, Any], Path]]:
    return list(zip(summaries, runs, strict=True))


def _write(path: Path, page: str) -> None:
    write_bytes(path, page.encode())
    print_text(f"report: {path}")
