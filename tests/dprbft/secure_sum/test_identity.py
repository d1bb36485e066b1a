"""Keys of sites: signatures hold for their content and key alone."""

import pytest

from dprbft.secure_sum.identity import new_key, public_of, sign, ssh_public, verify
from panas.runtime.errors import BadInput

KEY, OTHER = new_key(), new_key()


def test_a_signature_holds_for_its_content_and_its_key_alone():
    signature = sign(KEY, b"an answer")
    assert verify(public_of(KEY), b"an answer", signature)
    assert not verify(public_of(KEY), b"another", signature)
    assert not verify(public_of(OTHER), b"an answer", signature)
    assert not verify(public_of(KEY), b"an answer", b"")
    assert not verify(public_of(KEY), b"an answer", signature[:-1])


def test_keys_are_text_and_differ():
    assert KEY != OTHER
    assert KEY.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert public_of(KEY).startswith(b"-----BEGIN PUBLIC KEY-----\n")
    assert ssh_public(public_of(KEY)).startswith(b"ecdsa-sha2-nistp384 ")
    assert ssh_public(public_of(KEY)).count(b"\n") == 1


@pytest.mark.parametrize("text", [b"", b"no key", public_of(KEY)])
def test_what_is_no_private_key_is_refused(text: bytes):
    with pytest.raises(BadInput, match="expected a private key"):
        sign(text, b"an answer")


@pytest.mark.parametrize("text", [b"", b"no key", KEY, "é".encode()])
def test_what_is_no_public_key_is_refused(text: bytes):
    with pytest.raises(BadInput, match="expected a public key"):
        verify(text, b"an answer", b"signature")


def test_a_key_of_another_kind_is_refused():
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    for key in (ec.generate_private_key(ec.SECP192R1()), ed25519.Ed25519PrivateKey.generate()):
        pem = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        with pytest.raises(BadInput, match="expected a public key"):
            verify(pem, b"an answer", b"signature")
