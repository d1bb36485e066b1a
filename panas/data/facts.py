"""What is public of a federation's data, and the bringing of anyone's own data to it.

Facts are declared, or come from public data: never from private labels or cells. Whoever simulates
a federation from one file takes that file's structure and class names as public.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panas.data.encoder import EncoderFacts
from panas.data.files.columns import LONGEST, Column, side_of, squares, unscaled
from panas.data.files.raw import Raw
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, read_json

Range = tuple[float, float]
BYTE, DEEPEST = 8, 16  # bits of usual pictures, and of the deepest
MOST_VALUES = 1 << 26  # of one sample
MOST_CLASSES = 10_000
DTYPES = ("uint8", "float32")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What everyone in a federation may know of its data."""

    class_names: tuple[str, ...]  # in the order of the network's outputs
    shape: tuple[int, int, int]  # (channels, height, width) of a network's input
    dtype: str  # of the values in memory: "uint8", or "float32" in [-1, 1]
    unit: bool = True  # whether a user's images as floats go from 0 to 1, and become [-1, 1]
    bits: int = 8  # depth of whole-number pictures, 8 to 16
    columns: tuple[Column, ...] = ()  # of a table; empty for images
    vectors: bool = False  # whether samples are vectors of numbers, of shape (1, 1, e)
    encoder: EncoderFacts | None = None  # that makes a vector of each picture

    def __post_init__(self) -> None:
        """Refuse what cannot be: facts may come from anybody."""
        names, shape = self.class_names, self.shape
        if not all(isinstance(n, str) and len(n) <= LONGEST for n in names):
            raise BadInput(f"expected names of at most {LONGEST} characters of classes, got others")
        if not 1 <= len(set(names)) == len(names) <= MOST_CLASSES:
            raise BadInput(
                f"expected 1 to {MOST_CLASSES} classes, each once, got others; name them apart"
            )
        sides = len(shape) == 3 and all(type(n) is int and n >= 1 for n in shape)
        if not sides or math.prod(shape) > MOST_VALUES:
            raise BadInput(
                f"expected samples of (channels, height, width) with at most {MOST_VALUES} "
                f"values, got {shape!r:.80}"
            )
        if self.dtype not in DTYPES or type(self.unit) is not bool:
            raise BadInput(f"expected values of type {' or '.join(DTYPES)}, got others")
        if type(self.bits) is not int or not BYTE <= self.bits <= DEEPEST:
            raise BadInput(f"expected pictures of {BYTE} to {DEEPEST} bits, got others")
        if type(self.vectors) is not bool:
            raise BadInput("expected whether samples are vectors, got something else")
        if self.vectors and (self.shape[:2] != (1, 1) or self.dtype != "float32"):
            raise BadInput(f"expected vectors of shape (1, 1, numbers), got {self.shape}")
        if (self.columns or self.vectors) and self.encoder:
            raise BadInput(
                "expected an encoder for pictures alone, got one for "
                f"{'vectors' if self.vectors else 'a table'}; leave --encoder out"
            )
        if not self.columns:
            return
        side = side_of(sum(column.width for column in self.columns))
        if len({c.name for c in self.columns}) < len(self.columns):
            raise BadInput("expected columns of different names, got one twice; rename one")
        if self.shape != (1, side, side) or self.dtype != "float32" or self.vectors:
            raise BadInput(
                f"expected a table of {len(self.columns)} columns as squares of {side} x {side} "
                f"numbers, got shape {self.shape}"
            )

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def are_rows(self) -> bool:
        """Whether a sample is a row, in which no feature is beside another, and not a picture."""
        return bool(self.columns) or self.vectors

    @property
    def are_pictures(self) -> bool:
        """Whether samples are pictures: neither rows of a table nor vectors."""
        return not self.are_rows

    def differs_from(self, other: "Facts") -> str | None:
        """What other facts say otherwise, in words; None where the samples look the same in both.

        Class names are left out, and the order of columns.
        """
        own, others = ({c.name: c for c in f.columns} for f in (self, other))
        if bool(own) != bool(others):
            return "images instead of a table" if own else "a table instead of images"
        if missing := next((name for name in own if name not in others), None):
            return f"none {missing!r:.80} among the columns"
        if extra := next((name for name in others if name not in own), None):
            return f"another column, {extra!r:.80}"
        for name, column in own.items():
            if column.kind != others[name].kind:
                return f"column {name!r:.80} as {others[name].kind} instead of {column.kind}"
            if column != others[name]:
                return f"column {name!r:.80} of another scale or other categories"
        for what in ("shape", "dtype", "unit", "bits", "vectors"):
            if getattr(self, what) != getattr(other, what):
                return f"{what} {getattr(other, what)} instead of {getattr(self, what)}"
        if self.encoder is None:
            return None if other.encoder is None else "an encoder, where none is declared"
        return self.encoder.differs_from(other.encoder)

    def no_samples(self) -> Samples:
        """A set without samples, of these facts."""
        dtype = torch.uint8 if self.dtype == "uint8" else torch.float32
        x = torch.empty((0, *self.shape), dtype=dtype)
        return Samples(x, torch.empty(0, dtype=torch.int64), self.classes)

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON."""
        record = asdict(self)
        if not self.vectors:  # as older versions wrote it
            del record["vectors"]
        for column in record["columns"]:
            if not column["angle"]:
                del column["angle"]
        del record["encoder"]
        return record | ({"encoder": self.encoder.to_json()} if self.encoder else {})

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Facts":
        """What `to_json` wrote."""
        columns = tuple(
            Column(**(column | {"categories": tuple(column["categories"])}))
            for column in record["columns"]
        )
        names, shape = tuple(record["class_names"]), tuple(record["shape"])
        encoder = record.get("encoder")
        rest: dict[str, Any] = {"class_names": names, "shape": shape, "columns": columns}
        rest["encoder"] = None if encoder is None else EncoderFacts.from_json(encoder)
        return Facts(**{**record, **rest})


def given_facts(path: Path) -> Facts:
    """The facts of a facts.json that a user names; BadInput, which names it, for another file."""
    read_bytes(path)  # one that cannot be read says so itself
    try:
        return Facts.from_json(read_json(path))
    except (ValueError, KeyError, TypeError) as e:  # `BadInput` is a ValueError
        raise BadInput(
            f"expected a facts.json as `panas site init` writes it for --facts, got {path}, which "
            "is another kind of file, or was edited; name a site's facts.json, or leave it out"
        ) from e


def infer(
    like: Raw,
    *,
    public: Raw | None = None,
    classes: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
    bits: int | None = None,
) -> Facts:
    """Facts from public samples and from what is declared.

    Args:
        like: its structure is taken: shape, type, names and kinds of columns; no cell and no label.
        public: samples that anybody may see: they give scale, categories and, unless declared,
            class names. Without them and without `classes`, `like` gives the class names.
        classes: names, in the order of the network's outputs.
        ranges: lowest and highest value of columns, by name; they go before public rows.
        bits: depth of pictures of more than 8 bits; None: what public ones need.
    """
    names = tuple(classes) or (public or like).class_names
    if like.columns:
        columns = _columns(like, public, ranges or {})
        side = side_of(sum(column.width for column in columns))
        return Facts(class_names=names, shape=(1, side, side), dtype="float32", columns=columns)
    if ranges:
        raise BadInput("expected ranges for the columns of a table, got images; leave them out")
    c, h, w = like.x.shape[1:]
    dtype = "uint8" if like.x.dtype == np.uint8 else "float32"
    if like.vectors:
        return Facts(class_names=names, shape=(c, h, w), dtype=dtype, unit=False, vectors=True)
    depth = _depth(like, public, bits)
    return Facts(class_names=names, shape=(c, h, w), dtype=dtype, bits=depth)


def fit(raw: Raw, facts: Facts, called: str = "the data") -> Samples:
    """Samples as a federation's networks take them, of data that fit its facts.

    BadInput says which fact they do not fit; it holds no cell and no label.

    Args:
        raw: as read from files, before any scaling.
        facts: shape, classes and scales; they decide about each sample by itself.
        called: name of the data in a message.
    """
    x = _rows(raw, facts, called) if facts.columns else _images(raw, facts, called)
    y = _labels(raw, facts, called)
    groups, part = (None if a is None else torch.from_numpy(a) for a in (raw.groups, raw.part))
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    files = raw.files if facts.encoder else None
    return Samples(*tensors, facts.classes, groups, part, raw.official, files=files)


def _columns(like: Raw, public: Raw | None, ranges: Mapping[str, Range]) -> tuple[Column, ...]:
    unknown = sorted(set(ranges) - set(like.columns))
    if unknown:
        raise BadInput(f"expected ranges of columns of the table, got {unknown[0]!r}; leave it out")
    for name, (low, high) in ranges.items():
        if not (np.isfinite([low, high]).all() and low < high) or like.kinds.get(name) == "text":
            raise BadInput(f"expected a range [low, high] of the numbers in {name!r}; mend it")
    results = []
    for name in like.columns:
        column = unscaled(name, like.kinds.get(name, "number"))
        if public is not None and len(public.y) and name in public.columns:
            column = column.seen(*_cells(public, name))
        if name in ranges:
            low, high = ranges[name]
            column = replace(column, centre=(low + high) / 2, reach=(high - low) / 2)
        results.append(column)
    return tuple(results)


def _cells(raw: Raw, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    cells = raw.x[:, raw.columns.index(name)]
    return np.ascontiguousarray(cells), raw.texts.get(name, ())


def _depth(like: Raw, public: Raw | None, bits: int | None) -> int:
    """Bits of whole-number pictures; what private pictures hold decides nothing."""
    if like.x.dtype != np.uint16:
        return BYTE
    if bits is not None:
        return bits
    if public is None or not public.x.size:
        raise BadInput(
            "expected data.bits, the depth of 16-bit pictures (often 12 or 16), where no picture "
            "is public, got none; set it (--set data.bits=16, `panas site init --bits 16`)"
        )
    return max(BYTE, int(public.x.max()).bit_length())


def _labels(raw: Raw, facts: Facts, called: str) -> np.ndarray:
    """The federation's number of each sample's class, by name; by number where only one side has
    names."""
    names, known = raw.class_names, {name: i for i, name in enumerate(facts.class_names)}
    if all(name in known for name in names):
        return np.array([known[name] for name in names], np.int64)[raw.y]
    if not raw.from_file and len(names) == facts.classes:
        return raw.y
    numbered = any(name.isdecimal() for name in known)  # then numbers are names themselves
    if not numbered and all(name.isdecimal() and int(name) < facts.classes for name in names):
        return np.array([int(name) for name in names], np.int64)[raw.y]
    raise BadInput(
        f"expected only the federation's classes ({', '.join(facts.class_names)[:200]}) in "
        f"{called}, got others; rename or drop them, or declare all in federation.classes"
    )


def _images(raw: Raw, facts: Facts, called: str) -> np.ndarray:
    if raw.columns:
        raise BadInput(f"expected images of shape {facts.shape} in {called}, got a table")
    if raw.vectors != facts.vectors:
        expected, got = ("vectors", "images") if facts.vectors else ("images", "vectors")
        raise BadInput(f"expected {expected} in {called}, got {got}; bring the same kind of data")
    if raw.x.shape[1:] != facts.shape:
        raise BadInput(
            f"expected images of shape {facts.shape} in {called}, got {raw.x.shape[1:]}; bring "
            "them to that shape"
        )
    if (raw.x.dtype == np.uint8) != (facts.dtype == "uint8"):
        kinds = ("uint8", raw.x.dtype) if facts.dtype == "uint8" else ("other than uint8", "uint8")
        raise BadInput(f"expected values of type {kinds[0]} in {called}, got {kinds[1]}")
    if raw.x.dtype != np.uint16:
        return raw.x
    if int(raw.x.max(initial=0)) >= 2**facts.bits:
        raise BadInput(
            f"expected pictures of {facts.bits} bits in {called}, got more; set data.bits for all"
        )
    return (raw.x * np.float32(2 / (2**facts.bits - 1)) - 1).astype(np.float32)


def _rows(raw: Raw, facts: Facts, called: str) -> np.ndarray:
    names = [column.name for column in facts.columns]
    missing = [name for name in names if name not in raw.columns]
    extra = [name for name in raw.columns if name not in names]
    if missing or extra:
        got = "a set of images" if not raw.columns else f"none {missing[0]!r}" if missing else ""
        raise BadInput(
            f"expected the federation's columns in {called}, got "
            f"{got or f'another one, {extra[0]!r}'}; bring the tables to the same columns"
        )
    features = []
    for column in facts.columns:
        cells, texts = _cells(raw, column.name)
        kind = raw.kinds.get(column.name, "number")
        if kind != column.kind and not np.isnan(cells).all():
            raise BadInput(
                f"expected a {column.kind} in each cell of column {column.name!r} of {called}, got "
                f"a column of the kind {kind}; convert it"
            )
        features.append(column.features(cells, texts))
    return squares(np.concatenate(features, axis=1))
