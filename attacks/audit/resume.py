"""What an interrupted audit goes on from: the clients that are through while others are not.

A file a client, which says of what run and settings it is; one of others, or a damaged one, is as
none. Privacy: they hold pictures of private samples, for the auditor alone, and go when the audit
is through.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from attacks.audit.records import ClientAudit, DrawnAudit
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors


def digest(files: Iterable[Path], settings: dict[str, Any]) -> str:
    """What an audit is of: the content of its files, its settings (plain JSON), our version."""
    about = json.dumps(settings | {"version": version("panas")}, sort_keys=True)
    total = hashlib.sha256(about.encode())
    for path in sorted(files):
        total.update(f"{path.name} {path.stat().st_size}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


class AuditCheckpoint:
    """The clients of one audit (`of`: its digest) that are through, in a folder of their own."""

    def __init__(self, folder: Path, of: str) -> None:
        self._folder, self._of = folder, of

    def known(self, client: int) -> DrawnAudit | None:
        """What was kept of a client; None if nothing was, or it is of another audit."""
        try:
            pictures, notes = read_tensors(self._file(client))
        except BadInput:
            return None
        if notes["of"] != self._of:
            return None
        audit = ClientAudit.from_json(json.loads(notes["record"]))
        return DrawnAudit(audit, {k: v.numpy().tobytes() for k, v in pictures.items()})

    def keep(self, found: DrawnAudit) -> None:
        """Put a client's audit and pictures on disk."""
        arrays = {
            name: torch.frombuffer(bytearray(content), dtype=torch.uint8)
            for name, content in found.pictures.items()
        }
        record = json.dumps(found.audit.to_json(), allow_nan=False)
        write_tensors(self._file(found.audit.id), arrays, {"of": self._of, "record": record})

    def forget(self) -> None:
        """The audit is through."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, client: int) -> Path:
        return self._folder / f"client-{client:03d}.safetensors"
