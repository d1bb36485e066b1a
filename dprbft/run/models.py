"""Where the network and the predictor of a site are, by whatever a user names.

| named | network and predictor |
|---|---|
| a run's directory, and a site | those of that site |
| a site's folder for a run (`runs/NAME/`) | those in it |
| the folder of `panas.search` or `panas.tune` | its network |
| a file | itself, with the site that it lies in |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dprbft.paths import (
    SitePaths,
    model_file,
    predictor_file,
    read_sites,
    settings_file,
    sites_file,
)
from dprbft.site.directory import STORED, read_site
from panas.runtime.errors import BadInput
from panas.training.linear.predictor import is_predictor

Model = Literal["predictor", "network"]


@dataclass(frozen=True, kw_only=True)
class SavedModels:
    """What a site predicts with, as far as it is there."""

    source: Path  # as the user named it
    name: str  # of the site; without one, of the file or folder
    files: dict[Model, Path]  # at least one
    site: SitePaths | None = None  # None where nothing says whose they are

    def file(self, model: Model | None = None) -> Path:
        """The file of a model; None: of the predictor, or else of the network."""
        wanted: Model = model or ("predictor" if "predictor" in self.files else "network")
        if wanted not in self.files:
            other = "network" if wanted == "predictor" else "predictor"
            raise BadInput(
                f"expected a {wanted} of {self.name} at {self.source}, got a {other} alone; give "
                "the run's directory, or another file"
            )
        return self.files[wanted]


def models_of(source: Path, site: str | None = None) -> SavedModels:
    """The network and predictor that a source names.

    BadInput if there are none, or it does not say which site's: the message names the sites.

    Args:
        source: as in the table above.
        site: its name in the run; None: the only one.
    """
    if sites_file(source).is_file():
        return _of_site(source, _chosen(source, read_sites(source), site))
    if site is not None:
        raise BadInput(
            f"expected a run directory with --site, got {source}, which is none; leave --site out, "
            "or check the path"
        )
    if source.is_file() and source.suffix == STORED:
        model: Model = "predictor" if is_predictor(source) else "network"
        folder = source.resolve().parent
        owner = _owner(folder.parent) if folder.name == predictor_file(folder).parent.name else None
        name = owner.name if owner else source.stem
        return SavedModels(source=source, name=name, files={model: source}, site=owner)
    if owner := _owner(source.resolve()):
        return _of_site(source, owner)
    alone = source / model_file(source).name
    if alone.is_file():
        return SavedModels(source=source, name=source.resolve().name, files={"network": alone})
    raise BadInput(
        f"expected a run directory, or a file of a network or predictor, at {source}, got none; "
        "check the path"
    )


def _chosen(source: Path, sites: Sequence[SitePaths], name: str | None) -> SitePaths:
    if name is None and len(sites) == 1:
        return sites[0]
    for site in sites:
        if site.name == name:
            return site
    names = ", ".join(site.name for site in sites)
    got = "none" if name is None else repr(name)
    raise BadInput(
        f"expected --site with the name of a site of {source}, got {got}; give one of {names:.500}"
    )


def _of_site(source: Path, site: SitePaths) -> SavedModels:
    both: dict[Model, Path] = {
        "predictor": predictor_file(site.home),
        "network": model_file(site.home),
    }
    files = {model: file for model, file in both.items() if file.is_file()}
    if not files:
        raise BadInput(
            f"expected a network or predictor of {site.name} in {source}, got none; train it first "
            "(`panas train`), or run a method that keeps one, as joined"
        )
    return SavedModels(source=source, name=site.name, files=files, site=site)


def _owner(home: Path) -> SitePaths | None:
    """The site whose folder for a run this is, if it is one."""
    folder = home.parents[1] if len(home.parents) > 1 else home
    if home.parent.name != "runs" or not settings_file(folder).is_file():
        return None
    return SitePaths(0, read_site(folder).name, folder, home.name)
