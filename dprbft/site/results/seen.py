"""What a site's samples have cost in other ledgers, and whether they are those charged before.

The budget belongs to the data, whatever file or directory they come in. All of it stays with the
site, in its folder for the run and in its owner's state folder.
"""

import hashlib
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dprbft.config.schema import RunConfig
from dprbft.paths import SitePaths, samples_file, seen_file
from dprbft.site.data import SiteData
from dprbft.site.directory import read_site
from dprbft.site.site import Site
from panas.privacy.ledger.account import number
from panas.privacy.ledger.fingerprints import (
    SeenBefore,
    Tags,
    changed_since,
    is_news,
    refuse_seen,
    remember,
    seen_before,
)
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.store import read_json, write_json


@dataclass(frozen=True)
class SeenSamples:
    """What a site's samples have cost in other ledgers; stays with the site."""

    samples: int
    overlap: int
    runs: int
    epsilon: float
    together: float
    ledgers: tuple[str, ...]

    @staticmethod
    def of(seen: SeenBefore) -> "SeenSamples":
        """What the state folder knows of them."""
        ledgers = tuple(str(e.path) for e in seen.earlier)
        return SeenSamples(
            seen.samples, seen.overlap, seen.runs, seen.epsilon, seen.together, ledgers
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        costs = {"epsilon": number(self.epsilon), "together": number(self.together)}
        return asdict(self) | costs

    @staticmethod
    def read(home: Path) -> "SeenSamples | None":
        """What was noted when the site joined; None for nothing."""
        if not seen_file(home).is_file():
            return None
        r: dict[str, Any] = read_json(seen_file(home))
        costs = {name: float(r[name]) for name in ("epsilon", "together")}
        return SeenSamples(**(r | costs | {"ledgers": tuple(r["ledgers"])}))


def look_back(paths: SitePaths, config: RunConfig, data: SiteData, ledger: Ledger) -> None:
    """Note what a site's samples have cost elsewhere, and refuse them if asked to (BadInput).

    Args:
        paths: of the site in the run.
        config: for the site's budget, and whether it is strict.
        data: with the tags of the samples; without any nothing is done.
        ledger: the site's own, whose charges do not count.
    """
    if data.tags is None:
        return
    seen = seen_before(data.tags, ledger, config.budget(paths.index))
    # A hub elsewhere could find out by refusals which samples a site has: there its owner decides.
    strict = read_site(paths.folder).strict
    if strict or (config.privacy.strict and not config.federation.remote):
        refuse_seen(seen)
    if seen:
        write_json(seen_file(paths.home), SeenSamples.of(seen).to_json())
    write_json(samples_file(paths.home), {"digest": _digest(data.tags)})


def remembering(site: Site) -> Site:
    """The site, which notes its samples for its owner when they are loaded in a verb: before
    anything is charged for them. BadInput then if they are refused (`strict`).

    Where they are others than those that were looked back at when the site joined, this is done
    again; where they are others than the ledger was last charged for, its owner alone is told.
    """

    def read_data() -> SiteData:
        data, ledger = site.read_data(), site.ledger
        if data.tags is None or not is_news(data.tags, ledger):
            return data
        noted = samples_file(site.home)
        if not noted.is_file() or read_json(noted)["digest"] != _digest(data.tags):
            look_back(site.paths, site.config, data, ledger)
        if changed := changed_since(data.tags, ledger):
            warnings.warn(f"{site.paths.name}: {changed}", stacklevel=2)
        remember(data.tags, ledger)
        return data

    return replace(site, read_data=read_data)


def _digest(tags: Tags) -> str:
    return hashlib.sha256(tags.tobytes()).hexdigest()
