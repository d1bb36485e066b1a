"""A request taken apart, so that any part of it can be changed, and put together again.

Nothing is checked: what `Request` would refuse can be written, too.
"""

import json
import os
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dprbft.config.schema import RunConfig
from dprbft.engines.frames import Request
from dprbft.wire import WIRE, own_version
from panas.runtime.store import pack_tensors, parse_tensors


@dataclass
class Draft:
    """A request; of a hello its settings and facts are parsed."""

    header: dict[str, Any]  # run, site, number, verb
    content: bytes = b""  # of all but a hello or leave
    hello: dict[str, Any] | None = None  # its other fields
    config: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # in the place of settings or facts
    canonical: bool = True  # settings in the one form that they must have, where they have one

    @staticmethod
    def of(request: Request) -> "Draft":
        """A request's parts."""
        names = ("run", "site", "number", "verb")
        draft = Draft({name: getattr(request, name) for name in names})
        draft.files = dict(request.files)
        if request.verb not in ("hello", "leave"):
            draft.content = request.content
            return draft
        hello = json.loads(request.content)
        draft.config, draft.facts = json.loads(hello["config"]), json.loads(hello["facts"])
        draft.hello = hello
        return draft

    def message(self) -> bytes:
        """The message of the request."""
        if self.hello is None:
            return self.content
        texts = {"config": _config_text(self), "facts": json.dumps(self.facts, sort_keys=True)}
        return json.dumps(self.hello | texts | self.texts).encode()

    def to_bytes(self) -> bytes:
        """The frame, with a new number."""
        message, names = self.message(), sorted(self.files)
        about = self.header | {
            "type": "request",
            "wire": WIRE,
            "panas": own_version(),
            "nonce": os.urandom(16).hex(),
            "message": len(message),
            "files": {name: len(self.files[name]) for name in names},
        }
        return framed(about, [message, *(self.files[name] for name in names)])


def framed(about: dict[str, Any], parts: list[bytes]) -> bytes:
    """A frame of a header and what follows it."""
    text = json.dumps(about, sort_keys=True, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(4, "big"), text, *parts])


def _config_text(draft: Draft) -> str:
    """Settings as a hub would write them, where they are settings at all."""
    if draft.canonical:
        try:
            return RunConfig.model_validate(draft.config).model_dump_json()
        except Exception:
            pass  # a hostile hub sends them all the same
    return json.dumps(draft.config)


def tensors_of(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Arrays and notes of a file of tensors; none of any other file."""
    try:
        return parse_tensors(content)
    except ValueError:
        return {}, {}


def repacked(tensors: dict[str, Tensor], notes: dict[str, str]) -> bytes:
    """A file with a right checksum."""
    kept = {k: v for k, v in notes.items() if k != "sha256"}
    return pack_tensors({k: v.contiguous() for k, v in tensors.items()}, kept)


def announcing(content: bytes, shape: list[int], dtype: str) -> bytes:
    """A file whose header announces arrays of a shape that do not come."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    for name, entry in header.items():
        if name != "__metadata__":
            size = torch.Size(shape).numel() * 4
            header[name] = entry | {"shape": shape, "dtype": dtype, "data_offsets": [0, size]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[end:]
