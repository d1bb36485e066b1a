"""A hub's folder: `hub.toml` says which sites there are, how many it needs, and how to reach them.

`panas deploy init` writes it. Where `[sockets]` names the sockets of nodes on this machine, frames
go straight to them; else Flower carries them by what `[flower]` says.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from dprbft.config.flat import Name, Section, validated
from dprbft.config.toml import read_toml
from panas.runtime.errors import BadInput

HUB = "hub.toml"


class HubSettings(Section):
    """What the administrator of a hub decides; paths are from the hub's folder, or absolute."""

    names: Annotated[tuple[Name, ...], Field(min_length=1)]  # of the sites, in their order
    minimum: Annotated[int, Field(ge=1)] = 1  # sites that a run and a round need
    # seconds that a site has for an answer; None: as long as it works
    deadline: Annotated[float, Field(gt=0)] | None = None
    keys: dict[str, str] = Field(default_factory=dict)  # a site's public key (PEM), or its file
    sockets: dict[str, str] = Field(default_factory=dict)  # of nodes on this machine
    flower: dict[str, Any] = Field(default_factory=dict)  # address and certificates

    @model_validator(mode="after")
    def _fits(self) -> "HubSettings":
        if len(set(self.names)) < len(self.names):
            raise ValueError("sites of different names, got one twice; rename it")
        if self.minimum > len(self.names):
            raise ValueError(f"a minimum of at most {len(self.names)} sites, got {self.minimum}")
        for what, entries in (("key", self.keys), ("socket", self.sockets)):
            if entries and set(entries) != set(self.names):
                raise ValueError(f"a {what} of each site in names, got {', '.join(entries)}")
        return self


def read_hub(folder: Path) -> HubSettings:
    """The settings of a hub; BadInput if there is none, or its file does not fit."""
    path = folder / HUB
    if not path.is_file():
        raise BadInput(f"expected a hub with a {HUB} at {folder}, found none; `panas deploy init`")
    return validated(HubSettings, read_toml(path), str(path))


def socket_paths(folder: Path, settings: HubSettings) -> dict[str, Path]:
    """The sockets of nodes on this machine, by the sites' names; none if there are none."""
    return {name: folder / path for name, path in settings.sockets.items()}


def public_keys(folder: Path, settings: HubSettings) -> dict[str, bytes] | None:
    """The public keys of sites (PEM), by their names; None where none are given."""
    keys = dict[str, bytes]()
    for name, text in settings.keys.items():
        if text.lstrip().startswith("-----BEGIN"):
            keys[name] = text.encode()
            continue
        path = folder / text
        if not path.is_file():
            raise BadInput(
                f"expected the public key of {name} at {path}, found none; copy it there"
            )
        keys[name] = path.read_bytes()
    return keys or None
