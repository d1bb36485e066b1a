"""Replies that are none: mutations of a right answer, and a small corpus of known attacks."""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from dprbft.engines.frames import Answer
from dprbft.messages import Release

WIDTH, CLASSES = 4, 3
RELEASE = Release(
    1,
    1,
    "moments",
    1.5,
    f"{1:032x}",
    {"A": torch.arange(10.0), "B": torch.ones(CLASSES, WIDTH)},
)

Header = dict[str, Any]


def headed(content: bytes, change: Callable[[Header], Any], data: bytes | None = None) -> bytes:
    """Safetensors with another header, and other numbers where they are given."""
    end = 8 + int.from_bytes(content[:8], "little")
    changed = change(json.loads(content[8:end]))
    text = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
    return len(text).to_bytes(8, "little") + text + (content[end:] if data is None else data)


def told(content: bytes, **changes: Any) -> bytes:
    """A release that says something else of itself; None leaves a fact out."""

    def change(header: Header) -> Header:
        about = json.loads(header["__metadata__"]["message"]) | changes
        text = json.dumps({k: v for k, v in about.items() if v is not None})
        return header | {"__metadata__": {"message": text}}

    return headed(content, change)


def array(name: str, **changes: Any) -> Callable[[bytes], bytes]:
    """A release one of whose arrays is declared otherwise."""
    return lambda content: headed(content, lambda h: h | {name: h[name] | changes})


def values(*numbers: float) -> bytes:
    """Float32 numbers as bytes, the others of the release after them."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def starting(*numbers: float) -> Callable[[bytes], bytes]:
    """A release whose first numbers are others."""

    def change(content: bytes) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        first = values(*numbers)
        return content[:end] + first + content[end + len(first) :]

    return change


TERABYTES = 80 * 10**12

CORPUS: dict[str, Callable[[bytes], bytes]] = {
    "nothing but a size": lambda c: c[:8],
    "cut off": lambda c: c[:-1],
    "a byte more": lambda c: c + b"\0",
    "a header of 80 TB": lambda c: TERABYTES.to_bytes(8, "little") + c[8:],
    "an array of 80 TB": array("A", shape=[TERABYTES // 4], data_offsets=[0, TERABYTES]),
    "more numbers than bytes": array("A", shape=[1 << 40]),
    "a negative size": array("A", shape=[-10]),
    "two negative sizes": array("A", shape=[-5, -2]),
    "a size beyond 64 bits": array("A", shape=[1 << 70]),
    "offsets that go back": array("A", data_offsets=[40, 0]),
    "offsets that overlap": array("B", data_offsets=[0, 48]),
    "another type": array("A", dtype="I32"),
    "half as many bits": array("A", dtype="F16", shape=[20]),
    "a type that is none": array("A", dtype="PICKLE"),
    "no shape": lambda c: headed(c, lambda h: h | {"A": {"dtype": "F32"}}),
    "another name": lambda c: headed(
        c, lambda h: {("Z" if k == "A" else k): v for k, v in h.items()}
    ),
    "no arrays": lambda c: headed(c, lambda h: {"__metadata__": h["__metadata__"]}, b""),
    "no facts": lambda c: headed(c, lambda h: {k: v for k, v in h.items() if k[0] != "_"}),
    "more metadata": lambda c: headed(
        c, lambda h: h | {"__metadata__": h["__metadata__"] | {"accuracy": "0.93"}}
    ),
    "metadata that are no texts": lambda c: headed(c, lambda h: h | {"__metadata__": {"a": 1}}),
    "deep lists": lambda c: headed(c, lambda h: b"[" * 100_000),
    "deep objects": lambda c: headed(c, lambda h: b'{"a":' * 100_000),
    "deep facts": lambda c: headed(
        c, lambda h: h | {"__metadata__": {"message": '{"a":' * 50_000 + "1" + "}" * 50_000}}
    ),
    "a number of 5000 digits": lambda c: headed(
        c, lambda h: h | {"__metadata__": {"message": '{"round": ' + "9" * 5000 + "}"}}
    ),
    "facts twice": lambda c: c.replace(
        b'\\"type\\": \\"release\\"', b'\\"type\\":\\"release\\" ', 1
    ),
    "NaN": starting(float("nan")),
    "infinity": starting(float("inf")),
    "minus infinity": starting(1.0, float("-inf")),
    "the largest number": starting(3.4e38),
    "another site": lambda c: told(c, site=0),
    "another round": lambda c: told(c, round=2),
    "a round that is true": lambda c: told(c, round=True),
    "a round of a float": lambda c: told(c, round=1.0),
    "no kind": lambda c: told(c, kind=None),
    "a kind that is a path": lambda c: told(c, kind="../../messages"),
    "a kind that is none": lambda c: told(c, kind="os"),
    "another kind": lambda c: told(c, kind="class_sums"),
    "a release of another kind": lambda c: replace(
        RELEASE,
        kind="class_sums",
        arrays={"S": torch.ones(CLASSES, WIDTH), "counts": torch.ones(CLASSES)},
    ).to_bytes(),
    "noise that is not a number": lambda c: told(c, noise_multiplier=float("nan")),
    "negative noise": lambda c: told(c, noise_multiplier=-1.5),
    "next to no noise": lambda c: told(c, noise_multiplier=1e-300),
    "a receipt that is none": lambda c: told(c, receipt="paid"),
    "one more fact": lambda c: told(c, accuracy=0.93),
    "not a release": lambda c: told(c, type="hello"),
}
"""Attacks on the release within an answer, by name."""

FRAMES: dict[str, Callable[[Answer], bytes]] = {
    "nothing": lambda a: b"",
    "a header of 4 GiB": lambda a: b"\xff" * 4 + a.to_bytes()[4:],
    "another run": lambda a: replace(a, run="other").to_bytes(),
    "another site": lambda a: replace(a, site="a").to_bytes(),
    "another verb": lambda a: replace(a, verb="finish", content=b"").to_bytes(),
    "another number": lambda a: replace(a, nonce="0" * 32).to_bytes(),
    "a code that is none": lambda a: replace(a, code=99, content=b"").to_bytes(),
    "a size that is negative": lambda a: a.to_bytes().replace(b'"signature":0', b'"signature":-1'),
    "a size of 80 TB": lambda a: a.to_bytes().replace(
        f'"message":{len(a.content)}'.encode(), f'"message":{TERABYTES}'.encode()
    ),
    "a field more": lambda a: a.to_bytes().replace(b'{"code"', b'{"accuracy":1,"code"'),
    "deep JSON": lambda a: (60_000).to_bytes(4, "big") + b"[" * 60_000,
    "ten times the largest": lambda a: replace(a, content=a.content * 100).to_bytes(),
}
"""Attacks on the frame around it."""


def corpus(answer: Answer) -> Iterator[tuple[str, bytes]]:
    """All known attacks on an answer that holds a release."""
    for name, change in CORPUS.items():
        yield name, replace(answer, content=change(answer.content)).to_bytes()
    for name, frame in FRAMES.items():
        yield f"frame: {name}", frame(answer)


def mutations() -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """Changes of some bytes, anywhere: exchanged, taken out, put in, repeated, cut off."""
    places = st.floats(0, 1, exclude_max=True)
    parts = st.binary(max_size=12)

    def put(at: float, part: bytes, over: int) -> Callable[[bytes], bytes]:
        def change(content: bytes) -> bytes:
            k = int(at * (len(content) + 1))
            return content[:k] + part + content[k + over :]

        return change

    one = st.builds(put, places, parts, st.integers(0, 16))
    cut = st.builds(lambda at: lambda c: c[: int(at * len(c))], places)
    again = st.builds(lambda n: lambda c: c * n, st.integers(2, 5))
    bit = st.builds(_flipped, places, st.integers(0, 7))

    def all_of(changes: list[Callable[[bytes], bytes]]) -> Callable[[bytes], bytes]:
        def change(content: bytes) -> bytes:
            for c in changes:
                content = c(content)
            return content

        return change

    return st.lists(st.one_of(bit, one, cut, again), min_size=1, max_size=3).map(all_of)


def _flipped(at: float, bit: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        if not content:
            return content
        k = int(at * len(content))
        return content[:k] + bytes([content[k] ^ 1 << bit]) + content[k + 1 :]

    return change
