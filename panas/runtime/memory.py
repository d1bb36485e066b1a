"""How the process takes memory from the system.

glibc gives large blocks back as soon as they are freed. A training frees and takes the same blocks
at every step, and the system zeroes their pages each time: a third of a step on the CPU.
"""

import ctypes
from functools import cache
from typing import Any

TRIM, TOP_PAD, MMAP = -1, -2, -3
"""Names of `mallopt`'s parameters: see malloc.h."""

KEPT, AHEAD = 256 << 20, 64 << 20  # bytes that stay although they are free; bytes taken at once
MOST_MMAP = 32 << 20  # glibc refuses more


@cache
def keep_freed_memory() -> bool:
    """From now on keep up to 256 MiB of freed memory in the process; False without glibc.

    The most that the process ever holds stays about the same: what is kept was in use before.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    return all([mallopt(MMAP, MOST_MMAP), mallopt(TRIM, KEPT), mallopt(TOP_PAD, AHEAD)])


def return_freed_memory() -> bool:
    """Give what is freed back to the system, of all threads; False if nothing was, or no glibc.

    For a process that waits long between two tasks, and does each in a thread of its own.
    """
    trim = _of_libc("malloc_trim")
    return trim is not None and bool(trim(0))


@cache
def _of_libc(name: str) -> Any:
    """A function of the C library; None if it is another system's, and has none of the name."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
