"""What `sound` changes of the defaults in `dprbft.config.schema`, and other presets of `sound`.

`sound` joins once, on a common representation; `demo` is smaller. `paper` exchanges in rounds: it
follows section IV-A of the DPFNAS publication, with the decisions that it leaves open taken as its
authors would most likely have.
"""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "sound": {
        "search": {"population": 6, "generations": 3, "max_blocks": 6, "widths": [16, 32, 64]},
        "tuning": {
            "trials": 8,
            "initial": 4,
            "learning_rate": [0.02, 2.0],
            "clip": [0.1, 4.0],
            "batch_sizes": [32, 64, 128],
        },
        "training": {"epochs": 3, "learning_rate": 0.5},
        "federation": {"method": "joined"},
    },
    "demo": {
        "data": {"public_limit": 40},
        "search": {
            **{"population": 4, "generations": 1, "epochs": 4, "max_blocks": 5},
            "max_macs": 2_000_000,
        },
        "tuning": {"trials": 4, "initial": 3},
        "training": {"warm_epochs": 20},
        "federation": {"rounds": 2},  # of methods that have rounds
        "audit": {"decoder_epochs": 10},
    },
    "paper": {
        "data": {"public_limit": 1000},
        "network": {"width": 500, "unit": False},
        "search": {
            "population": 10,
            "generations": 20,
            "min_blocks": 3,
            "max_blocks": 10,
            "widths": [16, 32, 64, 128, 256],
            "learning_rate": 0.01,
            "optimiser": "sgd",
            "decay": "none",
            "batch_size": 64,
            "cache": False,
            "survival": "roulette",
            "rungs": [],
            "seeding": 1,
            "initial": None,
            "offspring": None,
            "screening": 1,
        },
        "tuning": {
            "trials": 30,
            "initial": 5,
            "batch_sizes": [64, 128, 256, 512],
            "learning_rate": [0.0001, 0.1],
            "clip": [0.1, 10.0],
        },
        "training": {"epochs": 30, "learning_rate": 0.01},
        "federation": {
            "method": "dprbft",
            "clients": 10,
            "partition": "classes",
            "rounds": 300,
            "warm_start": "none",
            "head": "shared",
            "head_init": "random",
            "train_head": True,
        },
        "privacy": {
            "epsilon": 50.0,
            "search": "unaccounted",
            "release": "raw_rows",
            "allow_unprotected": True,
        },
    },
}

FIRST_RUN: dict[str, Any] = {
    "preset": "demo",
    "data": {"dataset": "digits", "public_limit": 450, "public_labels": 20},
    "search": {"widths": [8, 16, 32], "student_steps": 150},
    "tuning": {"trials": 8},
    "training": {"student_steps": 1000},
    "federation": {"clients": 8, "alpha": 1.0, "secure_minimum": 3},
    "privacy": {"epsilon": 3.0},
}
"""The run of whoever names no data, sites, method or preset: eight sites that are too small alone,
450 public samples of which 20 have labels, and a server that sees the sum of all messages alone."""
