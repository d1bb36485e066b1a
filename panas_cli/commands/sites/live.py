"""`panas deploy status --live`: the state anew every few seconds, on a terminal's other screen.

Without a terminal only lines that have changed are printed, each with the time. q, Ctrl-C or the
end of the input stops it.
"""

import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from panas_cli.commands.sites import status
from panas_cli.text.printing import print_text

EVERY = 3.0
"""Seconds between two looks."""


def live(folder: Path, run: Path | None, *, of_site: bool) -> None:
    """Show the state of a hub or a site until it is ended.

    Args:
        folder: the hub's or the site's.
        run: directory of a hub's run; None: its latest.
        of_site: whether it is a site's folder.
    """
    show = partial(status.of_site, folder) if of_site else partial(status.of_hub, folder, run)
    with suppress(KeyboardInterrupt), _keys() as ended:
        follow(partial(show, json=False), ended, Console(highlight=False))


def follow(
    show: Callable[[], None], ended: Callable[[float], bool], screen: Console, every: float = EVERY
) -> None:
    """Show what a function prints, again and again.

    Args:
        show: prints the state.
        ended: waits so many seconds, less if a key is pressed; whether it is to end.
        screen: a terminal, or not.
        every: seconds between two looks.
    """
    if not screen.is_terminal:
        before = list[str]()
        while True:
            lines = captured(show)
            for line in changed(before, lines):
                print_text(f"{datetime.now():%H:%M:%S} {line}")
            sys.stdout.flush()
            before = lines
            if ended(every):
                return
    with Live(console=screen, auto_refresh=False, screen=True) as shown:
        while True:
            lines = captured(show, screen.width)[: max(1, screen.height - 2)]
            lines += ["", f"{datetime.now():%H:%M:%S}; q ends"]
            shown.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)
            if ended(every):
                return


def changed(before: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines that were not there before."""
    return [line for line in lines if line.strip() and line not in before]


def captured(show: Callable[[], None], width: int | None = None) -> list[str]:
    """What a function prints, as lines of a width."""
    out, before = io.StringIO(), os.environ.get("COLUMNS")
    try:
        if width is not None:
            os.environ["COLUMNS"] = str(width)
        with redirect_stdout(out):
            show()
    finally:
        if before is not None:
            os.environ["COLUMNS"] = before
        elif width is not None:
            del os.environ["COLUMNS"]
    return [line.rstrip() for line in out.getvalue().splitlines()]


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Whether q was pressed within some seconds; only time ends them without a keyboard."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios  # not on every system
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield partial(pressed, keyboard)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def pressed(keyboard: int, seconds: float) -> bool:
    """Whether q came from a file descriptor, or its end, within some seconds."""
    if not select.select([keyboard], [], [], seconds)[0]:
        return False
    return os.read(keyboard, 1) in (b"q", b"Q", b"")
