"""Figures 4 and 6 and Table 3 of DecNAS in form, on a small federation: does its search pay?

    python -m benchmarks.decnas [--dataset digits] [--data-root DIR] [--seeds 2] [--sites 4]
        [--epsilon E] [--iterations 5] [--start 6] [--final 4] [--reduction 0.12]
        [--limit N] [--parts 4,6,3] [--json]

All cells are whole runs of method `decnas` with the same sites, and as many rounds as their
iterations take between the first rounds (`--start`) and the last (`--final`). Accuracy is the mean
over sites of the result's on their own test samples; costs are of the search alone, as the
publication counts them: bytes of the messages of one site, and multiply-accumulates there.

| part | rows |
|---|---|
| Figure 4 | accuracy against MACs: layer by layer; uniform multipliers pruned in the same search; |
| | width multipliers trained from scratch by FedAvg, at most as large, in as many rounds (all of |
| | them train, while the search also has rounds that only send weights); the whole network |
| Figure 6 | cost with each of the three optimisations off, and with all off; ratios to all on |
| Table 3 | drop ratios, without dynamic rounds: accuracy before and after final tuning, uplink |

Without `--epsilon` nothing is private, as published.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from baselines.decnas import rounds_of_iteration, turns_of
from baselines.networks.pruning import (
    macs_by_layer,
    plain_network,
    prunable,
    uniform,
    widths_of,
)
from benchmarks.runs import finished
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from panas.architecture.network import Norm

TARGETS = (0.5, 0.25, 0.12)
DROPS = (0.0, 0.33, 0.5, 1.0)
SWITCHES: dict[str, dict[str, Any]] = {
    "all on": {},
    "no dynamic rounds": {"dynamic_rounds": False},
    "no early dropping": {"early_dropping": False},
    "no groups": {"grouping": False},
    "all off": {"dynamic_rounds": False, "early_dropping": False, "grouping": False},
}
SHAPES = {"digits": (1, 8, 8), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
CLASSES = 10
DECAY = 0.98  # of the budget's steps, the method's default


@dataclass(frozen=True, kw_only=True)
class World:
    """What all runs share."""

    dataset: str = "digits"
    data_root: str | None = None
    limit: int | None = None  # samples, all sites together
    sites: int = 4
    epsilon: float = math.inf
    iterations: int = 5
    start: int = 6  # rounds of FedAvg of the whole network
    final: int = 4  # rounds of final tuning
    widths: tuple[int, ...] = (8, 16, 16)
    hidden: tuple[int, ...] = (32,)
    turns: tuple[int, ...] = (1, 2, 3)
    every: int = 2
    reduction: float = 0.12
    together: int = 2  # filters of a group norm, under a budget
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    accuracy: float  # of the result, mean over sites
    searched: float | None  # before final tuning, as sites reported
    macs: int  # of the result, for one sample
    iterations: int
    rounds: int  # of the run
    up: float  # bytes that a site sent in the search, mean over sites
    down: float  # bytes that it received
    work: float  # multiply-accumulates there


def options_of(world: World, **changes: Any) -> dict[str, Any]:
    """The settings of the method that all runs share, with changes."""
    return {
        **{"widths": list(world.widths), "hidden": list(world.hidden), "turns": list(world.turns)},
        **{"together": world.together, "every": world.every},
        **{"reduction": world.reduction, "iterations": world.iterations},
        **{"learning_rate": 0.1, "momentum": 0.5, "batch_size": 32, "epochs": 2, "target": 0.01},
        **changes,
    }


def rounds_of(world: World, options: dict[str, Any]) -> int:
    """Rounds of the run that all planned iterations take."""
    layers = options.get("pruning", "layers") == "layers"
    candidates = len(prunable(whole_of(world))) if layers else 1
    drop = options.get("drop_ratio", 0.33) if options.get("early_dropping", True) else 0.0
    dynamic = options.get("dynamic_rounds", True)
    return sum(
        rounds_of_iteration(
            candidates, turns_of(t, options["turns"], options["every"], dynamic), drop
        )
        for t in range(1, options["iterations"] + 1)
    )


def iterations_to(world: World, target: float) -> int:
    """Iterations after which the budget is at most this share of the whole network's MACs."""
    left, count = 1.0, 0
    while left > target:
        left, count = left - world.reduction * DECAY**count, count + 1
    return count


def whole_of(world: World) -> nn.Sequential:
    """The network that is shrunk."""
    norm: Norm = "batch" if math.isinf(world.epsilon) else "group"
    shape = SHAPES[world.dataset]
    return plain_network(shape, CLASSES, world.widths, world.hidden, norm, world.together)


def config_of(world: World, options: dict[str, Any]) -> RunConfig:
    """A run with just as many rounds as its search takes."""
    rounds = world.start + rounds_of(world, options) + world.final
    shares = {"start_share": world.start / rounds, "final_share": world.final / rounds}
    data = {"dataset": world.dataset, "data_root": world.data_root, "limit": world.limit}
    settings = {
        "seed": world.seed,
        "data": {k: v for k, v in data.items() if v is not None},
        "federation": {
            **{"method": "decnas", "clients": world.sites, "partition": "iid"},
            **{"rounds": rounds, "baselines": False, "options": {**options, **shares}},
        },
        "privacy": {"epsilon": world.epsilon, "allow_unprotected": math.isinf(world.epsilon)},
    }
    return build_config(settings, {})


def run(world: World, **changes: Any) -> Cell:
    """One run to its end."""
    options = options_of(world, **changes)
    config = config_of(world, options)
    with finished(config, 1) as (_, summary):
        sites = summary["clients"]
    facts = [site["setting"] for site in sites]
    spent = [fact["about"]["cost"].get("search", {}) for fact in facts]
    points = facts[0]["about"]["frontier"]
    return Cell(
        accuracy=statistics.fmean(site["accuracy"]["selected"] for site in sites),
        searched=points[-1]["accuracy"] if points else None,
        macs=facts[0]["macs"],
        iterations=len(points),
        rounds=config.federation.rounds,
        up=statistics.fmean(cost.get("up", 0) for cost in spent),
        down=statistics.fmean(cost.get("down", 0) for cost in spent),
        work=statistics.fmean(cost.get("macs", 0.0) for cost in spent),
    )


def multiplied(world: World, most: int) -> World:
    """The same with a network at the largest width multiplier within so many MACs."""
    shape, whole = SHAPES[world.dataset], whole_of(world)
    grid = (uniform(whole, m / 100) for m in range(100, 0, -1))
    widths = next(widths_of(n) for n in grid if sum(macs_by_layer(n, shape)) <= most)
    depth = len(world.widths)
    together = 1 if math.isinf(world.epsilon) else world.together  # widths are multiples already
    return replace(world, widths=widths[:depth], hidden=widths[depth:], together=together)


def figure_4(world: World, targets: Sequence[float]) -> dict[str, Cell]:
    """Layer by layer to each target, its rivals, and the whole network."""
    results = {}
    for target in targets:
        search = {"target": target, "iterations": iterations_to(world, target)}
        ours = run(world, **search)
        rival = replace(multiplied(world, ours.macs), final=ours.rounds - world.start)
        results[f"{target} layers"] = ours
        results[f"{target} uniform"] = run(world, **search, pruning="uniform")
        results[f"{target} scratch"] = run(rival, iterations=0)
    final = max(cell.rounds for cell in results.values()) - world.start
    return results | {"whole": run(replace(world, final=final), iterations=0)}


def figure_6(world: World) -> dict[str, Cell]:
    """The same search with its optimisations on and off."""
    return {name: run(world, **changes) for name, changes in SWITCHES.items()}


def table_3(world: World, drops: Sequence[float]) -> dict[str, Cell]:
    """The same search at several drop ratios, without dynamic rounds."""
    return {str(d): run(world, drop_ratio=d, dynamic_rounds=False) for d in drops}


def savings(cells: Mapping[str, Cell]) -> dict[str, dict[str, float]]:
    """How many times the cost of all optimisations each row of Figure 6 takes; "product" of the
    three rows with one off."""
    results = {}
    for what in ("up", "down", "work"):
        base = getattr(cells["all on"], what)
        ratios = {name: getattr(cell, what) / base for name, cell in cells.items()}
        single = [ratios[name] for name in cells if name.startswith("no ")]
        results[what] = {**ratios, "product": math.prod(single)}
    return results


def mean(cells: Sequence[Cell]) -> dict[str, Any]:
    """The mean of runs over seeds, with the standard deviation of their accuracies."""
    rows = [asdict(cell) for cell in cells]
    means = {
        key: statistics.fmean(values)
        for key in rows[0]
        if (values := [row[key] for row in rows if row[key] is not None])
    }
    spread = statistics.stdev([c.accuracy for c in cells]) if len(cells) > 1 else 0.0
    return {**means, "std": spread, "accuracies": [c.accuracy for c in cells]}


def measured(world: World, seeds: int, parts: Sequence[str]) -> dict[str, Any]:
    """All parts that are asked for, over seeds."""
    kinds: dict[str, Callable[[World], dict[str, Cell]]] = {
        "4": lambda w: figure_4(w, TARGETS),
        "6": figure_6,
        "3": lambda w: table_3(w, DROPS),
    }
    names = {"4": "figure 4", "6": "figure 6", "3": "table 3"}
    record: dict[str, Any] = {}
    for part in parts:
        runs = [kinds[part](replace(world, seed=seed)) for seed in range(seeds)]
        record[names[part]] = {row: mean([run[row] for run in runs]) for row in runs[0]}
        if part == "6":
            record["savings"] = [savings(run) for run in runs]
    return record


def main() -> None:
    """Parse, run, print."""
    w = World()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default=w.dataset, choices=sorted(SHAPES))
    parser.add_argument("--data-root")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--parts", default="4,6,3")
    for name in ("sites", "iterations", "start", "final"):
        parser.add_argument(f"--{name}", type=int, default=getattr(w, name))
    parser.add_argument("--reduction", type=float, default=w.reduction)
    parser.add_argument("--epsilon", type=float, default=math.inf)
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args())
    seeds, parts, as_json = given.pop("seeds"), given.pop("parts"), given.pop("json")
    record = measured(World(**given), seeds, parts.split(","))
    if as_json:
        print(json.dumps(record))
        return
    for part, rows in record.items():
        print(part)
        for row in rows if part == "savings" else ():
            for what, ratios in row.items():
                print(what, " ".join(f"{name} x{ratio:.2f}" for name, ratio in ratios.items()))
        for name, row in rows.items() if part != "savings" else ():
            print(
                f"{name:20} accuracy {row['accuracy']:.3f} +- {row['std']:.3f}, searched "
                f"{row.get('searched', math.nan):.3f}, {row['macs']:.0f} MACs, "
                f"{row['up'] / 1e3:.0f} kB up, {row['down'] / 1e3:.0f} kB down, "
                f"{row['work'] / 1e6:.0f} million MACs"
            )


if __name__ == "__main__":
    main()
