"""The federations that a site takes part in: one data set, one ledger, several hubs.

The site's own folder is one. `[federation.NAME]` of `site.toml` adds another, whose `node.key`,
`federation.json` and `ca.crt` lie in a folder of their own, and says what its hub's runs may spend
together. A run of such a hub is called `NAME:RUN` at the site, in the ledger and below `runs/`: no
hub can name a run so, and none can go on with a run of another.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from dprbft.site.directory import SiteSettings, read_site
from panas.runtime.errors import BadInput

FEDERATION = "federation.json"


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
        """What the federation calls the site; BadInput if its folder does not say."""
        if self.is_own:
            return read_site(self.folder).name
        path = self.folder / FEDERATION
        try:
            return str(json.loads(path.read_text())["site"])
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise BadInput(
                f"expected {path}, which [federation.{self.name}] of site.toml names, got none, or "
                "another file; copy there what panas deploy init has made for this site"
            ) from e


def memberships(folder: Path, settings: SiteSettings) -> tuple[Membership, ...]:
    """All federations of a site, that of its own folder first; BadInput if two share a folder."""
    own, others = Membership("", folder), list[Membership]()
    for name, each in settings.federation.items():
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


def membership(folder: Path, run: str) -> Membership:
    """The federation whose hub has begun a run; BadInput if site.toml names it no more."""
    prefix = run.rpartition(":")[0]
    for each in memberships(folder, read_site(folder)):
        if each.is_own != bool(prefix) and prefix in ("", each.name):
            return each
    raise BadInput(
        f"expected [federation.{prefix}] in site.toml for its run {run}, got none; put it back"
    )
