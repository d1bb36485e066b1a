"""The folders of a new deployment: the authority's, the hub's, and one for every site.

All of it is made in a folder beside the wanted one, which is renamed when it is whole. Files have
mode 0600, folders and start scripts 0700. The authority's key is in a folder of its own, which no
script reads: it signs the hub's certificate, now and when that is renewed.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from string import Template

from dprbft.config.hub import HUB
from dprbft.engines.deploy.certificates import (
    Pair,
    check_host,
    new_authority,
    new_certificate,
)
from dprbft.engines.deploy.keys import write_federation
from dprbft.engines.deploy.log import LOG, Log, change_of, extended
from dprbft.engines.deploy.settings import (
    CA,
    NODE_KEY,
    Federation,
    bracketed,
    check_sites,
    flower_hub,
)
from dprbft.engines.outward import is_loopback
from dprbft.secure_sum.identity import new_key, public_of
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes

AUTHORITY_KEY = "ca.key"
OURS = (
    "Whoever made this folder has seen `node.key`. It signs what this site sends; it opens no data."
)
THEIRS = (
    "Copy these files to where `panas deploy key` has made `node.key`: nobody else has seen it."
)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What is to be deployed. `host` is how sites reach the hub, `days` how long its certificate
    holds."""

    sites: Sequence[str]
    host: str = "localhost"
    port: int = 8000
    days: int = 365

    def check(self) -> None:
        """BadInput if it cannot be."""
        check_host(self.host)
        if not 1 <= self.port <= 65535:
            raise BadInput(f"expected --port from 1 to 65535, got {self.port}; 8000 is usual")
        if not 1 <= self.days <= 3650:
            raise BadInput(f"expected --days from 1 to 3650, got {self.days}; 365 is usual")
        if twice := {n for n in self.sites if self.sites.count(n) > 1}:
            raise BadInput(f"expected each site once, got {min(twice)} twice; keep one")


def make_deployment(
    out: Path, deployment: Deployment, public: Mapping[str, bytes] | None = None
) -> None:
    """Write all folders of a new deployment; nothing is left half-written.

    Args:
        out: the new folder; BadInput if it exists.
        deployment: names of the sites, the hub's address, days of its certificate.
        public: public keys (PEM) that sites have made, by name; None: all keys are made here.
    """
    deployment.check()
    if out.exists():
        raise BadInput(f"expected a new folder, got {out}, which exists; give another --out")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"expected a folder at {out.absolute().parent}, found none; make it first")
    keys: Mapping[str, bytes | None] = dict.fromkeys(deployment.sites)
    if public is None:
        made_here = {name: new_key() for name in deployment.sites}
        keys, public = made_here, {name: public_of(key) for name, key in made_here.items()}
    check_sites({name: key.decode() for name, key in public.items()}, out)
    made = Path(tempfile.mkdtemp(dir=out.absolute().parent, prefix=f".{out.name}."))
    try:
        authority = new_authority(deployment.days)
        write_bytes(made / "ca" / CA, authority.certificate)
        write_bytes(made / "ca" / AUTHORITY_KEY, authority.key)
        log = extended(Log(), authority, [change_of("added", *who) for who in public.items()])
        _write_hub(made / "hub", deployment, authority, log)
        for name, key in keys.items():
            write_site(made / "sites" / name, deployment, authority, (name, key, log))
        write_bytes(made / "README.md", filled("README.md", _about(deployment)))
        made.rename(out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def filled(template: str, about: Mapping[str, object]) -> bytes:
    """A template of this package with its fields filled in."""
    text = resources.files(__package__).joinpath("templates", template).read_text()
    return Template(text).substitute(about).encode()


def _bind(host: str) -> str:
    """The interface for a hub to listen on: loopback alone for a host that is that, an IPv6 address
    by itself, else all."""
    if is_loopback(host):
        return "127.0.0.1" if host == "localhost" else host
    return host if ":" in host else "0.0.0.0"


def _about(deployment: Deployment) -> dict[str, object]:
    return {
        "host": deployment.host,
        "port": deployment.port,
        "address": f"{bracketed(deployment.host)}:{deployment.port}",
        "bind": _bind(deployment.host),
        "sites": ", ".join(deployment.sites),
        "quoted": ", ".join(f'"{name}"' for name in deployment.sites),
        "count": len(deployment.sites),
        "days": deployment.days,
        "minimum": min(2, len(deployment.sites)),
        "wheel": f"panas-{version('panas')}-py3-none-any.whl",
    }


def keys_text(public: Mapping[str, bytes]) -> str:
    """Public keys by site, as the section `keys` of a hub.toml has them."""
    return "".join(f'"{name}" = """\n{key.decode().strip()}\n"""\n' for name, key in public.items())


def _write_hub(folder: Path, deployment: Deployment, authority: Pair, log: Log) -> None:
    own = new_certificate(authority, deployment.host, deployment.days)
    about = _about(deployment) | {"keys": keys_text(log.sites).rstrip()}
    write_bytes(folder / "hub.crt", own.certificate)
    write_bytes(folder / "hub.key", own.key)
    write_bytes(folder / HUB, filled("hub.toml", about))
    _write_rest(folder, "hub", (authority, log), about)
    flower_hub(folder)


def write_site(
    folder: Path, deployment: Deployment, authority: Pair, who: tuple[str, bytes | None, Log]
) -> None:
    """Write a site's folder.

    Args:
        folder: the new one.
        deployment: of the hub.
        authority: that vouches for the hub.
        who: the site's name, its private key where that is made here, and the federation's log.
    """
    name, key, log = who
    about = _about(deployment) | {"site": name, "whose_key": THEIRS if key is None else OURS}
    write_federation(folder, Federation(name, str(about["address"]), log.sites))
    if key is not None:
        write_bytes(folder / NODE_KEY, key)
    _write_rest(folder, "site", (authority, log), about)


def _write_rest(
    folder: Path, kind: str, common: tuple[Pair, Log], about: Mapping[str, object]
) -> None:
    """What a hub and a site have alike."""
    authority, log = common
    write_bytes(folder / CA, authority.certificate)
    write_bytes(folder / LOG, b"".join(log.lines))
    write_bytes(folder / f"panas-{kind}.service", filled(f"{kind}.service", about))
    write_bytes(folder / "README.md", filled(f"{kind}.md", about))
    write_bytes(folder / "start.sh", filled(f"{kind}.sh", about))
    (folder / "start.sh").chmod(0o700)
