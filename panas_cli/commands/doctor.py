"""`panas doctor`: whether this machine can run panas, and what is missing for its extras."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from panas.runtime.pool import default_workers
from panas_cli.text.printing import print_json, print_table, print_words, size_text

LIBRARIES = ("panas", "torch", "torchvision", "deap", "botorch", "gpytorch", "opacus")
EXTRAS = {
    "flower": ("flwr", "cryptography"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "tensorboard": ("tensorboard",),
    "parquet": ("pyarrow",),
    "dicom": ("pydicom",),
    "encoders": ("onnx", "onnxruntime"),
}
"""What each extra needs."""
LEAST_BYTES = 2e9
"""Free bytes of a disk that a run should have."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` is empty where nothing is to be done."""

    what: str
    value: str
    remedy: str = ""
    needed: bool = True  # for panas itself, not for an extra


def doctor(folder: Path, as_json: bool) -> int:
    """Print what was found; 1 if panas cannot run as it is."""
    found = list(findings(folder))
    failed = any(f.remedy and f.needed for f in found)
    if as_json:
        print_json({"healthy": not failed, "findings": [asdict(f) for f in found]})
        return int(failed)
    rows = [[f.what, f.value, "ok" if not f.remedy else "do" if f.needed else "-"] for f in found]
    print_table(("what", "found", ""), rows, left=3)
    for finding in found:
        if finding.remedy:
            print_words(f"{finding.what}: {finding.remedy}")
    return int(failed)


def findings(folder: Path) -> Iterator[Finding]:
    """What panas needs, in the order in which it needs it."""
    yield Finding("python", platform.python_version(), _old(sys.version_info >= (3, 11)))
    for name in LIBRARIES:
        value = _version(name)
        yield Finding(name, value or "missing", "" if value else f"pip install {name}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("cores, processes", f"{cores}, {default_workers()}")
    yield Finding("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
    free = shutil.disk_usage(folder).free
    full = "free some space, or give another --out" if free < LEAST_BYTES else ""
    yield Finding("free disk", size_text(free), full)
    writes = _writes(folder)
    yield Finding("write access", "yes" if writes else "no", "" if writes else "give another --out")
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        value = f"lacks {', '.join(missing)}" if missing else "installed"
        remedy = f"pip install '.[{extra}]' in the checkout, if you want it" if missing else ""
        yield Finding(f"extra {extra}", value, remedy, needed=False)


def _old(is_new: bool) -> str:
    return "" if is_new else "panas needs Python 3.11 or newer"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _writes(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
