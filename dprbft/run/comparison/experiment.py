"""An experiment: what is compared, under which settings, and what was published of it. A TOML file.

`[settings]` are those of all its runs; `[smoke]`, `[cpu]` and `[full]` say what differs by size,
`[[rows]]` what a table varies, `[variants.NAME]` a method under settings of its own, and
`[[published]]` the figures of the source, to stand beside those that are measured.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from dprbft.config.files import with_paths
from dprbft.config.toml import read_toml
from panas.runtime.errors import BadInput

ColumnName = Literal["sound", "paper"]
Size = Literal["smoke", "cpu", "full"]
COLUMNS: tuple[ColumnName, ...] = ("sound", "paper")
SIZES: tuple[Size, ...] = ("smoke", "cpu", "full")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]
"""What may name a folder."""
FORBIDDEN = {
    "preset": "use --columns",
    "seed": "use --seed",
    "federation.method": "use --methods",
    "federation.sites": "sites have one budget for life",
}
"""Settings that no comparison may have, and what to do instead."""


def refusal_of(settings: dict[str, Any]) -> str | None:
    """Why these cannot be settings of all runs of a comparison; None if they can."""
    for key, instead in FORBIDDEN.items():
        section, _, name = key.rpartition(".")
        layer = settings.get(section, {}) if section else settings
        if isinstance(layer, dict) and name in layer:
            return f"expected no {key} in a comparison, got one; {instead}"
    for name, section in settings.items():
        if not isinstance(section, dict):
            return f"expected sections of settings, as [settings.data], got {name} alone"
    return None


def _settings(settings: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Settings of an experiment, with its own folder for relative paths."""
    if why := refusal_of(settings):
        raise ValueError(why)
    return with_paths(settings, (info.context or {}).get("folder", Path()))


Settings = Annotated[dict[str, Any], AfterValidator(_settings)]
"""Settings of a run, nested as in its own TOML file."""
METRIC = re.compile(r"accuracy|balanced_accuracy|auroc|macro_f1|(f1|recall):\d+")


def _metric(name: str) -> str:
    if not METRIC.fullmatch(name):
        raise ValueError(
            "expected accuracy, balanced_accuracy, auroc, macro_f1, or of a class f1:0 or "
            f"recall:0, got {name!r:.60}"
        )
    return name


Metric = Annotated[str, AfterValidator(_metric)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
ColumnNames = Annotated[tuple[ColumnName, ...], Field(min_length=1)]


class Part(BaseModel):
    """A part of an experiment; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(Part):
    """What a table varies: its name, and settings over those of the experiment."""

    name: Name
    settings: Settings = {}


class Variant(Part):
    """A method under settings of its own, with a line of the table to itself."""

    method: str  # a module of dprbft.methods
    settings: Settings = {}
    columns: dict[ColumnName, Settings] | None = None  # in place of the method's own
    sizes: dict[Size, Settings] = {}  # over its settings


class AtSize(Part):
    """What a size changes; None: as the experiment says."""

    methods: Names | None = None
    columns: ColumnNames | None = None
    rows: Names | None = None  # those that are run
    seeds: Annotated[int, Field(ge=1)] | None = None
    settings: Settings = {}


class Published(Part):
    """A line of the source's table."""

    method: str  # the experiment's name for it, or the source's where nothing here is like it
    row: str | None = None
    figures: dict[str, float | str]  # by the source's own headings


class Experiment(Part):
    """What is compared."""

    title: str
    source: str
    about: str = ""  # what differs from the source, and why
    methods: Names
    columns: ColumnNames = ("sound",)
    metric: Metric = "accuracy"  # what the table begins with: accuracy, macro_f1, f1:1, ...
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()  # accuracies to reach
    settings: Settings = {}
    column: dict[ColumnName, Settings] = {}  # over the methods' own of that column
    variants: dict[Name, Variant] = {}
    rows: tuple[Row, ...] = ()
    published: tuple[Published, ...] = ()
    smoke: AtSize = AtSize()
    cpu: AtSize = AtSize()
    full: AtSize = AtSize()

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        names = [row.name for row in self.rows]
        if len({*names}) < len(names):
            raise ValueError("expected rows of different names, got one twice; rename one")
        for size in SIZES:
            for name in self.at(size).rows or ():
                if name not in names:
                    raise ValueError(f"expected rows of {', '.join(names)} in {size}, got {name}")
        for line in self.published:
            if line.row is not None and line.row not in names:
                raise ValueError(f"expected a published row of {', '.join(names)}, got {line.row}")
        return self

    def at(self, size: Size) -> AtSize:
        """What a size changes."""
        return {"smoke": self.smoke, "cpu": self.cpu, "full": self.full}[size]

    def rows_at(self, size: Size) -> tuple[Row | None, ...]:
        """The rows that are run at a size; one without a name where nothing varies."""
        chosen = self.at(size).rows
        kept = [row for row in self.rows if chosen is None or row.name in chosen]
        return tuple(kept) or (None,)


def read_experiment(path: Path) -> Experiment:
    """The experiment of a TOML file, whose relative paths are of its own folder.

    BadInput, in one line, names the key that does not fit.
    """
    try:
        folder = {"folder": path.resolve().parent}
        return Experiment.model_validate(read_toml(path), context=folder)
    except ValidationError as e:
        error = e.errors()[0]
        key = ".".join(str(p) for p in error["loc"]) or "the whole"
        if error["type"] == "extra_forbidden":
            raise BadInput(
                f"expected known keys in the experiment {path}, got {key}; "
                "docs/how-to/compare.md shows them in one"
            ) from e
        message = error["msg"].removeprefix("Value error, ")
        raise BadInput(
            f"expected an experiment in {path}, got {key}: {message}; fix the file"
        ) from e
