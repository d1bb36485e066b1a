"""Settings with which each method that exchanges updates is quick: a line a method."""

import math
from dataclasses import dataclass, field
from typing import Any

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
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


@dataclass(frozen=True)
class Tiny:
    """Options with which a method is quick, and one that it must refuse."""

    options: dict[str, Any]
    refused: dict[str, Any]
    per_site: bool = False  # whether its server keeps something of each site
    settings: dict[str, Any] = field(default_factory=dict)  # of a run, besides


# Full batches: one Gaussian a step, which is priced in closed form instead of seconds.
FIVE = {"kernels": 2, "hidden": [8], "width": 8, "batch_size": 1000, "epochs": 1}
TINY: dict[str, Tiny] = {
    "decnas": Tiny(
        {
            **{"widths": [4], "hidden": [8], "batch_size": 1000, "epochs": 1},
            **{"turns": [1], "start_share": 0, "final_share": 0},
        },
        {"drop_ratio": 2},
        per_site=True,
    ),
    "dp_fnas": Tiny(
        {
            "operations": ["skip_connect", "sep_conv_3x3", "none"],
            "exchange": "together",
            **{"channels": 2, "stem": 1, "evaluation_cells": 1, "evaluation_channels": 2},
            "batch_size": 1000,
        },
        {"exchange": "never"},
    ),
    "feathers": Tiny(
        {"cells": 1, "channels": 2, "nodes": 1, "evaluation_channels": 2, "batch_size": 1000}
        | {"evaluation_cells": 1},
        {"learning_rates": []},
    ),
    "fedavg": Tiny({"widths": [4], "hidden": 8, "batch_size": 1000}, {"learning_rate": -1.0}),
    "fedgh": Tiny(FIVE, {"release_share": 1.0}),
    "fedgh_published": Tiny(FIVE, {"keep": "neither"}),
    "fedproto": Tiny(FIVE, {"importance": -0.1}),
    "flexifed": Tiny(
        {"width": 2, "hidden": 4, "depths": [11, 13], "batch_size": 1000}, {"strategy": "most"}
    ),
    "perfedrlnas": Tiny(
        {"scale": 0.2, "last": 4, "epochs": 1, "batch_size": 1000}, {"stages": 7}, per_site=True
    ),
}
