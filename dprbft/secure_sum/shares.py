"""Shamir shares of 16-byte secrets, and how they reach each peer unread by the server.

`Crypto.Protocol.SecretSharing` works in GF(2^128) and puts a wrong secret together, silently, from
too few or wrong shares. So the number of shares is checked here, and what they give is compared
with what its owner announced.

Sources: Shamir 1979; RFC 8439 (ChaCha20-Poly1305).
"""

import os
from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dprbft.secure_sum.keys import SEED_BYTES, agreed, derived
from dprbft.secure_sum.session import Session
from panas.runtime.errors import BadInput

NONCE_BYTES, TAG_BYTES = 12, 16
SEALED_BYTES = NONCE_BYTES + 2 * SEED_BYTES + TAG_BYTES


def split(secret: bytes, session: Session) -> dict[int, bytes]:
    """A 16-byte share of a 16-byte secret for each site; any n - t of them open it, fewer do not.

    Two calls give different shares, and shares of two calls do not fit together.
    """
    if len(secret) != SEED_BYTES:
        raise BadInput(f"expected a secret of {SEED_BYTES} bytes, got {len(secret)}")
    pieces = Shamir.split(session.threshold, len(session.sites), secret, ssss=False)
    return {session.sites[position - 1]: share for position, share in pieces}


def combine(shares: Mapping[int, bytes], session: Session) -> bytes:
    """The secret that n - t shares or more open; a wrong one if any share is wrong."""
    session.check_enough(len(shares), "shares")
    chosen = sorted(shares)[: session.threshold]
    if any(len(shares[site]) != SEED_BYTES for site in chosen):
        raise BadInput(f"expected shares of {SEED_BYTES} bytes, got others; ask the sites again")
    pieces = [(session.position(site), shares[site]) for site in chosen]
    return Shamir.combine(pieces, ssss=False)


def seal(
    content: bytes, session: Session, way: tuple[int, int], key: X25519PrivateKey, public: bytes
) -> bytes:
    """Two shares, encrypted from the first to the second site of `way`; `key` is the sender's."""
    cipher, about = _cipher(session, way, agreed(key, public, way[1]))
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, content, about)


def unseal(
    content: bytes, session: Session, way: tuple[int, int], key: X25519PrivateKey, public: bytes
) -> bytes:
    """What the first site of `way` sealed for the second, whose `key` this is; else BadInput."""
    cipher, about = _cipher(session, way, agreed(key, public, way[0]))
    try:
        if len(content) != SEALED_BYTES:
            raise InvalidTag
        return cipher.decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], about)
    except InvalidTag as e:
        raise BadInput(
            f"expected shares that site {way[0]} encrypted for site {way[1]}, got others; the "
            "secure sum ends here"
        ) from e


def _cipher(
    session: Session, way: tuple[int, int], secret: bytes
) -> tuple[ChaCha20Poly1305, bytes]:
    """The cipher of one direction, and the associated data."""
    about = session.context + b"".join(site.to_bytes(4, "big") for site in way)
    return ChaCha20Poly1305(derived(secret, session, "shares", *way)), about
