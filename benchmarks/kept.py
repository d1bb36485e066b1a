"""Tasks in worker processes, each finished one on disk before the next is waited for.

A file holds the results of all tasks that share what is `decided`: arguments, data, versions. Its
first line says what that is, then comes one line a task. What the code itself decides is not among
it: remove the folder after a change of code.
"""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from panas.runtime.journal import open_journal
from panas.runtime.pool import Pool

C = TypeVar("C")
T = TypeVar("T", bound=tuple[Any, ...])

LIBRARIES = ("panas", "torch", "numpy", "scipy", "botorch", "gpytorch", "optuna")


def _version(library: str) -> str | None:
    """None where it is not installed: few benchmarks need all."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def kept(
    folder: Path,
    name: str,
    decided: Mapping[str, Any],
    run: Callable[[C, T], dict[str, Any]],
    context: C,
    tasks: Sequence[T],
    *,
    workers: int,
    shown: int = 20,
) -> list[dict[str, Any]]:
    """The results of all tasks in their order; only those that the folder lacks are run.

    Args:
        folder: made if needed.
        name: of the tasks, for the file and for the progress on stderr.
        decided: all that decides a result apart from its task and the code, as plain JSON.
        run: a function at the top level of a module; its result is plain JSON.
        context: what every task needs.
        tasks: distinct, plain JSON.
        workers: processes, at least 1.
        shown: about how many lines of progress.

    Raises:
        BadInput: if another process has the file open.

    """
    versions = {library: of for library in LIBRARIES if (of := _version(library))}
    header = {"tasks": name, **decided, "versions": versions}
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{name}-{digest}.jsonl"

    def say(what: str) -> None:
        print(f"{name}: {len(done)} of {len(tasks)} {what}", file=sys.stderr, flush=True)

    with open_journal(path, header) as journal:
        known = {tuple(line["task"]): line["result"] for line in journal.lines}
        done = {task: known[task] for task in tasks if task in known}
        missing = [task for task in tasks if task not in done]
        if done:
            say(f"known from {path}")
        every = math.ceil(len(tasks) / shown)
        with Pool(workers, context) as pool:
            for at, result in pool.map(run, missing):
                journal.append({"task": missing[at], "result": result})
                done[missing[at]] = journal.lines[-1]["result"]
                if len(done) % every == 0 or len(done) == len(tasks):
                    say("done")
    return [done[task] for task in tasks]
