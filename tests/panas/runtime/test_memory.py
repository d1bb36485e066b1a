import platform
import subprocess
import sys

import pytest

from panas.runtime.memory import keep_freed_memory

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


def faults(how: str) -> int:
    """Pages that the system hands out while four blocks are taken and freed 20 times."""
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True
    )
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")
def test_freed_memory_is_not_taken_from_the_system_again() -> None:
    assert faults("kept") < 500  # else up to 163,200


def test_another_c_library_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert keep_freed_memory.__wrapped__() is False
