"""Commands in processes of their own, forked from a server that has loaded the libraries once.

Nothing of a test's own process is in them: no shape check, no patch, and its environment as it is.
"""

import importlib
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection, Listener
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Thread

from tiny_options import without_overruled

LOADED = ["panas_cli.main", "panas_cli.commands.run", "dprbft.methods.serve", "torch._dynamo"]

Death = tuple[str, str, int, str]
"""Module and name of a function, which of its calls, and whether "before" or "after" its work."""


def plant(module: str, name: str, call: int, when: str) -> None:
    """Let this process die at a call."""
    owner = importlib.import_module(module)
    real, calls = getattr(owner, name), 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def deadly(*args: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            die()
        result = real(*args, **named)
        if calls == call and when == "after":
            die()
        return result

    setattr(owner, name, deadly)


def begin(stderr: Path, *arguments: object, death: Death | None = None) -> ForkServerProcess:
    """Begin `panas ARGS`, which writes what it says to a file or a named pipe."""
    words = without_overruled(arguments)
    return _begin(_carry_out, stderr, words, death, dict(os.environ))


def carry_out(stderr: Path, *arguments: object, death: Death | None = None) -> int:
    """The exit code of `panas ARGS`; negative, it is the signal that ended it."""
    process = begin(stderr, *arguments, death=death)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def run_script(
    script: Path, stderr: Path, patches: Path | None, environment: dict[str, str]
) -> int:
    """The exit code of a script that runs in its folder, perhaps after the code of a file."""
    process = _begin(_run_script, script, stderr, patches, environment)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@contextmanager
def commands_of_scripts(command: Path) -> Iterator[None]:
    """Write a command that scripts may call as `panas`: each call of it is a forked process.

    What the process says is in `panas-N.log` in the folder of the call.
    """
    listener, numbers = Listener(family="AF_UNIX"), count()
    command.write_text(ASK.format(python=sys.executable, address=listener.address))
    command.chmod(0o755)

    def answer(call: Connection) -> None:
        words, folder, environment = call.recv()
        said = Path(folder) / f"panas-{next(numbers)}.log"
        process = _begin(_carry_out, said, words, None, environment, folder)
        process.join()
        call.send(process.exitcode)

    def serve() -> None:
        while True:
            call = listener.accept()
            Thread(target=answer, args=(call,), daemon=True).start()

    Thread(target=serve, daemon=True).start()
    yield
    command.unlink()


ASK = """#!{python} -S
import os, sys
from multiprocessing.connection import Client

server = Client({address!r})
server.send((sys.argv[1:], os.getcwd(), dict(os.environ)))
sys.exit(server.recv())
"""


def _begin(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    context = get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def _run_script(
    script: Path, stderr: Path, patches: Path | None, environment: dict[str, str]
) -> None:
    _settle(stderr, environment)
    os.chdir(script.parent)
    sys.argv = [str(script)]
    if patches is not None:
        runpy.run_path(str(patches))
    runpy.run_path(str(script), run_name="__main__")


def _settle(stderr: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)


def _carry_out(
    stderr: Path,
    words: list[str],
    death: Death | None,
    environment: dict[str, str],
    folder: str | None = None,
) -> None:
    _settle(stderr, environment)
    if folder is not None:
        os.chdir(folder)
    sys.argv = ["panas", *words]
    from panas_cli.main import main

    if death is not None:
        plant(*death)
    main()
