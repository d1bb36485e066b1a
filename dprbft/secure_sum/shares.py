"""Shamir shares of 16-byte secrets, and how they reach each peer unread by the server.

Too few or wrong shares give a wrong secret, silently. So every share has a tag, which goes with
it: a hash that tells whether a share is the one that its owner has dealt, and hides a share of 128
random bits. The peer checks it when the share arrives, the server when the share comes back. What
the right shares give is compared with what the owner announced.

Sources: Shamir 1979; RFC 8439 (ChaCha20-Poly1305).
"""

import hashlib
import os
from collections.abc import Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dprbft.secure_sum.field import value_at_0, values_at
from dprbft.secure_sum.keys import SEED_BYTES, agreed, derived
from dprbft.secure_sum.session import Session
from panas.runtime.errors import BadInput

NONCE_BYTES, TAG_BYTES = 12, 16
SEALED_BYTES = NONCE_BYTES + 2 * SEED_BYTES + TAG_BYTES
SHARE_TAG_BYTES = 16
TAGS_BYTES = 2 * SHARE_TAG_BYTES
DEALT_BYTES = SEALED_BYTES + TAGS_BYTES
"""Of what a site deals to a peer; of what it keeps for itself it tells the tags alone."""


def split(secret: bytes, opens: int, holders: Sequence[int]) -> dict[int, bytes]:
    """A 16-byte share of a 16-byte secret for each holder; so many open it, fewer say nothing.

    Two calls give different shares, and shares of two calls do not fit together.

    Args:
        secret: 16 bytes.
        opens: T, how many shares open it.
        holders: sites, ascending.
    """
    if len(secret) != SEED_BYTES:
        raise BadInput(f"expected a secret of {SEED_BYTES} bytes, got {len(secret)}")
    coefficients = [secret, *(os.urandom(SEED_BYTES) for _ in range(opens - 1))]
    points = range(1, len(holders) + 1)
    return dict(zip(holders, values_at(coefficients, points), strict=True))


def combine(shares: Mapping[int, bytes], opens: int, holders: Sequence[int]) -> bytes:
    """The secret that these shares open; BadInput for too few, a wrong one if any share is wrong.

    Args:
        shares: by holder.
        opens: T, how many shares open it.
        holders: as `split` was given them.
    """
    chosen = sorted(shares)[:opens]
    if len(chosen) < opens or not set(chosen) <= set(holders):
        raise BadInput(f"expected shares of {opens} holders of a secret, got {len(shares)}")
    if any(len(shares[site]) != SEED_BYTES for site in chosen):
        raise BadInput(f"expected shares of {SEED_BYTES} bytes, got others; ask the sites again")
    points = tuple(holders.index(site) + 1 for site in chosen)
    return value_at_0(points, [shares[site] for site in chosen])


def share_tag(share: bytes, session: Session, way: tuple[int, int], kind: int) -> bytes:
    """What tells a share from any other.

    Args:
        share: 16 bytes, as `split` makes it.
        session: of this sum.
        way: the site whose secret it is of, and the site that holds it.
        kind: of the secret: `SELF` or `PAIR`.
    """
    sites = b"".join(site.to_bytes(4, "big") for site in way)
    content = b"share" + session.context + sites + bytes([kind]) + share
    return hashlib.sha256(content).digest()[:SHARE_TAG_BYTES]


def tags(content: bytes, session: Session, way: tuple[int, int]) -> bytes:
    """The tags of two shares, one of either kind.

    Args:
        content: a share of the self seed, then one of the pair seed.
        session: of this sum.
        way: the site whose secrets they are of, and the site that holds them.
    """
    pieces = content[:SEED_BYTES], content[SEED_BYTES:]
    return b"".join(share_tag(piece, session, way, kind) for kind, piece in enumerate(pieces))


def tag_of(dealt: bytes, kind: int) -> bytes:
    """The tag of a kind of share, out of what was dealt."""
    start = len(dealt) - TAGS_BYTES + kind * SHARE_TAG_BYTES
    return dealt[start : start + SHARE_TAG_BYTES]


def deal(
    content: bytes, session: Session, way: tuple[int, int], key: X25519PrivateKey, public: bytes
) -> bytes:
    """Two shares, encrypted, and their tags.

    Args:
        content: a share of the self seed, then one of the pair seed.
        session: of this sum.
        way: the site that sends them, and the site that they are for.
        key: the sender's private one.
        public: the receiver's.
    """
    cipher, about = _cipher(session, way, agreed(key, public, way[1]))
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, content, about) + tags(content, session, way)


def dealt_to(
    content: bytes, session: Session, way: tuple[int, int], key: X25519PrivateKey, public: bytes
) -> bytes:
    """The two shares that a site was dealt; empty if they do not open, or do not fit their tags.

    Args:
        content: what `deal` made, untrusted.
        session: of this sum.
        way: the site that sent them, and the site that they are for.
        key: the receiver's private one.
        public: the sender's.
    """
    cipher, about = _cipher(session, way, agreed(key, public, way[0]))
    sealed, sent_tags = content[:SEALED_BYTES], content[SEALED_BYTES:]
    try:
        result = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        return b""
    return result if tags(result, session, way) == sent_tags else b""


def _cipher(
    session: Session, way: tuple[int, int], secret: bytes
) -> tuple[ChaCha20Poly1305, bytes]:
    about = session.context + b"".join(site.to_bytes(4, "big") for site in way)
    return ChaCha20Poly1305(derived(secret, session, "shares", *way)), about
