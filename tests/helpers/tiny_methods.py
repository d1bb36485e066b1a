"""Settings with which each method that exchanges updates is quick, and those that it refuses."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.methods import update_method
from dprbft.methods.side import Side
from dprbft.site.site import Site

FREE = {"epsilon": math.inf, "allow_unprotected": True}


def method_config(
    method: str,
    options: dict[str, Any] | None = None,
    privacy: dict[str, Any] | None = None,
    *,
    limit: int = 150,
    sections: dict[str, Any] | None = None,
    **federation: Any,
) -> RunConfig:
    """A run of a method, of two sites and two rounds if nothing else is said."""
    usual = {"clients": 2, "rounds": 2, "baselines": False, "partition": "iid"} | federation
    base = {"data": {"limit": limit}, "privacy": privacy or {}}
    base |= {"federation": {"method": method, "options": options or {}, **usual}}
    return build_config(base, sections or {})


def side_of(site: Site) -> Side:
    return Side(site.config, site.facts, site.public)


def tiny_options(name: str) -> dict[str, Any]:
    """Options with which a method is quick: its `SMOKE` in one pass of full batches a round.

    Full batches: one Gaussian a step, which is priced in closed form instead of seconds. An entry
    in `QUICKER` is taken instead.
    """
    if name in QUICKER:
        return QUICKER[name]
    method = update_method(name)
    smoke = getattr(method, "SMOKE", {}).get("federation", {}).get("options", {})
    short = {"batch_size": 1000, "epochs": 1}
    fields = method.Options.model_fields
    return {**smoke, **{key: value for key, value in short.items() if key in fields}}


def refused_options(name: str) -> list[tuple[str, Any]]:
    """Options of a method with values that their types exclude: other words, beyond limits."""
    schema = update_method(name).Options.model_json_schema()["properties"]
    return [(key, value) for key, rules in schema.items() for value in _excluded(rules)]


def _excluded(rules: Mapping[str, Any]) -> Iterator[Any]:
    if "enum" in rules or "const" in rules:
        yield "no such"
    beyond = {"exclusiveMinimum": 0, "minimum": -1, "exclusiveMaximum": 0, "maximum": 1}
    yield from (rules[limit] + by for limit, by in beyond.items() if limit in rules)
    if rules.get("minItems"):
        yield []
    if "items" in rules:
        yield from ([value] for value in _excluded(rules["items"]))


FIVE = {"kernels": 2, "hidden": [8], "width": 8, "batch_size": 1000, "epochs": 1}
QUICKER: dict[str, dict[str, Any]] = {
    "decnas": {
        **{"widths": [4], "hidden": [8], "batch_size": 1000, "epochs": 1},
        **{"turns": [1], "start_share": 0, "final_share": 0},
    },
    "dp_fnas": {
        "operations": ["skip_connect", "sep_conv_3x3", "none"],
        "exchange": "together",
        **{"channels": 2, "stem": 1, "evaluation_cells": 1, "evaluation_channels": 2},
        "batch_size": 1000,
    },
    "feathers": {
        **{"cells": 1, "channels": 2, "nodes": 1, "evaluation_channels": 2, "batch_size": 1000},
        "evaluation_cells": 1,
    },
    "fedavg": {"widths": [4], "hidden": 8, "batch_size": 1000},
    "fedgh": FIVE,
    "fedgh_published": FIVE,
    "fedproto": FIVE,
    "flexifed": {"width": 2, "hidden": 4, "depths": [11, 13], "batch_size": 1000},
    "perfedrlnas": {"scale": 0.2, "last": 4, "epochs": 1, "batch_size": 1000},
}
"""Smaller networks, for methods whose `SMOKE` takes long."""
