"""The page of a run that is under way: its stages, searches, trials and rounds so far."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprbft.config.files import load_config
from dprbft.config.schema import RunConfig
from dprbft.paths import is_hub, read_sites, search_log, server_folder, sites_file, tune_log
from dprbft.run.bookkeeping import is_done, seconds
from dprbft.run.stages import stages_of
from dprbft.server.records import read_rounds
from panas.runtime.errors import BadInput
from panas.runtime.journal import read_journal
from panas_cli.report.charts.lines import Generation, Trial, history, trials
from panas_cli.report.charts.rows import Traffic, traffic
from panas_cli.report.page import environment
from panas_cli.report.stages import MOST_ROUNDS
from panas_cli.report.table import Figure, Table

EVERY = 5
"""Seconds between two pages."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """What the page of a run under way shows."""

    title: str
    stages: Table
    figures: tuple[Figure, ...]


def is_over(run: Path) -> bool:
    """Whether all stages of a run have run to their end."""
    return all(is_done(run, stage) for stage in stages_of(load_config(run)))


def live_of(run: Path) -> Live:
    """What a run has done so far."""
    config = load_config(run)
    return Live(
        title=f"{run.resolve().name}: under way",
        stages=_stages(run, config),
        figures=(*_logs(run), *_rounds(run)),
    )


def live_html(page: Live) -> str:
    """The page, which a browser loads again after `EVERY` seconds."""
    return environment().get_template("live.html").render(page=page, refresh=EVERY)


def _stages(run: Path, config: RunConfig) -> Table:
    spent = seconds(run)
    rows, waiting = [], False
    for stage in stages_of(config):
        state = "done" if is_done(run, stage) else "waits" if waiting else "under way"
        waiting = waiting or state != "done"
        rows.append((stage, state, f"{spent.get(stage, 0.0):,.1f}" if state == "done" else "-"))
    columns = ("stage", "state", "seconds")
    return Table(caption="Stages", columns=columns, rows=tuple(rows), left=2)


def _logs(run: Path) -> Iterator[Figure]:
    """The search and the trials of each site so far."""
    if is_hub(run) or not sites_file(run).exists():
        return
    for paths in read_sites(run):
        searched, tuned = _lines(search_log(paths.home)), _lines(tune_log(paths.home))
        generations = [
            Generation(number=line["generation"], best=line["best"], mean=line["mean"])
            for line in searched
            if "generation" in line
        ]
        if generations:
            yield Figure(picture=history(generations), caption=f"Search of {paths.name}")
        tried = [
            Trial(number=line["trial"]["number"] + 1, value=line["trial"]["value"])
            for line in tuned
            if "trial" in line
        ]
        if any(t.value is not None for t in tried):
            yield Figure(picture=trials(tried), caption=f"Trials of {paths.name}")


def _lines(log: Path) -> list[Mapping[str, Any]]:
    lines: list[Mapping[str, Any]] = []
    with suppress(BadInput):  # not there yet, or being written
        lines += read_journal(log)
    return lines


def _rounds(run: Path) -> Iterator[Figure]:
    records = read_rounds(server_folder(run))[-MOST_ROUNDS:]
    if records:
        drawn = [Traffic(round=r.round, up=r.up_bytes, down=r.down_bytes) for r in records]
        yield Figure(picture=traffic(drawn), caption="Bytes by round")
