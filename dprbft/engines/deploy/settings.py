"""What a hub's `hub.toml` says of Flower, and `federation.json` in a site's folder.

Both name every site with its public key, so that each end knows whose answer, or whose key of a
secure sum, it sees. Neither holds a secret. Nothing here imports torch.
"""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dprbft.config.flat import Section, validated
from dprbft.config.hub import HUB, HubSettings, public_keys, read_hub
from dprbft.engines.frames import is_name
from dprbft.secure_sum.identity import ssh_public
from panas.runtime.errors import BadInput

FEDERATION = "federation.json"
NODE_KEY, CA = "node.key", "ca.crt"
NODES = "nodes.json"
"""Beside Flower's files: whose keys are registered, since the hub was started."""
HUB_LOG = "hub.log"
"""In the hub's folder: what happened in its runs."""

LONGEST_SETTINGS = 1 << 24
"""Bytes of such a file, at most."""


class FlowerSettings(Section):
    """The section `flower` of a hub.toml; paths are from the hub's folder, or absolute."""

    host: str  # as sites reach the hub: a name, or an address, that its certificate has
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    bind: str = "127.0.0.1"  # the interface it listens on; 0.0.0.0: all
    certificate: Path = Path("hub.crt")
    key: Path = Path("hub.key")
    ca: Path = Path(CA)
    home: Path = Path("flower")  # where Flower keeps its own files (FLWR_HOME)
    patience: Annotated[float, Field(ge=0)] = 60.0  # seconds to wait for all sites
    metrics: str | None = None  # where /metrics answers: HOST:PORT, or a Unix socket's path
    log_format: Literal["text", "json"] = "text"  # of stderr; hub.log is JSON


@dataclass(frozen=True)
class Hub:
    """A hub's folder, and what its hub.toml says."""

    folder: Path
    settings: HubSettings
    flower: FlowerSettings
    keys: Mapping[str, bytes]  # public ones of the sites, PEM, by name

    @property
    def home(self) -> Path:
        """Where Flower keeps its own files (FLWR_HOME)."""
        return self.path(self.flower.home)

    @property
    def ca(self) -> Path:
        """The certificate that vouches for the hub's own."""
        return self.path(self.flower.ca)

    @property
    def address(self) -> str:
        """`host:port` as sites reach it."""
        return f"{bracketed(self.flower.host)}:{self.flower.port}"

    @property
    def local_address(self) -> str:
        """`host:port` as this machine reaches it; its certificate has it, too."""
        try:
            bind = ipaddress.ip_address(self.flower.bind)
        except ValueError:  # a name
            return self.address
        if bind.is_unspecified:
            return f"127.0.0.1:{self.flower.port}"
        return f"{bracketed(self.flower.bind)}:{self.flower.port}"

    def path(self, path: Path) -> Path:
        """A path of the settings, absolute."""
        return (self.folder / path.expanduser()).resolve()


@dataclass(frozen=True)
class Federation:
    """What a site knows of its federation: its own name there, the hub, everybody's public key."""

    site: str
    hub: str  # host:port
    sites: Mapping[str, bytes]  # public keys, PEM, by name


def flower_hub(folder: Path) -> Hub:
    """The hub of a folder whose sites come through Flower; BadInput if it is none."""
    settings, path = read_hub(folder), folder / HUB
    if not settings.flower:
        raise BadInput(f"{path}: expected a section [flower], got none; `panas deploy init`")
    flower = validated(FlowerSettings, settings.flower, f"{path}, section [flower]")
    keys = public_keys(folder, settings) or {}
    check_sites({name: key.decode(errors="replace") for name, key in keys.items()}, path)
    return Hub(folder.resolve(), settings, flower, keys)


def read_federation(folder: Path) -> Federation:
    """What a site's federation.json says; BadInput if there is none, or it does not fit."""
    path = folder / FEDERATION
    if not path.is_file():
        raise BadInput(f"expected {path}, found none; `panas deploy init` makes one")
    if path.stat().st_size > LONGEST_SETTINGS:
        raise BadInput(f"expected {path} of at most {LONGEST_SETTINGS} bytes, got more")
    try:
        record = json.loads(path.read_text())
        sites = {str(name): str(key) for name, key in record["sites"].items()}
        federation = Federation(
            str(record["site"]), str(record["hub"]), {n: k.encode() for n, k in sites.items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise BadInput(
            f"expected {path} as `panas deploy init` wrote it, got another file; copy it anew"
        ) from e
    check_sites(sites, path)
    if federation.site not in sites:
        raise BadInput(f"{path}: expected a key of site {federation.site}, got none; copy it anew")
    return federation


def check_sites(sites: Mapping[str, str], origin: Path) -> None:
    """Refuse names and keys that cannot be: no site, a name that is none, a key used twice."""
    if not sites:
        raise BadInput(f"{origin}: expected at least one site, got none; name them")
    keys = set[bytes]()  # in one form: a text may end in a further line
    for name, key in sites.items():
        if not is_name(name):
            raise BadInput(
                f"{origin}: expected names of sites of at most 64 letters, digits, dots, hyphens "
                f"and underscores, got {name!r:.80}; rename it"
            )
        try:
            keys.add(ssh_public(key.encode()))
        except BadInput as e:
            raise BadInput(f"{origin}: site {name}: {e}") from e
    if len(keys) < len(sites):
        raise BadInput(f"{origin}: expected a key for each site, got one twice; make new ones")


def bracketed(host: str) -> str:
    """An IPv6 address in brackets; any other host as it is."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
