"""Files on disk; the only module that writes them.

A file is written whole, flushed and renamed into place: a reader sees the old or the new one, also
after a kill. JSON and safetensors files carry a SHA-256 of their content, which every read checks.
Nothing is pickled. Whatever is written is private to its owner: files have mode 0600, and folders
that are made 0700, or less where the umask says so.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from safetensors import SafetensorError

from panas.runtime.errors import BadInput

if TYPE_CHECKING:  # torch takes seconds to load, and most files hold no tensor
    import torch

CHECKSUM = "sha256"


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path` atomically; folders are made as needed."""
    write_parts(path, [content])


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Put the parts after each other at `path` atomically, each as soon as it is made.

    An error in their making leaves what was at `path`.
    """
    _make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum as last key; not-finite numbers are refused."""
    # Read back once, so that what is hashed is what a reader will see: all keys are text.
    body = json.loads(json.dumps(record, allow_nan=False))
    body[CHECKSUM] = _json_digest(body)
    write_bytes(path, (json.dumps(body, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote; a missing, edited or damaged file is `BadInput`."""
    content = read_bytes(path)
    try:
        body = json.loads(content)
        digest = body.pop(CHECKSUM)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise _damaged(path) from e
    if digest != _json_digest(body):
        raise _damaged(path)
    return body


def pack_tensors(tensors: Mapping[str, "torch.Tensor"], metadata: Mapping[str, str]) -> bytes:
    """Named tensors with text metadata and a checksum of both, as safetensors."""
    from safetensors.torch import save

    content = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    notes = dict(metadata)
    notes[CHECKSUM] = _tensor_digest(content, notes)
    return _ordered(save(content, notes))


def _ordered(content: bytes) -> bytes:
    """Sort the metadata, so that equal tensors give equal bytes; the library's order is random."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors stay aligned
    return len(text).to_bytes(8, "little") + text + content[end:]


def parse_tensors(content: bytes) -> tuple[dict[str, "torch.Tensor"], dict[str, str]]:
    """Tensors and metadata, not checked any further; `ValueError` if they do not decode."""
    from safetensors.torch import load

    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return load(content), dict(header.get("__metadata__") or {})
    except (SafetensorError, AttributeError, RecursionError) as e:
        raise ValueError("not safetensors") from e


def unpack_tensors(
    content: bytes, origin: Path
) -> tuple[dict[str, "torch.Tensor"], dict[str, str]]:
    """Read what `pack_tensors` made; `origin` is named in the error."""
    try:
        tensors, notes = parse_tensors(content)
    except ValueError as e:
        raise _damaged(origin) from e
    if notes.pop(CHECKSUM, None) != _tensor_digest(tensors, notes):
        raise _damaged(origin)
    return tensors, notes


def write_tensors(
    path: Path, tensors: Mapping[str, "torch.Tensor"], metadata: Mapping[str, str]
) -> None:
    """Write named tensors with text metadata and a checksum of both.

    Args:
        path: a .safetensors file; it is there whole or not at all.
        tensors: by name; on any device.
        metadata: texts by name, in the file's header.
    """
    write_bytes(path, pack_tensors(tensors, metadata))


def read_tensors(path: Path) -> tuple[dict[str, "torch.Tensor"], dict[str, str]]:
    """Read what `write_tensors` wrote; a missing, edited or damaged file is `BadInput`."""
    return unpack_tensors(read_bytes(path), path)


def under(tensors: Mapping[str, "torch.Tensor"], prefix: str) -> dict[str, "torch.Tensor"]:
    """The tensors whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def read_bytes(path: Path) -> bytes:
    """The content of a file that an earlier stage wrote; `BadInput` if it is missing."""
    if not path.is_file():
        raise BadInput(f"expected {path}, found no such file; run the stage that makes it")
    return path.read_bytes()


class Busy(BadInput):
    """Another process holds the lock."""


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of `path` (a file beside it) among all processes of this machine; without
    `wait`, a lock that another holds is `Busy`."""
    _make_folder(path.parent)
    with os.fdopen(_open(path.with_name(f".{path.name}.lock")), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as e:
            raise Busy(
                f"expected {path.parent} for this process alone, got one that another process is "
                "working on; wait for it, or give another folder"
            ) from e
        yield


def copy_parts(parts: Iterable[bytes], stream: BinaryIO) -> None:
    """Write the parts to an open stream once all are made; until then they are in a scratch file.

    An error in their making leaves the stream as it was.
    """
    with tempfile.TemporaryFile() as scratch:
        for part in parts:
            scratch.write(part)
        scratch.seek(0)
        shutil.copyfileobj(scratch, stream)


def append_bytes(path: Path, content: bytes, at: int) -> None:
    """Append to a file of lines; on disk when this returns.

    A torn line beyond byte `at` is cut off. A whole line there, or a file that is shorter, is
    `BadInput`: nothing that was written is ever lost.

    Args:
        path: made if it is absent; hold `exclusive(path)` where several processes append.
        content: whole lines.
        at: size of the file in bytes, as the caller last saw it.
    """
    _make_folder(path.parent)
    new = not path.exists()
    with os.fdopen(_open(path), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(at)
        if size < at or b"\n" in file.read():
            raise BadInput(
                f"expected {path} to end with the line at byte {at}, got {size} bytes; another "
                "process has changed it: begin again"
            )
        file.truncate(at)
        file.seek(at)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if new:
        _sync_folder(path.parent)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a JSONL file, if there is one; `BadInput` if one is no JSON object."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
        except ValueError as e:
            raise BadInput(f"expected JSON on line {number} of {path}, got a damaged line") from e
        if not isinstance(record, dict):
            raise BadInput(f"expected a JSON object on line {number} of {path}, got {record!r}")
        records.append(record)
    return records


def _open(path: Path) -> int:
    """A file for reading and writing, made private to its owner if it is not there."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, private to their owner."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for new in reversed(missing):
        new.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _json_digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _tensor_digest(tensors: Mapping[str, "torch.Tensor"], notes: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(notes), sort_keys=True).encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name}{t.dtype}{tuple(t.shape)}".encode())
        digest.update(t.numpy().tobytes())
    return digest.hexdigest()


def _damaged(path: Path) -> BadInput:
    return BadInput(
        f"expected {path} as it was written, got a damaged or edited file; "
        "move it away and run that stage again"
    )


MOST_NOTES = 1 << 20
"""Bytes: a longer file of notes takes no more of them, so that nobody can fill the disk."""


def append_note(path: Path, **about: Any) -> None:
    """Add a line of JSON with the time to a file of notes."""
    record = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **about}
    with exclusive(path):
        at = path.stat().st_size if path.exists() else 0
        if at < MOST_NOTES:
            append_bytes(path, (json.dumps(record) + "\n").encode(), at)
