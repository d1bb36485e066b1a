import platform
import subprocess
import sys

import pytest

from panas.runtime.memory import _of_libc, keep_freed_memory, return_freed_memory

FAULTS = """
import resource, sys
import torch
from panas.runtime.memory import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
for i in range(30):
    if i == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(4 << 20) for _ in range(4)]  # 16 MiB each: 4,096 pages
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

RETURNED = """
import threading
import torch
from panas.runtime.memory import keep_freed_memory, return_freed_memory

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def work():
    blocks = [torch.zeros(4 << 20) for _ in range(8)]  # 128 MiB

keep_freed_memory()
before = held()
thread = threading.Thread(target=work)
thread.start()
thread.join()
kept = held() - before
assert return_freed_memory()
print(kept, held() - before)
"""


def faults(how: str) -> int:
    """Pages that the system hands out while four blocks are taken and freed 20 times."""
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True
    )
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")
def test_freed_memory_is_not_taken_from_the_system_again() -> None:
    assert faults("kept") < 500  # else up to 163,200


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's malloc_trim")
def test_what_a_thread_has_freed_is_returned() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RETURNED], check=True, capture_output=True, text=True
    )
    kept, after = map(int, ran.stdout.split())
    assert kept > 100 << 20
    assert after < 64 << 20


def test_another_c_library_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    _of_libc.cache_clear()
    try:
        assert keep_freed_memory.__wrapped__() is False
        assert return_freed_memory() is False
    finally:
        _of_libc.cache_clear()
