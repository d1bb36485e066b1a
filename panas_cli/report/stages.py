"""What a run exchanged, searched and tuned.

Sites of one machine may share a search or its trials: what is equal is shown once.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from scipy.stats import spearmanr

from dprbft.site.results.records import TRUNK, SearchRecord
from panas.architecture.cost import cost
from panas.architecture.network import NetworkSpec
from panas.evolution.records import GenerationRecord
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import TrialRecord
from panas_cli.report.charts.lines import Candidate, Generation, Trial, front, history, trials
from panas_cli.report.charts.rows import Traffic, traffic
from panas_cli.report.facts import RunFacts, SiteFacts
from panas_cli.report.table import Figure, Table, names_text, share
from panas_cli.text.joining import tuned_text
from panas_cli.text.printing import counted, size_text

MOST_ROUNDS = 20
"""Rounds that the picture of bytes shows; the table has all."""
FEWEST = 4
"""Trials with a value below which no correlation is shown."""


@dataclass(frozen=True, kw_only=True)
class Messages:
    """What crossed between sites and server."""

    line: str
    rounds: Table | None
    bytes_: Figure | None
    sent: Table | None


def messages(run: RunFacts) -> Messages:
    """Bytes by round, and what each site sent."""
    told = run.summary["communication"]
    line = (
        f"{size_text(told['up_bytes'])} up and {size_text(told['down_bytes'])} down in "
        f"{counted(len(run.rounds), 'round')}."
    )
    if "carried_up_bytes" in told:
        up, down = (size_text(told[f"carried_{way}_bytes"]) for way in ("up", "down"))
        line += f" With public files and all else: {up} up, {down} down."
    rows = tuple(
        (
            f"{r.round}",
            f"{len(r.sites)}",
            f"{len(r.absent)}",
            f"{len(r.releases) + len(r.masked)}",
            f"{r.up_bytes:,}",
            f"{r.down_bytes:,}",
            f"{r.seconds:.2f}",
        )
        for r in run.rounds
    )
    columns = ("round", "sites", "absent", "releases", "bytes up", "bytes down", "seconds")
    few = run.rounds[:MOST_ROUNDS]
    drawn = [Traffic(round=r.round, up=r.up_bytes, down=r.down_bytes) for r in few]
    first = "" if len(few) == len(run.rounds) else f", the first {len(few)} of {len(run.rounds)}"
    return Messages(
        line=line,
        rounds=Table(caption="Rounds", columns=columns, rows=rows) if rows else None,
        bytes_=Figure(picture=traffic(drawn), caption=f"Bytes by round{first}") if drawn else None,
        sent=_sent(run.sites),
    )


def _sent(sites: Sequence[SiteFacts]) -> Table | None:
    rows = tuple(
        (s.name, f"{len(s.sent)}", f"{sum(size for _, size in s.sent):,}") for s in sites if s.sent
    )
    columns = ("site", "releases", "bytes")
    return Table(caption="Releases of each site", columns=columns, rows=rows) if rows else None


@dataclass(frozen=True, kw_only=True)
class Searched:
    """One search, and the sites that it served."""

    sites: str
    line: str
    history: Figure
    front: Figure | None
    taken: Table
    table: Table


def searches(run: RunFacts) -> list[Searched]:
    """The searches of a run; what several sites share is shown once."""
    groups: dict[str, list[tuple[str, SearchRecord]]] = {}
    for site in run.sites:
        if site.search:
            r = site.search.result
            same = [[g.to_json() for g in r.records], [e.to_json() for e in r.history]]
            groups.setdefault(json.dumps(same), []).append((site.name, site.search))
    return [_searched(named, run.spec) for named in groups.values()]


def _searched(named: Sequence[tuple[str, SearchRecord]], spec: NetworkSpec | None) -> Searched:
    names, records = zip(*named, strict=True)
    first = records[0].cost_table[0]
    fixed = first.parameters if first.name == TRUNK else 0
    spec = spec and records[0].spec_from(spec)
    r, taken = records[0].result, {record.genome for record in records}
    sites = names_text(names)
    generations = [Generation(number=g.generation, best=g.best, mean=g.mean) for g in r.records]
    candidates = [
        Candidate(
            parameters=fixed + cost(e.genome, spec).parameters,
            fitness=e.fitness,
            in_full=e.trained,
            chosen=e.trained and e.genome in taken,
        )
        for e in r.history
        if spec is not None and not e.failed
    ]
    drawn = front(candidates) if candidates else None
    return Searched(
        sites=sites,
        line=f"{counted(r.evaluations, 'candidate')}, search mode {records[0].mode}.",
        history=Figure(picture=history(generations), caption="Fitness by generation"),
        front=Figure(picture=drawn, caption="Fitness against parameters, with the Pareto front")
        if drawn
        else None,
        taken=_taken(sites, named),
        table=_generations(sites, r.records),
    )


def _taken(about: str, named: Sequence[tuple[str, SearchRecord]]) -> Table:
    rows = tuple(
        (name, str(r.genome), share(r.fitness), f"{r.cost.parameters:,}", f"{r.cost.macs:,}")
        for name, r in named
    )
    return Table(
        caption="The network of each site; its fitness is in the site's own class frequencies",
        about=about,
        columns=("site", "network", "fitness", "parameters", "multiply-accumulates"),
        rows=rows,
        left=2,
    )


def _generations(about: str, records: Sequence[GenerationRecord]) -> Table:
    rows = tuple(
        (
            f"{g.generation}",
            str(g.best_genome),
            share(g.best),
            share(g.mean),
            f"{g.evaluations}",
            f"{g.dropped}",
            f"{g.failed}",
        )
        for g in records
    )
    columns = ("generation", "best network", "best", "mean", "trained", "stopped early", "failed")
    return Table(caption="Generations", about=about, columns=columns, rows=rows, left=2)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One tuning, and the sites that it served."""

    sites: str
    lines: tuple[str, ...]
    trials: Figure | None
    importances: Table | None
    table: Table | None


def tunings(run: RunFacts) -> list[Tuned]:
    """The tunings of a run; what several sites share is shown once."""
    groups: dict[str, list[SiteFacts]] = {}
    for site in run.sites:
        if site.tuning and not site.tuning.refused:
            same = [tuned_text(site.tuning), [asdict(t) for t in site.tuning.trials]]
            groups.setdefault(json.dumps(same), []).append(site)
    return [_tuned(sites) for sites in groups.values()]


def _tuned(sites: Sequence[SiteFacts]) -> Tuned:
    record = sites[0].tuning
    assert record is not None
    done = [t for t in record.trials if t.status == "done"]
    taken = record.best or record.settings
    tried = [
        Trial(
            number=t.number + 1,
            value=t.value if t.status == "done" else None,
            chosen=t.status == "done" and t.setting == taken,
        )
        for t in record.trials
    ]
    lines = [f"{tuned_text(record)}."]
    if record.predicted is not None:
        lines.append(f"The model over all trials expects an accuracy of {record.predicted:.3f}.")
    drawn = Figure(picture=trials(tried), caption="Validation accuracy by trial") if done else None
    about = names_text([s.name for s in sites])
    return Tuned(
        sites=about,
        lines=tuple(lines),
        trials=drawn,
        importances=_importances(about, done),
        table=_trials(about, record.trials) if record.trials else None,
    )


def varied(done: Sequence[TrialRecord]) -> dict[str, list[float]]:
    """The values of each setting that trials vary."""
    names = [f.name for f in fields(DPSGDSettings)]
    values = {name: [getattr(t.setting, name) for t in done] for name in names}
    return {
        name: [float(v) for v in column]
        for name, column in values.items()
        if None not in column and len(set(column)) > 1
    }


def _importances(about: str, done: Sequence[TrialRecord]) -> Table | None:
    """Rank correlation of each setting with the value; None of few trials, or of equal ones."""
    scores = [t.value for t in done if t.value is not None]
    if len(scores) < FEWEST or len(set(scores)) < 2:
        return None
    rows = []
    for name, column in varied(done).items():
        rho = float(spearmanr(column, scores).statistic)
        rows.append(
            (abs(rho), (_words(name), f"{min(column):.3g} to {max(column):.3g}", f"{rho:+.2f}"))
        )
    if not rows:
        return None
    return Table(
        about=about,
        caption=f"Importance of each setting: rank correlation (Spearman) with the value of "
        f"{len(scores)} trials",
        columns=("setting", "tried", "correlation"),
        rows=tuple(row for _, row in sorted(rows, reverse=True)),
    )


def _trials(about: str, records: Iterable[TrialRecord]) -> Table:
    rows = tuple(
        (
            f"{t.number + 1}",
            t.status if t.value is None else share(t.value),
            f"{t.setting.learning_rate:.3g}",
            f"{t.setting.noise_multiplier:.3g}",
            f"{t.setting.clip:.3g}",
            f"{t.setting.batch_size}",
            "-" if t.setting.epochs is None else f"{t.setting.epochs}",
            "no model" if t.proposed_by == "random" else "model",
        )
        for t in records
    )
    columns = ("trial", "value", "learning rate", "noise", "clip", "batch", "passes", "by")
    return Table(caption="Trials", about=about, columns=columns, rows=rows)


def _words(name: str) -> str:
    return "clipping norm" if name == "clip" else name.replace("_", " ")
