"""What crosses the wire in methods of releases: `Hello` and `Broadcast` down, `Release` up, codes.

Methods of the literature have `dprbft.updates` besides, a secure sum `dprbft.secure_sum.messages`.
Arrays are safetensors; the size of a message is the length of its bytes. Decoding checks all before
it is used: names, shapes, types, finite numbers. A message has one form: bytes that encoding it
again would not give are refused: they could carry what no ledger has seen (fields, order, padding).
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor

from dprbft.wire import WIRE, own_version
from panas.data.facts import Facts
from panas.privacy.release.compression import (
    Compression,
    compression_named,
    decode,
    encode,
    rounded,
)
from panas.privacy.release.estimate import ArraySpec, Estimate
from panas.privacy.release.gate import Released
from panas.privacy.release.kind import is_noised, kind_named, noise_scale
from panas.runtime.errors import BadInput
from panas.runtime.store import parse_tensors

MAX_BYTES = 1 << 30
"""A larger message is refused before it is decoded."""
BLOCK = 512  # characters that a message's facts are padded to
HEADER = 4096  # bytes that names, shapes and facts of a release take at most
LARGEST_WEIGHT = 1e6  # that a server sends; why that is safe: `dprbft.methods.rounds.heads`
LARGEST = 1e12  # of a number in a release: far above what any sums of samples, and noise, come to
LEAST_NOISE = 1e-6  # of a noise multiplier, far below what any budget allows


class Verb(StrEnum):
    """What a server asks of a site."""

    HELLO = "hello"  # here is the run: settings and public facts
    SEARCH = "search"  # find your architecture
    TUNE = "tune"  # find your DP-SGD settings
    READY = "ready"  # can you pay for the rounds to come?
    ROUND = "round"  # train against this broadcast, and release
    FINISH = "finish"  # here is the answer to the releases
    TRAIN = "train"  # make your own predictor of what was joined
    EXPORT = "export"  # write your networks, where you are
    LEAVE = "leave"  # forget a hello that nothing came of
    KEYS = "keys"  # of a secure sum (`dprbft.secure_sum`): announce your keys
    SHARE = "share"  # of a secure sum: share your secrets among those who announced keys
    UNMASK = "unmask"  # of a secure sum: open the sum over these sites


class Code(IntEnum):
    """What a site answers besides a release; a reason stays where it is, it may tell of data."""

    DONE = 0
    ABSENT = 1  # nobody answers there
    REFUSED = 2  # settings or data do not fit
    NO_BUDGET = 3  # its budget does not pay for it
    FAILED = 4  # something else went wrong there; its owner finds it in the site's log


@dataclass(frozen=True)
class Reply:
    """A site's answer: a code, and the bytes of a `Release` where it released something."""

    code: Code
    release: bytes = b""


def digest_of(content: bytes) -> str:
    """SHA-256 of a message: what stands for it in records, and where a site keeps its server's."""
    return hashlib.sha256(content).hexdigest()


def facts_text(facts: Facts) -> str:
    """Facts as the text that crosses the wire."""
    return json.dumps(facts.to_json(), sort_keys=True)


@dataclass(frozen=True)
class Hello:
    """What a run tells a site: all of it is public."""

    site: int  # its number in the run
    run: str  # the run's name
    config: str  # `RunConfig` as JSON
    facts: str  # `Facts` as JSON
    public: str  # where the public samples are; empty if there are none
    unlabelled: str  # where those without labels are; empty if there are none
    map: str  # where the common feature map is; empty if the method has none
    # of panas where the hello was said
    version: str = field(default_factory=own_version)

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        return json.dumps({"type": "hello", **asdict(self)}).encode()

    @staticmethod
    def from_bytes(content: bytes) -> "Hello":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        try:
            about = json.loads(content)
            known = {f.name for f in fields(Hello)}
            hello = Hello(**{k: v for k, v in about.items() if k in known})
        except (ValueError, TypeError, AttributeError, RecursionError) as e:
            raise BadInput("expected a hello message, got bytes that do not decode") from e
        names = ("run", "config", "facts", "public", "unlabelled", "map", "version")
        texts = dict.fromkeys(names, str)
        _check_facts(about, {"site": int, **texts}, "hello")
        check_form(hello.to_bytes(), content, "hello")
        return hello


@dataclass(frozen=True)
class Broadcast:
    """The server's shared head for a round: weights (classes, d) and bias (classes,)."""

    round: int
    weight: Float[Tensor, "classes d"]
    bias: Float[Tensor, "classes"]

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        about = {"message": json.dumps({"type": "broadcast", "round": self.round})}
        return save({"weight": self.weight.contiguous(), "bias": self.bias.contiguous()}, about)

    @staticmethod
    def from_bytes(content: bytes, *, width: int, classes: int) -> "Broadcast":
        """Decode a broadcast for heads of this size; BadInput if it is none.

        Args:
            content: untrusted bytes of a message, of any length.
            width: d, that the head's weights must have.
            classes: C, that the head must have.
        """
        arrays, about = decoded(content, "broadcast")
        specs = {"weight": ArraySpec((classes, width)), "bias": ArraySpec((classes,))}
        _check(arrays, specs, "broadcast")
        _check_facts(about, {"round": int}, "broadcast")
        broadcast = Broadcast(about["round"], arrays["weight"], arrays["bias"])
        check_form(broadcast.to_bytes(), content, "broadcast")
        return broadcast


def padded(text: str) -> str:
    """A message's facts in whole blocks: its size does not follow the digits of a number."""
    return text.ljust(-(-len(text) // BLOCK) * BLOCK)


HISTOGRAM = "histogram"  # of a release's arrays, where its site's noised label counts go along


@dataclass(frozen=True)
class NoisedHistogram:
    """A site's noised label counts (classes,), float32, and the number of their charge."""

    counts: Float[Tensor, "classes"]
    receipt: str
    noise: float | None = None  # standard deviation on each count, None without; no secret


@dataclass(frozen=True)
class Release:
    """What one site sends in a round. Built from a `Released`, which needs a receipt."""

    site: int
    round: int
    kind: str
    noise_multiplier: float | None  # of the mechanism, None without noise; no secret
    receipt: str
    arrays: Mapping[str, Tensor]
    histogram: "NoisedHistogram | None" = None  # of the site's labels, where the method pools it
    compression: Compression = "none"  # of the arrays, whose numbers are as they decode

    @staticmethod
    def of(released: Released, histogram: "NoisedHistogram | None" = None) -> "Release":
        """The message for something that was released, and hence charged."""
        r = released.receipt
        event, round = r.charge.event, r.charge.round
        if round is None:
            raise BadInput("expected a receipt of a round, got one without; charge with a round")
        m = getattr(event, "noise_multiplier", None)
        return Release(released.site, round, released.kind, m, r.id, released.arrays, histogram)

    def compressed(self, compression: Compression) -> "Release":
        """The same in fewer bytes; its numbers become what the receiver will decode."""
        if compression == "none":
            return self
        arrays = rounded(self.arrays, compression)
        return replace(self, arrays=arrays, compression=compression)

    def estimate(self, classes: int) -> Estimate:
        """What a receiver makes of it, given the number of classes."""
        kind = kind_named(self.kind)
        return kind.estimate(self.arrays, classes, noise_scale(kind, self.noise_multiplier))

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        names = ("round", "kind", "noise_multiplier", "receipt")
        about = {"type": "release", "client": self.site}
        about |= {name: getattr(self, name) for name in names}
        arrays = {k: v.contiguous() for k, v in self.arrays.items()}
        if self.compression != "none":
            arrays = {k: v.contiguous() for k, v in encode(arrays, self.compression).items()}
            about["compression"] = self.compression
        if self.histogram:
            about["histogram_receipt"] = self.histogram.receipt
            about |= {"histogram_noise": self.histogram.noise} if self.histogram.noise else {}
            arrays[HISTOGRAM] = self.histogram.counts.contiguous()
        return save(arrays, {"message": padded(json.dumps(about))})

    @staticmethod
    def from_bytes(content: bytes, *, width: int, classes: int) -> "Release":
        """Decode a release of representations of this width; BadInput if it is none.

        Args:
            content: untrusted bytes of a message, of any length.
            width: d, that each row must have.
            classes: C; labels must be 0 to C - 1.
        """
        arrays, about = decoded(content, "release")
        facts = {"client": int, "round": int, "kind": str, "receipt": str}
        _check_facts(about, facts, "release")
        with_histogram = HISTOGRAM in arrays
        receipts = ["receipt"] + ["histogram_receipt"] * with_histogram
        if not all(re.fullmatch("[0-9a-f]{32}", str(about.get(name))) for name in receipts):
            raise BadInput("expected the number of a charge as receipt in a release, got a text")
        kind, m = kind_named(about["kind"]), _noise_of(about, "noise_multiplier")
        specs = dict(kind.arrays(classes, width))
        if with_histogram:
            specs[HISTOGRAM] = ArraySpec((classes,))
        try:
            compression = compression_named(about.get("compression", "none"))
            arrays = decode(arrays, compression)
        except ValueError as e:
            raise BadInput(f"{e} in a release, got others") from e
        _check(arrays, specs, "release")
        for labels in (arrays[name] for name, spec in specs.items() if spec.labels):
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
                raise BadInput(f"expected labels below {classes} in a release, got others")
        site, round, kind_name, receipt = (about[name] for name in facts)
        counts = arrays.pop(HISTOGRAM, None)
        of_counts = str(about.get("histogram_receipt")), _noise_of(about, "histogram_noise")
        noised = None if counts is None else NoisedHistogram(counts, *of_counts)
        release = Release(site, round, kind_name, m, receipt, arrays, noised)
        release = replace(release, compression=compression)
        check_form(release.to_bytes(), content, "release")
        return release


def largest_release(kind: str | None, *, width: int, classes: int) -> int:
    """Bytes that a release has at most; `MAX_BYTES` where rows may be any number.

    Args:
        kind: name of a release in `panas/privacy/release/kinds/`; None or an unknown one:
            `MAX_BYTES`.
        width: d, of its representations.
        classes: C.
    """
    specs = [] if kind is None else list(kind_named(kind).arrays(classes, width).values())
    if not specs or any(None in spec.shape for spec in specs):
        return MAX_BYTES
    numbers = sum(math.prod(n or 0 for n in spec.shape) for spec in specs)
    return min(MAX_BYTES, 4 * (numbers + classes) + HEADER)


def _noise_of(about: Mapping[str, Any], name: str) -> float | None:
    m = about.get(name)
    if m is not None and not (type(m) in (int, float) and LEAST_NOISE <= m < 1e9):
        raise BadInput(f"expected a {name.replace('_', ' ')} above 0 in a release, got {m!r:.40}")
    if m is not None and name == "noise_multiplier" and not is_noised(kind_named(about["kind"])):
        raise BadInput(f"expected no noise multiplier in {about['kind']}, got {m}")
    return None if m is None else float(m)


def check_form(again: bytes, content: bytes, kind: str) -> None:
    """Refuse bytes that are not the one form of what they say.

    Args:
        again: what encoding the decoded message gives.
        content: the bytes that came.
        kind: of the message, for the text of a refusal.
    """
    if again != content:
        if more := sorted(_fields(content) - _fields(again)):
            raise BadInput(
                f"expected {_a(kind)} of fields that panas {own_version()} has in wire version "
                f"{WIRE}, got one with {more[0]!r:.40}; upgrade panas here, or downgrade it there"
            )
        raise BadInput(
            f"expected {_a(kind)} in its one form, got {len(content)} bytes that encoding it again "
            "does not give; they may hide something"
        )


def _fields(content: bytes) -> set[str]:
    """Names of a message's fields, whether it has arrays or none."""
    try:
        text = content if content[:1] == b"{" else parse_tensors(content)[1]["message"]
        about = json.loads(text)
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
    return set(about) if isinstance(about, dict) else set()


def decoded(content: bytes, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arrays and facts of a message; BadInput if it is too large, or of another kind."""
    if len(content) > MAX_BYTES:
        raise BadInput(f"expected {_a(kind)} of at most {MAX_BYTES} bytes, got {len(content)}")
    try:
        arrays, metadata = parse_tensors(content)
        about = json.loads(metadata["message"])
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise BadInput(f"expected {_a(kind)} message, got bytes that do not decode") from e
    if not isinstance(about, dict) or about.get("type") != kind:
        raise BadInput(f"expected {_a(kind)} message, got {about!r:.80}")
    return arrays, about


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "ou" else f"a {kind}"


def _check_facts(about: Mapping[str, Any], types: Mapping[str, type], kind: str) -> None:
    for name, kind_of in types.items():
        if type(about.get(name)) is not kind_of:
            raise BadInput(
                f"expected {name} as {kind_of.__name__} in a {kind}, got {about.get(name)!r:.40}"
            )


def _check(arrays: Mapping[str, Tensor], specs: Mapping[str, ArraySpec], kind: str) -> None:
    """Refuse arrays of other names, shapes, types or sizes; what has a size n has the same."""
    sized = {k for k, spec in specs.items() if None in spec.shape}
    n = next((len(a) for k, a in arrays.items() if a.dim() and k in sized), 0)
    shapes = {k: tuple(n if s is None else s for s in spec.shape) for k, spec in specs.items()}
    got = {k: tuple(v.shape) for k, v in arrays.items()}
    if got != shapes:
        raise BadInput(f"expected arrays {shapes} in a {kind}, got {got}")
    most = LARGEST if kind == "release" else LARGEST_WEIGHT
    for name, array in arrays.items():
        dtype = torch.int64 if specs[name].labels else torch.float32
        if array.dtype != dtype:
            raise BadInput(f"expected {dtype} for {name!r} in a {kind}, got {array.dtype}")
        if array.is_floating_point() and not bool((array.abs() <= most).all()):
            raise BadInput(f"expected finite {name!r} of at most {most:g} in a {kind}, got others")
