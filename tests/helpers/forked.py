"""Commands in processes of their own, forked from a server that has loaded the libraries once.

Nothing of a test's own process is in them: no shape check, no patch, and its environment as it is.
"""

import importlib
import os
import runpy
import signal
import sys
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

LOADED = ["panas_cli.main", "panas_cli.commands.run", "dprbft.engines.verbs", "torch._dynamo"]

Death = tuple[str, str, int, str]
"""Module and name of a function, which of its calls, and whether "before" or "after" its work."""


def plant(module: str, name: str, call: int, when: str, once: str | None = None) -> None:
    """Let this process die at a call; of several processes with the same file `once`, one dies."""
    owner = importlib.import_module(module)
    real, count = getattr(owner, name), 0

    def die() -> None:
        if once is not None:
            try:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        os.kill(os.getpid(), signal.SIGKILL)

    def deadly(*args: object, **named: object) -> object:
        nonlocal count
        count += 1
        if count == call and when == "before":
            die()
        result = real(*args, **named)
        if count == call and when == "after":
            die()
        return result

    setattr(owner, name, deadly)


def begin(stderr: Path, *arguments: object, death: Death | None = None) -> ForkServerProcess:
    """Begin `panas ARGS`, which writes what it says to a file or a named pipe."""
    context = get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    words = [str(a) for a in arguments]
    process = context.Process(target=_carry_out, args=(stderr, words, death, dict(os.environ)))
    process.start()
    return process


def carry_out(stderr: Path, *arguments: object, death: Death | None = None) -> int:
    """The exit code of `panas ARGS`; negative, it is the signal that ended it."""
    process = begin(stderr, *arguments, death=death)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def run_script(script: Path, stderr: Path, patches: Path, environment: dict[str, str]) -> int:
    """The exit code of a script that runs in its folder, after the code of a file."""
    context = get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=_run_script, args=(script, stderr, patches, environment))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run_script(script: Path, stderr: Path, patches: Path, environment: dict[str, str]) -> None:
    _settle(stderr, environment)
    os.chdir(script.parent)
    sys.argv = [str(script)]
    runpy.run_path(str(patches))
    runpy.run_path(str(script), run_name="__main__")


def _settle(stderr: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)


def _carry_out(
    stderr: Path, words: list[str], death: Death | None, environment: dict[str, str]
) -> None:
    _settle(stderr, environment)
    sys.argv = ["panas", *words]
    from panas_cli.main import main

    if death is not None:
        plant(*death)
    main()
