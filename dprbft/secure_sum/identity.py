"""Who an answer comes from: a key pair for each site, and signatures with it.

The keys are ECDSA on P-384 (FIPS 186-5), as Flower's authentication of nodes wants them. The
private one is in OpenSSH's text form, which `flower-supernode` reads; the public one is PEM
(SubjectPublicKeyInfo), and on request OpenSSH's line, which `flwr supernode register` reads.
Signatures are over SHA-384. No library is loaded before a key is needed, and torch never.
"""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from panas.runtime.errors import INSTALL_FLOWER, BadInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec


def need_library() -> None:
    """BadInput, with what installs it, if the library of keys and certificates is not there."""
    try:
        import cryptography  # noqa: F401
    except ImportError as e:
        raise BadInput(
            "expected the library cryptography for keys and certificates, found none; "
            f"{INSTALL_FLOWER}"
        ) from e


def new_key() -> bytes:
    """A new private key as text; keep it in a file of mode 0600."""
    need_library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def public_of(private: bytes) -> bytes:
    """The public key, as PEM, of a private one; BadInput for what is none."""
    key = _private(private).public_key()
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def ssh_public(public: bytes) -> bytes:
    """A public key in OpenSSH's form, one line; BadInput for what is no public key."""
    key = _public(public)
    from cryptography.hazmat.primitives import serialization

    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line + b"\n"


def sign(private: bytes, content: bytes) -> bytes:
    """The signature of `content`; BadInput for what is no private key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return _private(private).sign(content, ec.ECDSA(hashes.SHA384()))


def flower_headers(private: bytes, now: str) -> dict[str, str]:
    """The headers by which Flower's server knows a node: its key (PEM), the time (ISO 8601, UTC),
    and a signature of that with SHA-256, both in base 64. BadInput for what is no private key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

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
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key.verify(signature, content, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def _private(text: bytes) -> "ec.EllipticCurvePrivateKey":
    need_library()
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    return _checked(lambda: load_ssh_private_key(text, None), "private")


def _public(text: bytes) -> "ec.EllipticCurvePublicKey":
    need_library()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    return _checked(lambda: load_pem_public_key(text), "public")


def _checked(load: Callable[[], Any], which: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

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
