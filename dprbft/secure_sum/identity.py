"""Who an answer comes from: a key pair for each site, and signatures with it.

The keys are ECDSA on P-384 (FIPS 186-5), as Flower's authentication of nodes wants them. The
private one is in OpenSSH's text form, which `flower-supernode` reads; the public one is PEM
(SubjectPublicKeyInfo), and on request OpenSSH's line, which `flwr supernode register` reads.
Signatures are over SHA-384.
"""

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from panas.runtime.errors import BadInput


def new_key() -> bytes:
    """A new private key as text; keep it in a file of mode 0600."""
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def public_of(private: bytes) -> bytes:
    """The public key, as PEM, of a private one; BadInput for what is none."""
    key = _private(private).public_key()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def ssh_public(public: bytes) -> bytes:
    """A public key in OpenSSH's form, one line; BadInput for what is no public key."""
    key = _public(public)
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line + b"\n"


def sign(private: bytes, content: bytes) -> bytes:
    """The signature of `content`; BadInput for what is no private key."""
    return _private(private).sign(content, ec.ECDSA(hashes.SHA384()))


def flower_headers(private: bytes, now: str) -> dict[str, str]:
    """The headers by which Flower's server knows a node: its key (PEM), the time (ISO 8601, UTC),
    and a signature of that with SHA-256, both in base 64. BadInput for what is no private key."""
    signed = _private(private).sign(now.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": base64.b64encode(public_of(private)).decode(),
        "flwr-timestamp": now,
        "flwr-signature": base64.b64encode(signed).decode(),
    }


def verify(public: bytes, content: bytes, signature: bytes) -> bool:
    """Whether the holder of the private key has signed `content`; BadInput for no public key.

    Args:
        public: the public key (PEM).
        content: what was signed.
        signature: untrusted.
    """
    key = _public(public)
    try:
        key.verify(signature, content, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def _private(text: bytes) -> ec.EllipticCurvePrivateKey:
    return _checked(lambda: serialization.load_ssh_private_key(text, None), "private")


@lru_cache(maxsize=1 << 12)
def _public(text: bytes) -> ec.EllipticCurvePublicKey:
    return _checked(lambda: serialization.load_pem_public_key(text), "public")


def _checked(load: Callable[[], Any], which: str) -> Any:
    try:
        key = load()
        if key.curve.name == "secp384r1":  # a key of another kind has no curve
            return key
        raise ValueError("another curve")
    except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm) as e:
        raise BadInput(
            f"expected a {which} key of a node (ECDSA, P-384), got something else; "
            "panas deploy init makes one for every site"
        ) from e
