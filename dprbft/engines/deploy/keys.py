"""A site's own key, made where it stays: only its public half goes to whoever makes the deployment.

Who makes the keys of several sites could keep them, and answer in a site's name. In a secure sum
the server's operator must not be able to: there each site makes its own.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dprbft.engines.deploy.settings import (
    FEDERATION,
    LONGEST_SETTINGS,
    NODE_KEY,
    Federation,
    check_sites,
    read_federation,
)
from dprbft.secure_sum.identity import new_key, public_of, ssh_public
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, write_bytes, write_json

PUBLIC_KEY = "node.pub"


def own_key(folder: Path) -> bytes:
    """The public key of a site, PEM; both files are written where there is no key yet.

    BadInput if the folder cannot be made, or its key is none.
    """
    if not folder.absolute().parent.is_dir():
        raise BadInput(
            f"expected a folder at {folder.absolute().parent}, found none; make it first"
        )
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"expected a folder for the site's key, got the file {folder}")
    path = folder / NODE_KEY
    if not path.exists():
        write_bytes(path, new_key())
    public = public_of(read_bytes(path))
    write_bytes(folder / PUBLIC_KEY, public)
    return public


def renewed_key(folder: Path) -> bytes:
    """The public key of a new private one, which replaces that of a site; BadInput if it has none.

    The hub refuses the site until it knows the new key.
    """
    if not (folder / NODE_KEY).is_file():
        raise BadInput(f"expected {folder / NODE_KEY}, found none; leave out --new")
    take_key(folder, new_key())
    return own_key(folder)


def take_key(folder: Path, key: bytes) -> None:
    """Let a site have another private key: in its `node.key`, and under its own name in its
    `federation.json`, where it has one. Ledger, runs and the keys of others stay as they are."""
    if (folder / FEDERATION).is_file():
        known = read_federation(folder)
        sites = {**known.sites, known.site: public_of(key)}
        write_federation(folder, replace(known, sites=sites))
    write_bytes(folder / NODE_KEY, key)


def write_federation(folder: Path, federation: Federation) -> None:
    """Write a site's federation.json; BadInput, and nothing written, if its sites cannot be."""
    sites = {name: key.decode() for name, key in federation.sites.items()}
    check_sites(sites, folder / FEDERATION)
    record = {"site": federation.site, "hub": federation.hub, "sites": sites}
    write_json(folder / FEDERATION, record)


def given_key(path: Path) -> bytes:
    """The public key (PEM) in a file; BadInput if it is none."""
    if not path.is_file():
        raise BadInput(f"expected a public key at {path}, found none; check the path")
    if path.stat().st_size > LONGEST_SETTINGS:
        raise BadInput(f"expected {path} to be a public key, got a larger file")
    content = read_bytes(path)
    try:
        ssh_public(content)
    except BadInput as e:
        raise BadInput(f"{path}: {e}") from e
    return content.strip() + b"\n"


def given_keys(folder: Path, sites: Sequence[str]) -> dict[str, bytes]:
    """The public key of each site, from a file `NAME.pub` each; BadInput for a site without one."""
    if not folder.is_dir():
        raise BadInput(f"expected a folder of public keys, got {folder}, which is none")
    keys = {}
    for name in sites:
        path = folder / f"{name}.pub"
        if not path.is_file():
            raise BadInput(
                f"expected {path}, found none; `panas deploy key --site {name}`, run by that site, "
                f"writes it as {PUBLIC_KEY}"
            )
        keys[name] = given_key(path)
    return keys


def fingerprint(public: bytes) -> str:
    """Stands for a public key, to be compared by telephone: what `ssh-keygen -l` prints of it."""
    content = base64.b64decode(ssh_public(public).split()[1])
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"
