"""The user's own state folder, which lies outside every site's folder, and the key in it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_bytes, write_bytes

NOWHERE = Path(os.devnull) / "panas"  # of a user without a home: nothing can be there


def state_folder() -> Path:
    """The user's own state: PANAS_STATE, else `panas` in XDG_STATE_HOME or ~/.local/state."""
    if own := os.environ.get("PANAS_STATE"):
        return Path(own)
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "panas"
    try:
        return Path.home() / ".local" / "state" / "panas"
    except RuntimeError:  # no HOME, and no entry of this user
        return NOWHERE


@contextmanager
def hold_state(path: Path) -> Iterator[None]:
    """Hold the lock of a file below the state folder; BadInput where nothing can be kept there."""
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(path))
        except OSError as e:
            raise BadInput(
                f"expected a folder for the user's own state at {state_folder()}, got none that "
                "can be written; set PANAS_STATE to one"
            ) from e
        yield


def state_key() -> bytes:
    """The user's key, drawn once; BadInput where it can be kept nowhere."""
    path = state_folder() / "key"
    with hold_state(path):
        if not path.exists():
            write_bytes(path, os.urandom(32))
    return read_bytes(path)
