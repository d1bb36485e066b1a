"""The federations that a site takes part in: one data set, one ledger, several hubs.

The site's own folder is one. `[federation.NAME]` of `site.toml` adds another, whose `node.key`,
`federation.json` and `ca.crt` lie in a folder of their own, and says what its hub's runs may spend
together. A run of such a hub is called `NAME:RUN` at the site, in the ledger and below `runs/`: no
hub can name a run so, and none can go on with a run of another. Nothing here imports torch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dprbft.config.flat import Section
from panas.runtime.errors import BadInput

FEDERATION = "federation.json"


class FederationShare(Section):
    """What the owner of a site decides for one of its federations."""

    # with the key and the federation.json of the site there, from the site's directory or absolute
    folder: str = "."
    # of all runs of its hub together, at the site's own delta; None: all that is left for life
    epsilon: Annotated[float, Field(gt=0)] | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is the federation whose files lie in the site's directory."""
        return Path(self.folder) == Path()


@dataclass(frozen=True)
class Membership:
    """A federation, as a site takes part in it."""

    name: str  # in site.toml; "" where it is not named there
    folder: Path  # with the site's key, and everybody's public ones
    is_own: bool = True  # whether that is the site's folder

    def run(self, asked: str) -> str:
        """What the site calls a run that the hub calls so."""
        return asked if self.is_own else f"{self.name}:{asked}"

    def site(self) -> str:
        """What a further federation calls the site; BadInput if its folder does not say."""
        path = self.folder / FEDERATION
        try:
            return str(json.loads(path.read_text())["site"])
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise BadInput(
                f"expected {path}, which [federation.{self.name}] of site.toml names, got none, or "
                "another file; copy there what panas deploy init has made for this site"
            ) from e


def memberships(folder: Path, named: Mapping[str, FederationShare]) -> tuple[Membership, ...]:
    """All federations of a site, that of its own folder first; BadInput if two share a folder.

    `named` are those of its site.toml.
    """
    own, others = Membership("", folder), list[Membership]()
    for name, each in named.items():
        at = (folder / Path(each.folder).expanduser()).resolve()
        if each.is_own:
            own = Membership(name, folder)
        else:
            others.append(Membership(name, at, is_own=False))
    if len({folder.resolve(), *(each.folder for each in others)}) <= len(others):
        raise BadInput(
            f'expected in {folder} a folder of its own for each [federation.NAME], "." for the '
            "site's, got one twice; give each what its hub's administrator has made"
        )
    return (own, *others)


def membership(folder: Path, named: Mapping[str, FederationShare], run: str) -> Membership:
    """The federation whose hub has begun a run; BadInput if site.toml names it no more.

    Args:
        folder: the site's.
        named: federations of its site.toml.
        run: as the site calls it.
    """
    prefix = run.rpartition(":")[0]
    for each in memberships(folder, named):
        if each.is_own != bool(prefix) and prefix in ("", each.name):
            return each
    raise BadInput(
        f"expected [federation.{prefix}] in site.toml for its run {run}, got none; put it back"
    )
