"""Whether `panas audit --implementation` notices faults: mutants of the code that it runs.

    python -m benchmarks.mutants [--clean 100] [--workers 2] [--only WORD] [--json]

A mutant is a function with one piece of its text replaced by another, in place of the function
wherever it is known, in a process of its own. It is *killed* if the audit raises an alarm. Clean
runs have no mutant, and fresh rows and noise each; an alarm there is a false one.
"""

import argparse
import importlib
import inspect
import json
import multiprocessing
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attacks.conformance.seeds import PREFIX, seed_of
from attacks.replay.audit import audit_implementation
from attacks.replay.prices import findings_of_prices
from attacks.replay.sources import findings_of_source
from benchmarks.mutant_table import MUTANTS, Mutant
from panas.privacy.noise import SystemNoise

SHARED_MEMORY = Path("/dev/shm")
"""Where ledgers lie meanwhile, if it is there: a disk takes most of the time."""


@dataclass(frozen=True)
class Outcome:
    """What the audit of one mutant, or of a clean run, found."""

    area: str
    name: str
    alarms: int
    first: str  # the part and test of the least likely
    seconds: float


def apply(mutant: Mutant) -> None:
    """Put a mutant in the place of its function, in all modules that know it, for good."""
    path, _, name = mutant.target.partition(":")
    home = importlib.import_module(path)
    owner, _, function = name.rpartition(".")
    holder = getattr(home, owner) if owner else home
    original = holder.__dict__[function]
    source: Any = original.fget if isinstance(original, property) else original
    text = textwrap.dedent(inspect.getsource(source))
    if text.count(mutant.old) != 1:
        times = text.count(mutant.old)
        raise ValueError(f"expected {mutant.old!r} once in {mutant.target}, got it {times} times")
    names: dict[str, Any] = {}
    exec(compile(text.replace(mutant.old, mutant.new), mutant.target, "exec"), home.__dict__, names)
    setattr(holder, function, names[function])
    for module in list(sys.modules.values()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is original:
                setattr(module, key, names[function])


def forget_prices() -> None:
    """Clear what accountants remember: a mutant among them would not be asked."""
    for name, module in list(sys.modules.items()):
        if name.startswith("panas.privacy."):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _audited(task: tuple[str, Mutant | None, int]) -> Outcome:
    name, mutant, seed = task
    begun = time.perf_counter()
    if mutant is not None:
        apply(mutant)
        if mutant.area == "accounting":
            forget_prices()
    result = audit_implementation(rng=np.random.default_rng(seed))
    first = ""
    if result.alarms:
        part, finding = result.alarms[0]
        first = f"{part}: {finding.test}: {finding.says}"
    area = "clean" if mutant is None else mutant.area
    return Outcome(area, name, len(result.alarms), first, time.perf_counter() - begun)


def measure(mutants: Iterable[Mutant], clean: int, workers: int, seed: int) -> list[Outcome]:
    """Audit mutants and clean runs, each in a process of its own.

    Args:
        mutants: which.
        clean: runs without one.
        workers: processes at once.
        seed: of the rows of the first; the others follow.
    """
    if SHARED_MEMORY.is_dir():
        tempfile.tempdir = str(SHARED_MEMORY)
    # Tables of seeds, and prices, that all processes share.
    seed_of(np.zeros(PREFIX))
    findings_of_source(SystemNoise)
    list(findings_of_prices())
    tasks: list[tuple[str, Mutant | None, int]] = [
        *((m.name, m, seed + k) for k, m in enumerate(mutants)),
        *((f"run {k}", None, seed + 1000 + k) for k in range(clean)),
    ]
    outcomes = []
    # Forked anew for each: a mutant dies with its process.
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        for outcome in pool.imap(_audited, tasks, chunksize=1):
            outcomes.append(outcome)
            state = "silent" if not outcome.alarms else outcome.first
            print(f"{outcome.area}: {outcome.name}: {state:.110}", file=sys.stderr, flush=True)
    return outcomes


def summary(outcomes: list[Outcome], minutes: float) -> dict[str, Any]:
    """Counts of mutants and clean runs, in all and by area.

    Args:
        outcomes: of all.
        minutes: that they took.
    """
    mutants = [o for o in outcomes if o.area != "clean"]
    clean = [o for o in outcomes if o.area == "clean"]
    killed = [o for o in mutants if o.alarms]
    return {
        "mutants": len(mutants),
        "killed": len(killed),
        "by_area": {
            area: [sum(o.area == area for o in killed), count]
            for area, count in Counter(o.area for o in mutants).items()
        },
        "alive": [f"{o.area}: {o.name}" for o in mutants if not o.alarms],
        "clean": len(clean),
        "alarms": sum(bool(o.alarms) for o in clean),
        "minutes": round(minutes, 1),
        "seconds_a_run": round(float(np.median([o.seconds for o in outcomes])), 1),
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clean", type=int, default=100, help="runs without a mutant")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="mutants whose area or name has this word")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    begun = time.perf_counter()
    chosen = [m for m in MUTANTS if args.only in f"{m.area} {m.name}"]
    outcomes = measure(chosen, args.clean, args.workers, args.seed)
    record = summary(outcomes, (time.perf_counter() - begun) / 60)
    if args.json:
        print(json.dumps(record | {"runs": [asdict(o) for o in outcomes]}))
        return
    for area, (killed, count) in record["by_area"].items():
        print(f"{area:16} {killed} of {count} killed")
    print(f"in all {record['killed']} of {record['mutants']}; alive: {record['alive'] or 'none'}")
    print(f"{record['alarms']} alarms in {record['clean']} clean runs, {record['minutes']} minutes")


if __name__ == "__main__":
    main()
