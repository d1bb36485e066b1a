"""What engines carry between a hub and a site: one `Request` down, one `Answer` up.

A frame is 4 bytes with the length of its header, the header as JSON, and the bytes that the header
gives sizes of, in its order: of a request the message and its files, of an answer the message and
the signature. Each has one form: a header that encoding it again would not give is refused, as are
sizes that are not those of the bytes that came, before anything is decoded. A name of a run or site
is safe as the name of a file.

Every header has the number of its wire version, and the version of panas that wrote it. Ends of one
wire version work together, whatever their versions of panas. Of any other wire version only the
fields type, run, site, verb, nonce, wire and panas are read, which no version may rename: a site
can still answer, and both ends say which of them to upgrade.

Nothing here imports torch: what merely hands frames on should start at once, and hold no data.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dprbft.wire import WIRE, own_version
from panas.runtime.errors import BadInput

MAX_FRAME = 1 << 30
"""Bytes; a larger frame is refused before it is read."""

MAX_HEADER = 1 << 16
HEAD = 4 + MAX_HEADER
"""Bytes of a frame's beginning that have the whole of its header."""
MAX_SIGNATURE = 1 << 10
MAX_FILES = 8
MAX_NUMBER = 10**6
MAX_CODE = 255

DIGEST = ".sha256"
"""Ends the name of a file that does not come along: its SHA-256 does, as text, for a site that has
the file from an earlier hello."""

QUIET = ("hello", "search", "tune", "finish", "train", "export", "leave")
"""Verbs that a site answers with a code alone, whatever the method."""

SMALL = {"hello": 1 << 24, "leave": 1 << 24, "search": 0, "tune": 0, "train": 0, "export": 0}
"""Bytes of a request's message, at most, for verbs that say little; others may fill a frame."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERB = re.compile(r"[a-z][a-z-]{0,31}")
_NONCE = re.compile(r"[0-9a-f]{32}")
_PANAS = re.compile(r"[0-9A-Za-z.+!-]{1,40}")
_COMMON = ("run", "site", "verb", "nonce", "panas")
_FIXED = (*_COMMON, "type", "wire")
_REQUEST = {*_FIXED, "files", "message", "number"}
_ANSWER = {*_FIXED, "code", "message", "signature"}


class OtherWire(BadInput):
    """A frame of another wire version; `about` is its header, of which nothing is checked but
    versions."""

    def __init__(self, kind: str, about: Mapping[str, Any]) -> None:
        wire, panas = about.get("wire", 0), about.get("panas", "before numbers")
        here, there = ("site", "hub") if kind == "request" else ("hub", "site")
        super().__init__(
            f"expected wire version {WIRE} (panas {own_version()} at this {here}), got {wire} "
            f"(panas {panas} at the {there}); upgrade panas at the {here if wire > WIRE else there}"
        )
        self.about = about

    def answer(self, code: int) -> bytes | None:
        """A frame that says so to who asked; None if the header does not tell whom to answer."""
        whom: dict[str, Any] = {n: self.about.get(n) for n in ("run", "site", "verb", "nonce")}
        try:
            return Answer(**whom, code=code).to_bytes()
        except BadInput:
            return None


def sha256(content: bytes) -> str:
    """The digest of a file, as a request has it in the file's place: 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def new_nonce() -> str:
    """The number of one request, never used before: 32 hexadecimal digits."""
    return os.urandom(16).hex()


def is_name(text: str) -> bool:
    """Whether a text may be the name of a run or a site: it is safe as the name of a folder."""
    return _NAME.fullmatch(text) is not None


def answer_cap(verb: str) -> int:
    """Bytes of an answer's message to a verb, at most."""
    return 0 if verb in QUIET else MAX_FRAME


def check_request(head: bytes, size: int) -> None:
    """Refuse a request of `size` bytes by its first bytes, of which `HEAD` are enough: before the
    rest is read. BadInput if it is none, or says more than its verb may."""
    try:
        about, at = _header(head, "request", _REQUEST)
    except OtherWire:  # whoever reads the whole of it answers
        return
    sizes, verb = about["files"], about["verb"]
    if not isinstance(sizes, dict) or not isinstance(verb, str):
        raise _refused("request", "a header of other fields")
    _check_names(sizes)
    _check_sizes(at, [about["message"], *sizes.values()], size, "request")
    if about["message"] > SMALL.get(verb, MAX_FRAME):
        raise _refused("request", f"a message of {about['message']} bytes to {verb:.40}")


@dataclass(frozen=True)
class Request:
    """What a hub asks of a site. BadInput if a part of it cannot be."""

    run: str
    site: str
    number: int  # of the site in the run
    verb: str
    nonce: str  # the answer must repeat it
    content: bytes  # a message of `dprbft.messages`, or none
    files: Mapping[str, bytes] = field(default_factory=dict)  # the public ones of a hello, by name
    panas: str = field(default_factory=own_version)  # at the hub

    def __post_init__(self) -> None:
        _check_common(self, "request")
        _check_integer(self.number, MAX_NUMBER, "number", "request")
        _check_names(self.files)
        if len(self.content) > SMALL.get(self.verb, MAX_FRAME):
            raise _refused("request", f"a message of {len(self.content)} bytes to {self.verb}")

    def to_bytes(self) -> bytes:
        """The frame as it crosses; BadInput if it is too large."""
        names = sorted(self.files)
        return _joined(self._header(), [self.content, *(self.files[name] for name in names)])

    @staticmethod
    def from_bytes(content: bytes) -> "Request":
        """Read a frame; BadInput if it is no request in its one form."""
        head, at = _header(content, "request", _REQUEST)
        sizes = head["files"]
        if not isinstance(sizes, dict):
            raise _refused("request", "files that are no object")
        _check_names(sizes)
        names = sorted(sizes)
        whole = [head["message"], *(sizes[name] for name in names)]
        message, *parts = _parts(content, at, whole, "request")
        fields = {name: head[name] for name in (*_COMMON, "number")}
        files = dict(zip(names, parts, strict=True))
        request = Request(**fields, content=message, files=files)
        _check_form(request._header(), content, at, "request")
        return request

    def _header(self) -> dict[str, Any]:
        sizes = {name: len(part) for name, part in self.files.items()}
        about = {"number": self.number, "message": len(self.content), "files": sizes}
        return _common(self, "request") | about


@dataclass(frozen=True)
class Answer:
    """What a site answers: a code, and a message where it released something.

    BadInput if a part of it cannot be. `signature` is by the site's key over `signed_part`; empty
    where an engine has no keys.
    """

    run: str
    site: str
    verb: str
    nonce: str  # of the request
    code: int  # of `dprbft.messages.Code`
    content: bytes = b""
    signature: bytes = b""
    panas: str = field(default_factory=own_version)  # at the site

    def __post_init__(self) -> None:
        _check_common(self, "answer")
        _check_integer(self.code, MAX_CODE, "code", "answer")
        if self.content and self.code:
            raise _refused("answer", f"a message with code {self.code}")
        if len(self.content) > answer_cap(self.verb):
            raise _refused("answer", f"a message of {len(self.content)} bytes to {self.verb}")
        if len(self.signature) > MAX_SIGNATURE:
            raise _refused("answer", f"a signature of {len(self.signature)} bytes")

    def signed_part(self) -> bytes:
        """What the site's key signs: all but the signature, the message by its digest."""
        about = self._header() | {"digest": sha256(self.content)}
        del about["signature"]
        return b"panas answer\n" + _text(about)

    def to_bytes(self) -> bytes:
        """The frame as it crosses; BadInput if it is too large."""
        return _joined(self._header(), [self.content, self.signature])

    @staticmethod
    def from_bytes(content: bytes, cap: int = MAX_FRAME) -> "Answer":
        """Read a frame of at most `cap` bytes; BadInput if it is no answer in its one form."""
        head, at = _header(content, "answer", _ANSWER, cap)
        message, signature = _parts(content, at, [head["message"], head["signature"]], "answer")
        fields = {name: head[name] for name in (*_COMMON, "code")}
        answer = Answer(**fields, content=message, signature=signature)
        _check_form(answer._header(), content, at, "answer")
        return answer

    def _header(self) -> dict[str, Any]:
        sizes = {"message": len(self.content), "signature": len(self.signature)}
        return _common(self, "answer") | {"code": self.code} | sizes


def _common(frame: Request | Answer, kind: str) -> dict[str, Any]:
    return {"type": kind, "wire": WIRE} | {name: getattr(frame, name) for name in _COMMON}


def _text(about: Mapping[str, Any]) -> bytes:
    return json.dumps(about, sort_keys=True, separators=(",", ":")).encode()


def _joined(about: Mapping[str, Any], parts: Iterable[bytes]) -> bytes:
    head = _text(about)
    frame = b"".join((len(head).to_bytes(4, "big"), head, *parts))
    if len(frame) > MAX_FRAME:
        raise BadInput(f"expected a frame of at most {MAX_FRAME} bytes, got {len(frame)}")
    return frame


def _header(
    content: bytes, kind: str, keys: set[str], cap: int = MAX_FRAME
) -> tuple[dict[str, Any], int]:
    """A frame's header and where it ends; of its values nothing is checked yet."""
    if len(content) > min(cap, MAX_FRAME):
        raise _refused(kind, f"{len(content)} bytes, above {min(cap, MAX_FRAME)}")
    end = 4 + int.from_bytes(content[:4], "big")
    if not 4 < end <= min(len(content), MAX_HEADER):
        raise _refused(kind, f"a header of {end - 4} bytes in {len(content)}")
    try:
        about = json.loads(content[4:end])
    except (ValueError, RecursionError) as e:
        raise _refused(kind, "a header that does not decode") from e
    if not isinstance(about, dict) or about.get("type") != kind:
        raise _refused(kind, "a header of other fields")
    if _is_other_wire(about):
        raise OtherWire(kind, about)
    if about.keys() != keys:
        raise _refused(kind, f"a header of other fields than wire version {WIRE} has")
    return about, end


def _parts(content: bytes, at: int, sizes: list[Any], kind: str) -> list[bytes]:
    """The bytes after the header, cut where it says; sizes must be those of what came."""
    _check_sizes(at, sizes, len(content), kind)
    view, parts = memoryview(content), []
    for size in sizes:
        parts.append(bytes(view[at : at + size]))
        at += size
    return parts


def _check_sizes(at: int, sizes: list[Any], whole: int, kind: str) -> None:
    if any(type(size) is not int or size < 0 for size in sizes):
        raise _refused(kind, "sizes that are no numbers of bytes")
    if at + sum(sizes) != whole:
        raise _refused(kind, f"{whole} bytes instead of the {at + sum(sizes)} it declares")


def _check_form(about: Mapping[str, Any], content: bytes, at: int, kind: str) -> None:
    if _text(about) != content[4:at]:
        raise _refused(kind, "a header that encoding it again does not give")


def _is_other_wire(about: Mapping[str, Any]) -> bool:
    """Whether a header says, in its place and form, that it is of another wire version."""
    wire, panas = about.get("wire", 0), about.get("panas", "0")
    stated = type(wire) is int and 0 <= wire <= MAX_NUMBER and isinstance(panas, str)
    return stated and wire != WIRE and _PANAS.fullmatch(panas) is not None


def _check_common(frame: Request | Answer, kind: str) -> None:
    patterns = (_NAME, _NAME, _VERB, _NONCE, _PANAS)
    for what, pattern in zip(_COMMON, patterns, strict=True):
        value = getattr(frame, what)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _refused(
                kind,
                f"{what} {value!r:.80}",
                "give names of at most 64 letters, digits, dots, hyphens and underscores",
            )


def _check_integer(value: int, most: int, what: str, kind: str) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise _refused(kind, f"{what} {value!r:.40}")


def _check_names(files: Mapping[str, Any]) -> None:
    if len(files) > MAX_FILES or not all(map(is_name, files)):
        raise _refused("request", f"{len(files)} files with names {sorted(files)!r:.80}")


def _refused(kind: str, got: str, remedy: str = "ask again") -> BadInput:
    article = "an" if kind == "answer" else "a"
    return BadInput(f"expected {article} {kind} in its one form, got {got}; {remedy}")
