"""How to repeat a run: its command, settings and versions, without a path of this machine."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import tomli_w

from panas_cli.report.facts import RunFacts
from panas_cli.report.table import Table

LINES = (
    "Save the settings below as config.toml. Data come from their own files: paths are shortened "
    "to names here, so put yours in their place.",
    "The seed determines data, search and initial weights. Noise and sampling come from the "
    "operating system's entropy, so that accuracies differ a little in each run.",
)


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """What somebody needs to run it again."""

    command: str
    lines: tuple[str, ...]
    settings: str
    versions: Table
    seconds: Table


def repeat(run: RunFacts) -> Repeat:
    """How to repeat a run."""
    words = ["panas", "run", "config.toml", "--out", f"{run.name}-again"]
    if run.is_hub:
        words += ["--hub", "HUB"]
    versions = tuple((name, version) for name, version in run.summary["versions"].items())
    seconds = tuple((stage, f"{s:,.1f}") for stage, s in run.summary["seconds"].items())
    return Repeat(
        command=shlex.join(words),
        lines=LINES,
        settings=tomli_w.dumps(portable(run.settings)),
        versions=Table(caption="Versions", columns=("library", "version"), rows=versions, left=2),
        seconds=Table(caption="Seconds by stage", columns=("stage", "seconds"), rows=seconds),
    )


def portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with each absolute path shortened to its last part."""
    return {key: _shortened(value) for key, value in settings.items()}


def _shortened(value: Any) -> Any:
    if isinstance(value, Mapping):
        return portable(value)
    if isinstance(value, list | tuple):
        return [_shortened(v) for v in value]
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return value
