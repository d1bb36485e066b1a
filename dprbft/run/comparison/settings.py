"""The settings of each run of a comparison, in layers; a later one lies over an earlier one.

1. what the size says of all methods (`BASE`)
2. what the method's module says of the column (`COLUMNS`) and of the size (`SMOKE`, `CPU`)
3. the experiment's: of the column, of all, of the row, of the size, of the variant
4. the user's

A method's own settings never say which samples and sites there are: those are the same for all
(`SHARED`). A column without a budget keeps none: a finite epsilon asked for is that of the columns
that have one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dprbft.config.families import method_names
from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.schema import RunConfig
from dprbft.methods import module_of
from dprbft.run.comparison.experiment import ColumnName, Experiment, Row, Settings, Size, Variant
from panas.runtime.errors import BadInput

BASE: Mapping[Size, Settings] = {
    "smoke": {
        "data": {"dataset": "digits", "public_limit": 0},
        "federation": {"clients": 2, "partition": "iid", "baselines": False},
    },
    "cpu": {"federation": {"clients": 10, "baselines": False}},
    "full": {"federation": {"baselines": False}},
}
"""What a size says of all methods."""

AT_SIZE: Mapping[Size, str | None] = {"smoke": "SMOKE", "cpu": "CPU", "full": None}
"""The constant of a method's module that has its settings at a size."""

SHARED: Mapping[str, tuple[str, ...]] = {
    "federation": (
        *("clients", "sites", "client_data", "classes", "partition", "alpha"),
        *("classes_per_client", "min_samples", "participation"),
    ),
}
"""Settings that no method decides for itself, by section; and all of `data`."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the table: a method, perhaps under settings of its own."""

    name: str  # the method's or the variant's
    method: str  # a module of dprbft.methods
    variant: Variant | None = None

    @property
    def columns(self) -> Mapping[ColumnName, Settings]:
        """Its columns, with their settings; without any of its own it has one, "sound"."""
        if self.variant is not None and self.variant.columns is not None:
            return self.variant.columns
        return _constant(self.method, "COLUMNS") or {"sound": {}}

    def at(self, size: Size) -> Settings:
        """What its module says of a size."""
        name = AT_SIZE[size]
        return dict(_constant(self.method, name)) if name else {}


def entry_named(name: str, experiment: Experiment | None = None) -> Entry:
    """The line of a name, in which "-" and "_" are the same; BadInput if nothing is called so."""
    variants = experiment.variants if experiment else {}
    for known, variant in variants.items():
        if _same(known) == _same(name):
            return Entry(name=known, method=_method(variant.method), variant=variant)
    return Entry(name=(method := _method(name, tuple(variants))), method=method)


def settings_for(
    entry: Entry,
    column: ColumnName,
    *,
    size: Size,
    experiment: Experiment | None = None,
    row: Row | None = None,
    user: Settings,
) -> Settings:
    """The settings of the runs of a line in a column, without the seed.

    Args:
        entry: the line: a method or a variant.
        column: one that the entry has.
        size: how much is computed.
        experiment: its settings; None: there are none.
        row: of the experiment.
        user: settings over all others.
    """
    own_column = dict(entry.columns[column])
    if experiment:
        own_column = merge(own_column, experiment.column.get(column, {}))
    # The size says how much is computed, the column how it is protected.
    own = _own(merge(own_column, entry.at(size), {"privacy": own_column.get("privacy", {})}))
    settings: list[Settings] = [user]
    if experiment:
        settings = [experiment.settings, row.settings if row else {}, experiment.at(size).settings]
        settings += [v.settings, v.sizes.get(size, {})] if (v := entry.variant) else []
        settings += [user]
    defaults = RunConfig().model_dump(exclude_none=True)  # presets change none that are shared
    shared = merge(*map(_shared, (defaults, BASE[size], *settings)))
    merged = merge(BASE[size], own, *settings, shared, {"federation": {"method": entry.method}})
    if math.isinf(own_column.get("privacy", {}).get("epsilon", 0.0)):
        merged = merge(merged, {"privacy": {"epsilon": math.inf, "epsilons": []}})
    return merged


def config_of(settings: Settings, seed: int) -> RunConfig:
    """The configuration at one seed; BadInput where settings contradict each other."""
    return build_config(without_unread(merge(settings, {"seed": seed})))


def _constant(method: str, name: str) -> Mapping[Any, Any]:
    return getattr(module_of(method), name, {})


def _same(name: str) -> str:
    return name.strip().replace("-", "_")


def _method(name: str, others: tuple[str, ...] = ()) -> str:
    if (text := _same(name)) in method_names():
        return text
    known = ", ".join((*method_names(), *others))
    raise BadInput(f"expected methods of {known}, got {name!r:.60}; `--methods all` takes all")


def _shared(settings: Settings) -> Settings:
    """Those of the settings that are the same for all methods."""
    kept = {
        section: {k: v for k, v in settings.get(section, {}).items() if k in keys}
        for section, keys in SHARED.items()
    }
    return kept | {"data": settings.get("data", {})}


def _own(settings: Settings) -> Settings:
    """Those of the settings that a method decides for itself."""
    kept = {section: values for section, values in settings.items() if section != "data"}
    for section, keys in SHARED.items():
        if section in kept:
            kept[section] = {k: v for k, v in kept[section].items() if k not in keys}
    return kept
