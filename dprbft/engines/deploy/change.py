"""A deployment that changes: a site comes, goes, or gets a new key; the hub gets a certificate.

All of it is done where `ca/` is, whose key signs a line of the log for every change. The line is
written first, then `hub.toml`, which a running hub reads again (`start`): after a death between the
two the same command goes on.
"""

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dprbft.config.hub import HUB
from dprbft.engines.deploy.certificates import (
    Pair,
    certificate_fingerprint,
    fits,
    new_certificate,
    vouches,
)
from dprbft.engines.deploy.folders import AUTHORITY_KEY, Deployment, keys_text, write_site
from dprbft.engines.deploy.keys import take_key
from dprbft.engines.deploy.log import LOG, Change, Log, append, change_of, extended, read_log
from dprbft.engines.deploy.settings import CA, FEDERATION, Hub, check_sites, flower_hub
from dprbft.secure_sum.identity import new_key, public_of, ssh_public
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_bytes, write_bytes


@dataclass
class Opened:
    """A deployment under its lock: its hub, its authority, and its log so far."""

    out: Path
    hub: Hub
    authority: Pair
    log: Log

    def note(self, *changes: Change) -> None:
        """Append lines to the log."""
        log = extended(self.log, self.authority, changes)
        append(self.hub.folder / LOG, log, self.log)
        self.log = log

    def name(self, sites: Mapping[str, bytes], *changes: Change) -> None:
        """Let hub.toml name these sites and their keys, after lines of the log that say so.

        BadInput, and nothing written, where hub.toml cannot be changed so.
        """
        path = self.hub.folder / HUB
        text = with_sites(path.read_text(), sites, path)
        self.note(*changes)
        write_bytes(path, text.encode())
        self.hub = flower_hub(self.hub.folder)


@contextmanager
def opened(out: Path) -> Iterator[Opened]:
    """A deployment to be changed, by one process at a time.

    BadInput if the folder holds none, or the authority's key is not there. A deployment without a
    log gets one, of the sites that it has.
    """
    hub = flower_hub(out / "hub")
    authority = Pair(read_bytes(out / "ca" / CA), read_bytes(out / "ca" / AUTHORITY_KEY))
    if authority.certificate != read_bytes(hub.ca) or not fits(
        authority.certificate, authority.key
    ):
        raise BadInput(f"expected the authority of this hub in {out / 'ca'}, got another")
    with exclusive(hub.folder / LOG):
        log = read_log(hub.folder / LOG, authority.certificate)
        made = Opened(out, flower_hub(hub.folder), authority, log)
        if not log.lines:
            made.note(*(change_of("added", *who) for who in made.hub.keys.items()))
        yield made


def add(out: Path, name: str, public: bytes | None = None) -> Path:
    """Let a new site in; returns the folder that its administrator gets.

    BadInput if the name, or the key, is one that the federation has, or has had.

    Args:
        out: the deployment.
        name: of the site.
        public: its public key (PEM); None: its key is made here.
    """
    with opened(out) as made:
        key, public, folder = _key(public), public, out / "sites" / name
        public = public or public_of(key or b"")
        sites = {**made.log.sites, name: public}
        check_sites({n: k.decode() for n, k in sites.items()}, made.hub.folder / HUB)
        changes = [change_of("added", name, public)]
        if made.log.sites.get(name) == public:
            changes = []  # it was noted, and the process died
        else:
            if name in made.log.sites:
                raise BadInput(
                    f"expected a new site, got {name}, which there is; `panas deploy renew {out} "
                    f"--site {name}` gives it a new key"
                )
            made.log.check_new(public)
            if folder.exists():
                raise BadInput(f"expected a new folder, got {folder}, which exists; move it away")
        made.name({**made.hub.keys, name: public}, *changes)
        if not folder.exists():
            _write_folder(folder, made, (name, key))
        return folder


def remove(out: Path, name: str) -> Hub:
    """Let a site in no more; returns the hub without it.

    BadInput if there is no such site, or no other.
    """
    with opened(out) as made:
        left = {n: key for n, key in made.hub.keys.items() if n != name}
        known = made.log.sites.get(name)
        if known is None and len(left) == len(made.hub.keys):
            raise BadInput(
                f"expected a site of this federation, got {name!r:.80}; it has "
                f"{', '.join(made.hub.keys)}"
            )
        if not left:
            raise BadInput(f"expected a site beside {name}, got none; stop the hub instead")
        made.name(left, *([change_of("removed", name, known)] if known is not None else []))
        return made.hub


def renew_key(out: Path, name: str, public: bytes | None = None) -> Path:
    """Give a site a new key, with which its ledger and its runs go on.

    Returns the folder with what its administrator gets. A site's folder that is there already keeps
    all else. BadInput if there is no such site, or the key is one that a site has had.

    Args:
        out: the deployment.
        name: of the site.
        public: its new public key (PEM); None: made here.
    """
    with opened(out) as made:
        key, folder = _key(public), out / "sites" / name
        public = public or public_of(key or b"")
        if name not in made.log.sites:
            raise BadInput(
                f"expected a site of this federation, got {name!r:.80}; it has "
                f"{', '.join(made.log.sites)}"
            )
        is_site = (folder / FEDERATION).is_file()
        if key is not None and folder.exists() and not is_site:
            raise BadInput(f"expected a site in {folder}, or nothing, got others; move it away")
        changes = [change_of("renewed", name, public)]
        if made.log.sites[name] == public:
            changes = []  # it was noted, and the process died
        else:
            made.log.check_new(public)
        made.name({**made.hub.keys, name: public}, *changes)
        if key is not None and is_site:
            take_key(folder, key)
        if not folder.exists():
            _write_folder(folder, made, (name, key))
        return folder


def renew(out: Path, days: int) -> Hub:
    """Give the hub of a deployment a new certificate, of the same authority; sites need nothing.

    BadInput if the folder holds no deployment, or the authority's key is not there.
    """
    with opened(out) as made:
        hub, authority = made.hub, made.authority
        replace(_deployment(hub), days=days).check()
        pair = new_certificate(authority, hub.flower.host, days)
        if not vouches(authority.certificate, pair.certificate):
            raise BadInput("expected a certificate of this authority, got another; try again")
        made.note(Change("certificate", "", certificate_fingerprint(pair.certificate)))
        # The key first: a hub that reads between the two keeps what it has, and reads again.
        write_bytes(hub.path(hub.flower.key), pair.key)
        write_bytes(hub.path(hub.flower.certificate), pair.certificate)
        return hub


def with_sites(text: str, sites: Mapping[str, bytes], path: Path) -> str:
    """A hub.toml that names these sites, with all else as it was; a minimum of more sites than
    there are becomes their number.

    BadInput where it was written otherwise than `panas deploy init` writes it.

    Args:
        text: of the file.
        sites: public keys (PEM) by name.
        path: of the file, for the message.
    """
    before = tomllib.loads(text)
    names, minimum = list(sites), min(before.get("minimum", 1), len(sites))
    kept = [name for name in before["names"] if name in sites]
    names = [*kept, *(name for name in names if name not in kept)]
    quoted = ", ".join(f'"{name}"' for name in names)
    after, count = re.subn(r"(?m)^names *=.*$", lambda _: f"names = [{quoted}]", text)
    after = re.sub(r"(?m)^minimum *= *\d+", f"minimum = {minimum}", after)
    head, mark, _ = after.rpartition("\n[keys]")
    line = after[len(head) + 1 :].partition("\n")[0]
    after = f"{head}\n{line}\n{keys_text({name: sites[name] for name in names})}"
    wanted = before | {"names": names, "keys": {n: sites[n].decode() for n in names}}
    if "minimum" in before:
        wanted["minimum"] = minimum
    if not mark or count != 1 or _parsed(after) != _stripped(wanted):
        raise BadInput(
            f"expected {path} with names in one line and [keys] at its end, as `panas deploy init` "
            "wrote it, got another form; bring it into that form"
        )
    return after


def _parsed(text: str) -> object:
    try:
        return _stripped(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return None


def _stripped(record: Mapping[str, object]) -> object:
    """Settings, with keys that differ by white space at their ends alone being equal."""
    keys = record.get("keys")
    texts = {n: str(k).strip() for n, k in keys.items()} if isinstance(keys, Mapping) else keys
    return {**record, "keys": texts}


def _key(public: bytes | None) -> bytes | None:
    """A new private key where none is given; BadInput for what is no public key."""
    if public is None:
        return new_key()
    ssh_public(public)
    return None


def _deployment(hub: Hub) -> Deployment:
    return Deployment(sites=hub.settings.names, host=hub.flower.host, port=hub.flower.port)


def _write_folder(folder: Path, made: Opened, who: tuple[str, bytes | None]) -> None:
    """Write a site's folder, which is there once it is whole."""
    os.makedirs(folder.parent, mode=0o700, exist_ok=True)  # noqa: PTH103
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        write_site(beside, _deployment(made.hub), made.authority, (*who, made.log))
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
