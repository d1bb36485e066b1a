"""All runs of a comparison, each with its settings and its place, before anything is written."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from dprbft.config.families import method_names
from dprbft.config.schema import RunConfig
from dprbft.run.comparison.experiment import ColumnName, Experiment, Row, Settings, Size
from dprbft.run.comparison.settings import Entry, config_of, entry_named, settings_for
from dprbft.run.directory import check_stages
from dprbft.run.sites.plan import SitesPlan, plan_sites
from panas.runtime.errors import BadInput

ALL = "all"
"""The name that stands for every method."""
YARDSTICK = "fedavg"
"""What all methods are compared with where nobody chooses."""
SEEDS: dict[Size, int] = {"smoke": 1, "cpu": 3, "full": 5}
"""How many seeds a size takes by default."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is repeated over seeds: a line of a table, in a column."""

    method: str  # or the variant
    column: ColumnName
    row: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Planned:
    """One run: a cell at a seed."""

    cell: Cell
    seed: int
    config: RunConfig

    @property
    def folder(self) -> Path:
        """Its directory under that of the comparison."""
        cell = self.cell
        folder = Path("runs") / cell.method / cell.column / f"seed-{self.seed}"
        return folder / cell.row if cell.row else folder


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be compared; None: as the experiment or the size says."""

    size: Size
    experiment: Experiment | None = None
    methods: tuple[str, ...] | None = None
    columns: tuple[ColumnName, ...] | None = None
    seeds: int | None = None
    first_seed: int = 0
    settings: Settings = field(default_factory=dict)  # the user's, over all others


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a comparison will run."""

    size: Size
    experiment: Experiment | None
    methods: tuple[str, ...]  # the first is what others are compared with
    columns: tuple[ColumnName, ...]
    rows: tuple[str | None, ...]
    seeds: tuple[int, ...]
    runs: tuple[Planned, ...]  # all of one seed before the next
    left_out: dict[str, str]  # methods that cannot serve the data, and why


def plan(request: Request) -> Plan:
    """The runs of a comparison; BadInput, before anything is written, if one would be refused.

    Of "all" methods those that cannot serve data or settings are left out; a method that is named
    must serve them.
    """
    experiment, size = request.experiment, request.size
    names, columns, count = _completed(request)
    seeds = range(request.first_seed, request.first_seed + count)
    named = {entry.name for entry in _entries([n for n in names if n != ALL], experiment)}
    methods = sorted(method_names(), key=lambda name: (name != YARDSTICK, name))
    every = (methods if name == ALL else [name] for name in names)
    entries = _entries([*chain.from_iterable(every)], experiment)
    rows = experiment.rows_at(size) if experiment else (None,)
    settings, left_out, seen = dict[Cell, Settings](), dict[str, str](), dict[str, SitesPlan]()
    for entry in entries:
        try:
            by_cell = _cells(entry, request, rows, columns)
            for cell_settings in by_cell.values():
                for seed in seeds:
                    _check(config_of(cell_settings, seed), seen)
        except BadInput as e:
            if entry.name in named:
                raise
            left_out[entry.name] = str(e)
        else:
            settings |= by_cell
    if not settings:
        raise BadInput(next(iter(left_out.values())))
    return Plan(
        size=size,
        experiment=experiment,
        methods=tuple(entry.name for entry in entries if entry.name not in left_out),
        columns=columns,
        rows=tuple(row.name if row else None for row in rows),
        seeds=tuple(seeds),
        runs=tuple(_runs(settings, seeds)),
        left_out=left_out,
    )


def _completed(request: Request) -> tuple[tuple[str, ...], tuple[ColumnName, ...], int]:
    """Methods, columns and number of seeds that are asked for, else those of the experiment at this
    size; BadInput without methods, or for no seed."""
    names, columns, seeds = request.methods, request.columns, request.seeds
    if experiment := request.experiment:
        at = experiment.at(request.size)
        names = at.methods or experiment.methods if names is None else names
        columns = at.columns or experiment.columns if columns is None else columns
        seeds = at.seeds if seeds is None else seeds
    if not names:
        raise BadInput(
            "expected --methods NAME,NAME,... or an experiment, got neither; `--methods all` takes "
            "all methods"
        )
    seeds = SEEDS[request.size] if seeds is None else seeds
    if seeds < 1:
        raise BadInput(f"expected --seeds of at least 1, got {seeds}; give 5")
    return names, columns or ("sound",), seeds


def _entries(names: Sequence[str], experiment: Experiment | None) -> list[Entry]:
    """The lines of the names, each once."""
    entries = [entry_named(name, experiment) for name in names]
    return list({entry.name: entry for entry in entries}.values())


def _cells(
    entry: Entry, request: Request, rows: Sequence[Row | None], columns: Sequence[ColumnName]
) -> dict[Cell, Settings]:
    """Settings of a line by row and column, without the columns that it has not."""
    known = [column for column in columns if column in entry.columns]
    if not known:
        raise BadInput(
            f"expected a method with a column {' or '.join(columns)}, got {entry.name}, which has "
            f"{', '.join(entry.columns)}; change --columns"
        )
    return {
        Cell(method=entry.name, column=column, row=row.name if row else None): settings_for(
            entry,
            column,
            size=request.size,
            experiment=request.experiment,
            row=row,
            user=request.settings,
        )
        for row in rows
        for column in known
    }


def _check(config: RunConfig, seen: dict[str, SitesPlan]) -> None:
    """Refuse what a run of its own would refuse; data that were `seen` are not loaded again."""
    shared = {"data", "privacy", "federation", "seed"}
    settings = config.model_dump(mode="json", include=shared)
    for key in ("method", "rounds", "options"):
        del settings["federation"][key]
    key = json.dumps(settings, sort_keys=True)
    if key not in seen:
        # Without what makes its sites, which holds all samples.
        seen[key] = replace(plan_sites(Path(), config), make=tuple)
    check_stages(config, seen[key])


def _runs(settings: dict[Cell, Settings], seeds: Sequence[int]) -> Iterator[Planned]:
    for seed in seeds:
        for cell, own in settings.items():
            yield Planned(cell=cell, seed=seed, config=config_of(own, seed))
