"""Is a plan right? What `panas plan` says, beside what the same run takes and charges.

    python -m benchmarks.plan [--only NAME,...] [--seed 0] [--workers N] [--work DIR] [--json]

Five configurations that differ in kind. Each is planned, then run, as commands of their own.

| column | what it is |
|---|---|
| told | seconds of the plan, and their range over networks that a search may choose |
| taken | seconds of the command `panas run`, from its start to its end |
| told / taken | 1 is right; the aim is 0.5 to 2 |
| planned | epsilon in all: the least and the most, over sites and what tuning may choose |
| charged | the same of the ledgers afterwards, the least and the most over sites |

Other work on the machine slows plan and run alike, as far as it stays the same.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

DEMO = ("--preset", "demo", "--dataset", "digits")
CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "first run": (),
    "demo, 4 sites": (*DEMO, "--clients", "4"),
    "network stays": (*DEMO, "--clients", "4", "--set", "privacy.network=stays"),
    "dprbft": (*DEMO, "--clients", "4", "--method", "dprbft"),
    "table of owners": ("--preset", "demo", "--epsilon", "4"),
}
"""What is given to `panas plan` and `panas run`; sites of the table are made first."""
OWNED = "table of owners"
SITES, PUBLIC, DELTA = 3, 120, "1e-3"
TOLERANCE = 0.01
"""Of epsilon: a planned range that is missed by less counts as right, for figures that tuning or a
noised number of samples decide."""


@dataclass(frozen=True)
class Compared:
    """A plan beside its run."""

    name: str
    told: float  # seconds
    told_range: tuple[float, float]
    taken: float
    stages: dict[str, tuple[float | None, float]]  # told and taken
    planned: dict[str, tuple[float, float]]  # epsilon by step, and in all
    charged: dict[str, tuple[float, float]]

    @property
    def ratio(self) -> float:
        """Told seconds over taken ones."""
        return self.told / self.taken

    @property
    def is_charged_as_planned(self) -> bool:
        """Whether all that was charged is in the range that was planned, to `TOLERANCE`."""
        return all(
            low * (1 - TOLERANCE) <= least and most <= high * (1 + TOLERANCE)
            for step, (low, high) in self.planned.items()
            for least, most in [self.charged[step]]
        )


def compared(name: str, options: Sequence[str], out: Path) -> Compared:
    """Plan and run one configuration.

    Args:
        name: of the configuration.
        options: of both commands.
        out: the run directory, which is not there yet.
    """
    plan = json.loads(panas("plan", *options, "--json"))
    began = time.perf_counter()
    panas("run", *options, "--out", str(out), "--json")
    taken = time.perf_counter() - began
    sites = json.loads(panas("ledger", str(out), "--json"))["clients"]
    seconds = json.loads((out / "stages.json").read_text())["seconds"]
    steps = {step: _pair(span) for step, span in plan["epsilon_by_step"].items()}

    def over_sites(key: str) -> tuple[float, float]:
        values = [float(site[key]) for site in sites]
        return min(values), max(values)

    return Compared(
        name=name,
        told=plan["seconds"],
        told_range=_pair(plan["seconds_range"]),
        taken=taken,
        stages={s["stage"]: (s["seconds"], seconds.get(s["stage"], 0.0)) for s in plan["stages"]},
        planned=steps | {"in all": _pair(plan["epsilon_range"])},
        charged={step: over_sites(step) for step in steps} | {"in all": over_sites("spent")},
    )


def _pair(values: Sequence[Any]) -> tuple[float, float]:
    low, high = map(float, values)
    return low, high


def panas(*words: str) -> str:
    """What a command prints; SystemExit with its errors if it fails."""
    command = [sys.executable, "-m", "panas_cli.main", *words]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"panas {' '.join(words)}: {done.stderr}")
    return done.stdout


def owned_table(folder: Path, seed: int) -> tuple[str, ...]:
    """Options of sites whose owners have a part of scikit-learn's breast cancer table each.

    Args:
        folder: gets tables and sites.
        seed: of the partition.
    """
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    parts = dict(zip(("open", "a", "b", "c"), np.split(order, _cuts(len(y))), strict=True))
    names = [f"column {i}" for i in range(x.shape[1])]
    for part, rows in parts.items():
        with (folder / f"{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names, "label"])
            writer.writerows([*map(float, x[i]), int(y[i])] for i in rows)
    public = ("--public-data", str(folder / "open.csv"))
    for part in list(parts)[1:]:
        terms = ("--epsilon", "8", "--delta", DELTA, *public)
        panas("site", "init", str(folder / part), "--data", str(folder / f"{part}.csv"), *terms)
    return (*public, "--sites", *(str(folder / part) for part in list(parts)[1:]))


def _cuts(n: int) -> list[int]:
    return [PUBLIC + (n - PUBLIC) * k // SITES for k in range(SITES)]


def main() -> None:
    """Parse, plan, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names between commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--work", type=Path, help="folder of the runs, which stay there")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    names = a.only.split(",") if a.only else list(CONFIGURATIONS)
    more = ["--seed", str(a.seed), *(["--workers", str(a.workers)] if a.workers else [])]
    more += [word for item in a.set for word in ("--set", item)]
    with tempfile.TemporaryDirectory() as temporary:
        work = a.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        results = []
        for name in names:
            own = owned_table(work, a.seed) if name == OWNED else ()
            out = work / name.replace(",", "").replace(" ", "-")
            results.append(compared(name, (*CONFIGURATIONS[name], *more, *own), out))
            if not a.json:
                _show(results[-1])
    if a.json:
        extra = ({"ratio": r.ratio, "as_planned": r.is_charged_as_planned} for r in results)
        print(json.dumps([asdict(r) | e for r, e in zip(results, extra, strict=True)]))


def _show(r: Compared) -> None:
    low, high = r.told_range
    print(
        f"{r.name:16} told {r.told:6.1f} s ({low:.0f} to {high:.0f}), taken {r.taken:6.1f} s, "
        f"told / taken {r.ratio:.2f}"
    )
    for step, (least, most) in r.planned.items():
        a, b = r.charged[step]
        print(f"    {step:10} planned {least:.4f} to {most:.4f}, charged {a:.4f} to {b:.4f}")
    print("    charged as planned" if r.is_charged_as_planned else "    not charged as planned")


if __name__ == "__main__":
    main()
