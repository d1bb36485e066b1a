"""A small certificate authority: one key that signs the hub's certificate and the federation's log.

Keys are ECDSA on P-256, certificates X.509 (RFC 5280). The authority may sign no other authority
(path length 0). The hub's certificate names the host that sites reach, and this machine's loopback
addresses, as subject alternative names (RFC 6125).
"""

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from panas.runtime.errors import BadInput

LOCAL = ("localhost", "127.0.0.1")
"""What a hub's certificate names beside its host."""
AUTHORITY_DAYS = 3650
EARLY = timedelta(hours=1)
"""By how much a certificate is older than it is: clocks differ."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Seen:
    """What a certificate says."""

    hosts: tuple[str, ...]
    begins: datetime
    ends: datetime


def new_authority(days: int) -> Pair:
    """An authority for so many days, or ten years where that is more."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "panas federation CA")])
    builder = _builder(name, name, key, max(days, AUTHORITY_DAYS), is_authority=True)
    built = builder.sign(key, hashes.SHA256())
    return Pair(built.public_bytes(serialization.Encoding.PEM), _text(key))


def new_certificate(authority: Pair, host: str, days: int) -> Pair:
    """A certificate of the hub; BadInput if the authority is none.

    Args:
        authority: signs it.
        host: name or IP address by which sites reach the hub.
        days: for which it holds, from now on.
    """
    issuer, signer = _read(authority.certificate), _read_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_name(h) for h in dict.fromkeys((host, *LOCAL))]
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    # A common name has at most 64 characters, and nobody reads it.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "panas hub")])
    built = (
        _builder(issuer.subject, subject, key, days, is_authority=False)
        .add_extension(server, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return Pair(built.public_bytes(serialization.Encoding.PEM), _text(key))


def look(certificate: bytes) -> Seen:
    """What a certificate, PEM or DER, says; BadInput if it is none."""
    parsed = _read(certificate)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = (
            *names.get_values_for_type(x509.DNSName),
            *(str(a) for a in names.get_values_for_type(x509.IPAddress)),
        )
    except x509.ExtensionNotFound:
        hosts = ()
    return Seen(hosts, parsed.not_valid_before_utc, parsed.not_valid_after_utc)


def vouches(authority: bytes, certificate: bytes) -> bool:
    """Whether an authority has signed a certificate; BadInput if one of the two is none."""
    issuer, subject = _read(authority), _read(certificate)
    try:
        subject.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def fits(certificate: bytes, key: bytes) -> bool:
    """Whether a private key is that of a certificate; BadInput if one of the two is none."""
    return _read(certificate).public_key() == _read_key(key).public_key()


def certificate_fingerprint(certificate: bytes) -> str:
    """Stands for a certificate: `SHA256:` and what `openssl x509 -fingerprint -sha256` prints."""
    return f"SHA256:{_read(certificate).fingerprint(hashes.SHA256()).hex(':').upper()}"


def signature_of(authority: Pair, content: bytes) -> bytes:
    """The authority's signature (ECDSA, SHA-256) of some bytes; BadInput if it is none."""
    return _read_key(authority.key).sign(content, ec.ECDSA(hashes.SHA256()))


def has_signed(authority: bytes, content: bytes, signature: bytes) -> bool:
    """Whether an authority has signed these bytes; BadInput if its certificate is none.

    Args:
        authority: its certificate.
        content: what was signed.
        signature: untrusted.
    """
    key = _read(authority).public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
            return True
    except InvalidSignature:
        pass
    return False


def check_host(host: str) -> None:
    """BadInput for what is no name of a host and no address."""
    try:
        _name(host)
    except ValueError as e:
        raise BadInput(
            f"expected --host to be a name or an address, got {host!r:.80}; give that by which "
            "sites reach the hub"
        ) from e


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    now, path_length = datetime.now(UTC), 0 if is_authority else None
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(is_authority, path_length), critical=True)
        .add_extension(usage, critical=True)
    )


def _name(host: str) -> x509.GeneralName:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.lower().split(".")
        # All digits at the end are an address that is none.
        if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
            raise ValueError(f"no host: {host!r}") from None
        return x509.DNSName(host)
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"no address of a host: {host!r}")
    return x509.IPAddress(address)


_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read(certificate: bytes) -> x509.Certificate:
    try:
        if certificate.startswith(b"-----"):
            return x509.load_pem_x509_certificate(certificate)
        return x509.load_der_x509_certificate(certificate)
    except ValueError as e:
        raise BadInput("expected a certificate, got another file; copy it anew") from e


def _read_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise BadInput("expected a private key, got another file; copy it anew") from e
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise BadInput("expected a private ECDSA key, got another kind; make a new certificate")
    return private
