"""Values that a hostile hub gives to settings, and to anything else."""

import math
from collections.abc import Mapping
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 255, 10**6, 10**9, 2**31, 2**63, 10**30, -(2**63)),
    *(0.0, -0.0, 1e-300, 1e-9, 0.5, 1e30, -1e30, 1e300, math.inf, -math.inf, math.nan),
)
JUNK: tuple[Any, ...] = (None, True, "", "x", "../x", "/etc/passwd", [], {}, [[]], "\x00", "é" * 99)
EPSILONS = (1e-3, 1e-2, 0.05, 0.2, 0.49, 0.5, 0.51, 1.0, 39.0, 41.0, math.inf)
DELTAS = (1e-12, 1e-6, 1e-3, 1e-2, 9e-3, 0.5, 0.999)
SEEDS = (0, 1, 2**31, 2**64, 10**30)
SETTINGS: Mapping[tuple[str, str], tuple[Any, ...]] = {
    ("privacy", "epsilon"): EPSILONS,
    ("privacy", "epsilons"): ([], [0.1, 0.1], [0.5, 40.0], [1e-3], [math.inf, 0.1]),
    ("privacy", "delta"): DELTAS,
    ("privacy", "histogram_share"): (1e-9, 0.1, 0.5, 0.999999),
    ("privacy", "release_share"): (None, 1e-9, 0.3, 0.999999),
    ("privacy", "release"): ("moments", "class_sums", "raw", "none", "nothing"),
    ("privacy", "search"): ("public-proxy", "data-free", "unaccounted", "private"),
    ("privacy", "network"): ("stays", "protected"),
    ("privacy", "trust"): ("auto", "server", "secure-sum"),
    ("privacy", "strict"): (True, False),
    ("privacy", "allow_unprotected"): (True,),
    ("federation", "method"): (
        "joined",
        "local",
        "dprbft",
        "fedavg",
        "fedgh",
        "decnas",
        "flexifed",
    ),
    ("federation", "clients"): (1, 2, 3, 10**6, 10**9),
    ("federation", "remote"): ([], ["north"], ["north", "north"], ["south", "north"], ["n/../x"]),
    ("federation", "sites"): (["/etc"], ["north"]),
    ("federation", "rounds"): (1, 2, 3, 10**6, 10**9),
    ("federation", "participation"): (1e-9, 0.5, 1.0),
    ("federation", "facts"): ("/etc/passwd", None, "facts.json"),
    ("federation", "options"): ({}, {"learning_rate": 1e30}, {"x": 1}, {"widths": [10**6]}),
    ("federation", "head"): ("shared", "local", "blend"),
    ("federation", "head_init"): ("etf", "random"),
    ("federation", "warm_start"): ("none", "public"),
    ("federation", "train_head"): (True, False),
    ("federation", "compression"): ("none", "float16", "int8"),
    ("federation", "baselines"): (True, False),
    ("federation", "secure_minimum"): (3, 4, 10**6),
    ("federation", "secure_missing"): (None, 0, 10**6),
    ("training", "learning_rate"): (1e-30, 1.0, 1e30),
    ("training", "clip"): (1e-30, 1.0, 1e30),
    ("training", "noise_multiplier"): (None, 1e-9, 1.0, 1e9),
    ("training", "batch_size"): (1, 7, 10**9),
    ("training", "epochs"): (1, 2, 10**6, 10**9),
    ("training", "warm_epochs"): (1, 10**6, 10**9),
    ("training", "student_steps"): (1, 10**6, 10**9),
    ("tuning", "trials"): (0, 1, 10**6),
    ("search", "population"): (2, 3, 10**6, 10**9),
    ("search", "generations"): (0, 1, 10**6, 10**9),
    ("search", "epochs"): (1, 10**6, 10**9),
    ("search", "student_steps"): (1, 10**6, 10**9),
    ("search", "max_blocks"): (1, 3, 10**3, 10**6),
    ("search", "widths"): ([16], [1], [10**5], [10**9], []),
    ("search", "kernels"): ([3], [2], [10**4 + 1]),
    ("search", "max_parameters"): (None, 1, 10**9),
    ("search", "max_latency_ms"): (None, 1e-9, 1e9),
    ("network", "width"): (1, 8, 10**6, 10**9),
    ("network", "features"): (1, 8, 64, 10**6, 10**9),
    ("network", "norm"): ("auto", "group", "batch"),
    ("network", "unit"): (True, False),
    ("data", "search_fraction"): (0.0, 0.2, 0.999),
    ("data", "validation_fraction"): (0.0, 1e-9, 0.15, 0.999),
    ("data", "test_fraction"): (0.0, 1e-9, 0.2, 0.999),
    ("data", "public_data"): ("/etc/passwd", "x.csv", None),
    ("data", "dataset"): ("cifar10", "/etc/passwd", "data.csv"),
    ("data", "data_root"): ("/", ".."),
    ("data", "bits"): (None, 8, 12, 16),
    ("audit", "samples"): (1, 10**9),
}
"""What each setting is changed to, by section and name."""
