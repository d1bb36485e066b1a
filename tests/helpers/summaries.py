"""Summaries of runs, from figures alone."""

from typing import Any

from panas.training.metrics import Metrics


def rivals(public: float) -> dict[str, Any]:
    """A baseline on public samples, and one on the site's own besides."""
    figures = {"balanced_accuracy": None, "auroc": None}
    forest = {"model": "random forest", "reads": "public", "accuracy": public, **figures}
    own = forest | {"reads": "public and own", "accuracy": 0.99}
    return {"majority": 0.5, "rivals": [forest, own]}


def site_of(joined: float, **changes: Any) -> dict[str, Any]:
    """A site of a summary."""
    return {
        "id": 0,
        "name": "north",
        "genome": "c16k3",
        "parameters": 1234,
        "accuracy": {
            "selected": joined,
            "local_last": 0.8,
            "global_last": joined,
        },
        "ladder": {"majority": 0.5, "public": 0.7, "alone": 0.8, "joined": joined},
        "epsilon": {"spent": 8.0, "budget": 8.0, "release": 1.0, "search": 0.5},
        "delta": 1e-5,
        "unit": "one training sample",
        "selected_round": 2,
        "baselines": rivals(0.75),
        "metrics": Metrics(
            samples=10,
            accuracy=joined,
            balanced_accuracy=0.7,
            auroc=0.912,
            macro_f1=0.7,
            recall=(0.9, None, 0.123),
            f1=(0.9, None, 0.2),
        ).to_json(),
    } | changes


def summary_of(*clients: dict[str, Any], ladder: dict[str, float] | None = None) -> dict[str, Any]:
    """The summary of a run."""
    accuracy = {"mean": 0.9, "std": 0.0, "local_last": 0.9, "global_last": 0.9}
    return {
        "dataset": "digits",
        "preset": "sound",
        "method": "dprbft",
        "clients": list(clients),
        "absent": [],
        "accuracy": accuracy | ({"ladder": ladder} if ladder else {}),
        "communication": {"up_bytes": 1, "down_bytes": 1},
        "rounds": 3,
        "seconds": {"train": 1.0},
    }
