"""What sites and server tell each other about a secure sum, beside the protocol's own bytes.

| message | verb | who to whom | what it says |
|---|---|---|---|
| `Offer` | ready | site to server | whether the site sends, and the noise that it needs |
| `SumPlan` | keys | server to sites | who takes part, and the noise of the sum |
| `Parts` | share, round | both ways | the protocol's bytes, by site |
| `MaskedRelease` | round | site to server | a masked vector, and the charge that covers it |
| `Survivors` | unmask | server to sites | the sum over whom is to be opened, and who signed it |

Each has one form: bytes that encoding it again would not give are refused. The sites' plan names
the session: where a server tells two sites of two plans, their masks do not cancel.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dprbft.secure_sum.session import Session
from panas.runtime.errors import BadInput

MOST_BYTES = 1 << 28
"""Of any of these messages; a larger one is refused before it is decoded."""
MOST_NOISE = 1e6
"""Of a noise multiplier, far above what any budget needs; the noise of one site is that of all."""
_NUMBER = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Offer:
    """Whether a site takes part in a sum, and the least noise multiplier that its budget needs."""

    sends: bool
    noise_multiplier: float  # 0 where it needs none

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        return _json("offer", sends=self.sends, noise_multiplier=self.noise_multiplier)

    @staticmethod
    def from_bytes(content: bytes) -> "Offer":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        about = _read(content, "offer", sends=bool, noise_multiplier=float)
        _check_noise(about["noise_multiplier"])
        return Offer(**about)


@dataclass(frozen=True)
class SumPlan:
    """What a sum is of: public, and the same at all its sites."""

    nonce: str  # 32 hexadecimal digits, never used before
    round: int
    sites: tuple[int, ...]  # ascending
    missing: int  # t
    noise_multiplier: float  # that the sum is to have at least; 0 for no noise

    @staticmethod
    def new(round: int, sites: tuple[int, ...], missing: int, noise: float) -> "SumPlan":
        """A plan that nobody has seen before.

        Args:
            round: from 1.
            sites: numbers of those that take part, ascending.
            missing: t, how many of them may be gone, below a third.
            noise: noise multiplier of the sum, 0 or more.
        """
        return SumPlan(os.urandom(16).hex(), round, sites, missing, noise)

    @property
    def session(self) -> Session:
        """The protocol's session, named by all that the plan says."""
        return Session(hashlib.sha256(self.to_bytes()).digest(), self.sites, self.missing)

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        return _json("sum", **{**vars(self), "sites": list(self.sites)})

    @staticmethod
    def from_bytes(content: bytes) -> "SumPlan":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        types = {"nonce": str, "round": int, "sites": list, "missing": int}
        about = _read(content, "sum", **types, noise_multiplier=float)
        _check_noise(about["noise_multiplier"])
        if not _NUMBER.fullmatch(about["nonce"]):
            raise BadInput("expected 32 hexadecimal digits in a sum, got others")
        plan = SumPlan(**{**about, "sites": _sites(about["sites"], "sum")})
        plan.session.check_site(plan.sites[0])  # refuses what cannot be summed
        return plan


@dataclass(frozen=True)
class Parts:
    """Bytes of the protocol, by the number of the site that they are of or for."""

    parts: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        return _json("parts", parts=hex_by_site(self.parts))

    @staticmethod
    def from_bytes(content: bytes) -> "Parts":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        about = _read(content, "parts", parts=dict)
        parts = Parts(bytes_by_site(about["parts"], "parts"))
        if parts.to_bytes() != content:
            raise BadInput("expected parts in their one form, got others")
        return parts


@dataclass(frozen=True)
class Survivors:
    """The sites whose masked vectors arrived, and their signatures of this list, by site.

    Where keys are signed it goes out twice: without signatures, to be signed; then with them.
    """

    sites: tuple[int, ...]
    agreed: Mapping[int, bytes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        return _json("survivors", sites=list(self.sites), agreed=hex_by_site(self.agreed))

    @staticmethod
    def from_bytes(content: bytes) -> "Survivors":
        """Decode what `to_bytes` made; BadInput if it is another message."""
        about = _read(content, "survivors", sites=list, agreed=dict)
        sites, agreed = about["sites"], bytes_by_site(about["agreed"], "survivors")
        survivors = Survivors(_sites(sites, "survivors"), agreed)
        if survivors.to_bytes() != content:
            raise BadInput("expected survivors in their one form, got others")
        return survivors


@dataclass(frozen=True)
class MaskedRelease:
    """A site's masked vector, with the number of the charge that covers what it hides."""

    site: int
    round: int
    receipt: str
    numbers: np.ndarray  # uint64

    def to_bytes(self) -> bytes:
        """The message as it crosses the wire."""
        names = ("site", "round", "receipt")
        about = {"type": "masked"} | {name: getattr(self, name) for name in names}
        return save({"numbers": self.numbers}, {"message": json.dumps(about)})

    @staticmethod
    def from_bytes(content: bytes, size: int) -> "MaskedRelease":
        """Decode what `to_bytes` made of so many numbers; BadInput if it is another message."""
        if len(content) > 8 * size + 4096:
            raise BadInput(f"expected {size} masked numbers, got {len(content)} bytes")
        try:
            arrays = load(content)
            length = int.from_bytes(content[:8], "little")
            about = json.loads(content[8 : 8 + length])["__metadata__"]["message"]
            facts = _read(about.encode(), "masked", site=int, round=int, receipt=str)
            release = MaskedRelease(**facts, numbers=arrays["numbers"])
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise BadInput("expected a masked vector, got bytes that do not decode") from e
        if release.numbers.dtype != np.uint64 or release.numbers.shape != (size,):
            raise BadInput(f"expected {size} masked numbers, got {release.numbers.shape}")
        if not _NUMBER.fullmatch(release.receipt) or release.to_bytes() != content:
            raise BadInput("expected a masked vector in its one form, got another")
        return release


def _json(kind: str, **about: Any) -> bytes:
    return json.dumps({"type": kind, **about}).encode()


def _read(content: bytes, kind: str, **types: type) -> dict[str, Any]:
    """The fields of a message of these types, and no others; a float may not be infinite."""
    if len(content) > MOST_BYTES:
        raise BadInput(f"expected a message of at most {MOST_BYTES} bytes, got {len(content)}")
    try:
        about = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise BadInput(f"expected a message of {kind}, got bytes that do not decode") from e
    if not isinstance(about, dict) or about.pop("type", None) != kind:
        raise BadInput(f"expected a message of {kind}, got another")
    if about.keys() != types.keys() or any(type(about[k]) is not t for k, t in types.items()):
        raise BadInput(f"expected {', '.join(types)} in {kind}, got others")
    if _json(kind, **about) != content:
        raise BadInput(f"expected a message of {kind} in its one form, got another")
    return about


def _sites(numbers: list[Any], kind: str) -> tuple[int, ...]:
    if any(type(i) is not int for i in numbers) or not numbers:
        raise BadInput(f"expected numbers of sites in {kind}, got others")
    return tuple(numbers)


def hex_by_site(parts: Mapping[int, bytes]) -> dict[str, str]:
    """Bytes by site as JSON holds them."""
    return {str(i): parts[i].hex() for i in sorted(parts)}


def bytes_by_site(parts: Mapping[str, Any], kind: str) -> dict[int, bytes]:
    """Read back `hex_by_site`; BadInput, with the kind of message, if it is none."""
    try:
        return {int(i): bytes.fromhex(part) for i, part in parts.items()}
    except (ValueError, TypeError) as e:
        raise BadInput(f"expected bytes by number of site in {kind}, got others") from e


def _check_noise(noise: float) -> None:
    if not 0 <= noise <= MOST_NOISE:
        raise BadInput(f"expected a noise multiplier from 0 to {MOST_NOISE:g}, got {noise}")
