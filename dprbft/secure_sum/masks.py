"""Masks modulo 2^64: the ChaCha20 key stream as numbers; a pair's masks cancel in the sum.

A session's keys are used for one stream each, so the nonce may be zero. A masked vector has one
number more than the vector: a check number, linear in it, so that the check numbers of a sum add up
as well. A sum whose masks do not cancel, or of which one number was changed on the way, does not
fit its check number, but for one chance in 2^64.

Source: Bonawitz et al. 2017, section 4; RFC 8439 (ChaCha20).
"""

from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from jaxtyping import UInt64

from dprbft.secure_sum.keys import agreed, derived
from dprbft.secure_sum.session import Session

Vector = UInt64[np.ndarray, "n"]
Masked = UInt64[np.ndarray, "m"]  # m = n + CHECK_NUMBERS

CHECK_NUMBERS = 1
"""How many numbers a masked vector has beyond those of the vector."""


def key_stream(key: bytes, size: int) -> Vector:
    """`size` numbers of the key's stream, each 8 bytes, little end first."""
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), dtype="<u8").astype(np.uint64)


def self_mask(seed: bytes, session: Session, site: int, size: int) -> Vector:
    """What a site adds for itself; it is taken off the sum if the site is among the survivors.

    Args:
        seed: 16 secret bytes of the site.
        session: of this sum; the same seed masks another one differently.
        site: whose mask it is.
        size: numbers of the vector.
    """
    return key_stream(derived(seed, session, "self mask", site), size)


def pair_mask(
    private: X25519PrivateKey, session: Session, own: int, peer: tuple[int, bytes], size: int
) -> Vector:
    """What a site adds for a peer; the peer's part is its negative.

    Args:
        private: the site's own key.
        session: of this sum.
        own: number of the site.
        peer: number of the other one, and its public key (32 bytes).
        size: numbers of the vector.
    """
    site, public = peer
    secret = agreed(private, public, site)
    stream = key_stream(derived(secret, session, "pair mask", *sorted((own, site))), size)
    return stream if own < site else -stream


def with_check(vector: Vector, session: Session) -> Masked:
    """The vector and its check number."""
    return np.append(vector, _check(vector, session))


def fits_check(checked: Masked, session: Session) -> bool:
    """Whether the last number is the check number of those before it."""
    return bool(_check(checked[:-1], session) == checked[-1])


def _check(vector: Vector, session: Session) -> np.uint64:
    return np.sum(vector * _weights(session, len(vector)), dtype=np.uint64)


@lru_cache(maxsize=2)
def _weights(session: Session, size: int) -> Vector:
    """Odd numbers, so that a change of any one number changes the check number."""
    return key_stream(derived(session.context, session, "check"), size) | np.uint64(1)
