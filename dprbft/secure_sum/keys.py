"""Keys of one session: X25519 pairs derived from 16-byte seeds, and what is announced of them.

A site has three seeds. From one comes the key pair that its pair masks are agreed with, from one
the key pair that shares are encrypted with, and one makes its self mask. The first and the last are
shared among all sites (16 bytes is what `Crypto.Protocol.SecretSharing` takes), so both are
committed to: a secret put together from wrong shares does not fit what was announced.

Sources: Bonawitz et al. 2017 (figure 4); RFC 7748 (X25519); RFC 5869 (HKDF).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dprbft.secure_sum.session import Session
from panas.runtime.errors import BadInput

SEED_BYTES = 16
PUBLIC_BYTES = 32
ANNOUNCED_BYTES = 3 * PUBLIC_BYTES
DRAW_BYTES = 16
MOST_SIGNATURE_BYTES = 256


@dataclass(frozen=True)
class Signing:
    """How keys are tied to sites, by the node keys of those sites."""

    sign: Callable[[bytes], bytes]  # with this site's own key
    verify: Callable[[int, bytes, bytes], bool]  # site, content, signature


@dataclass(frozen=True)
class Announced:
    """What a site announces: two public keys, and a commitment to its self seed; where holders are
    drawn, its draw."""

    pair: bytes
    seal: bytes
    commitment: bytes
    signature: bytes = b""
    draw: bytes = b""

    def to_bytes(self) -> bytes:
        """96 bytes, 16 of a draw, if there is one, and the signature, if there is one."""
        return self.pair + self.seal + self.commitment + self.draw + self.signature

    @staticmethod
    def from_bytes(content: bytes, site: int, session: Session) -> "Announced":
        """What `to_bytes` made; BadInput if the size cannot be.

        Args:
            content: untrusted.
            site: who announced it.
            session: of this sum, which says whether there is a draw.
        """
        size = ANNOUNCED_BYTES + DRAW_BYTES * session.graph.sparse
        if not size <= len(content) <= size + MOST_SIGNATURE_BYTES:
            raise BadInput(
                f"expected {size} bytes of keys and a signature from site {site}, got "
                f"{len(content)}; ask the site again"
            )
        draw, signature = content[ANNOUNCED_BYTES:size], content[size:]
        return Announced(content[:32], content[32:64], content[64:96], signature, draw)

    def signed_part(self, session: Session, site: int) -> bytes:
        """What the signature covers: the keys, the draw, the session and the site."""
        keys = self.pair + self.seal + self.commitment + self.draw
        return b"secure sum keys" + session.context + site.to_bytes(4, "big") + keys


def read_keys(
    session: Session,
    keys: Mapping[int, bytes],
    verify: Callable[[int, bytes, bytes], bool] | None = None,
) -> dict[int, Announced]:
    """What sites announced, in order; BadInput if a signature is wrong.

    Args:
        session: of this sum.
        keys: untrusted announcements, by site.
        verify: whether a site has signed content, from its number, content and signature; None:
            nothing is signed.
    """
    results = {}
    for site in sorted(keys):
        session.check_site(site)
        results[site] = announced = Announced.from_bytes(keys[site], site, session)
        content = announced.signed_part(session, site)
        if verify is not None and not verify(site, content, announced.signature):
            raise BadInput(
                f"expected keys signed by site {site} itself, got others; panas deploy check says "
                "whether sites have changed, and how to accept them"
            )
    return results


def derived(secret: bytes, session: Session, purpose: str, *sites: int) -> bytes:
    """32 bytes from a secret by HKDF, for one purpose.

    Args:
        secret: of 16 bytes or more.
        session: of this sum, whose context is the salt.
        purpose: a name of its own for each use.
        sites: that the bytes are for; their order counts.
    """
    info = purpose.encode() + b"".join(site.to_bytes(4, "big") for site in sites)
    return HKDF(algorithm=SHA256(), length=32, salt=session.context, info=info).derive(secret)


def key_pair(seed: bytes, session: Session, purpose: str, site: int) -> X25519PrivateKey:
    """The key pair that a seed stands for.

    Args:
        seed: of 16 bytes, secret.
        session: of this sum.
        purpose: a name of its own for each use.
        site: whose key it is.
    """
    return X25519PrivateKey.from_private_bytes(derived(seed, session, purpose, site))


def public_bytes(private: X25519PrivateKey) -> bytes:
    """Its public half, 32 bytes."""
    return private.public_key().public_bytes_raw()


def commitment(seed: bytes, session: Session, site: int) -> bytes:
    """What a site announces of its self seed; it hides a seed of 128 random bits.

    Args:
        seed: of 16 bytes, secret.
        session: of this sum.
        site: whose seed it is.
    """
    content = b"self seed" + session.context + site.to_bytes(4, "big") + seed
    return hashlib.sha256(content).digest()


def agreed(private: X25519PrivateKey, public: bytes, site: int) -> bytes:
    """The secret agreed with a site; BadInput if its public key is no point that agrees.

    Args:
        private: this site's key.
        public: the other site's, 32 bytes, untrusted.
        site: number of the other, for the message.
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as e:
        raise BadInput(
            f"expected a usable X25519 key from site {site}, got another; the secure sum ends here"
        ) from e
