"""All of a run in one place: what a simulator and an auditor see, and nobody else."""

from dataclasses import dataclass
from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.messages import Hello, Release, facts_text
from dprbft.paths import (
    SitePaths,
    facts_file,
    is_hub,
    map_file,
    public_file,
    read_sites,
    report_file,
    sent_file,
    state_file,
    unlabelled_file,
)
from dprbft.site.data import SiteData, changed
from dprbft.site.site import data_of, encoded_of, public_of, spec_of
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.map import FeatureMap, read_map
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json


def has_results(paths: SitePaths) -> bool:
    """Whether a site is there, and has trained and measured what a summary tells of it."""
    return paths.is_present and state_file(paths.home).exists() and report_file(paths.home).exists()


@dataclass(frozen=True)
class RunView:
    """All of a run, as only its simulator or auditor may see it."""

    run: Path
    config: RunConfig

    @property
    def sites(self) -> tuple[SitePaths, ...]:
        """Its sites."""
        return read_sites(self.run)

    @property
    def facts(self) -> Facts:
        """What is public of their data."""
        return Facts.from_json(read_json(facts_file(self.run)))

    @property
    def public(self) -> Samples:
        """The samples that everybody may see."""
        return public_of(_there(public_file(self.run)), self.facts)

    @property
    def unlabelled(self) -> Samples:
        """Public samples without labels: all are written 0, which means nothing."""
        return public_of(_there(unlabelled_file(self.run)), self.facts)

    @property
    def feature_map(self) -> FeatureMap | None:
        """The common feature map, where the method has one."""
        return read_map(map_file(self.run)) if map_file(self.run).exists() else None

    def site(self, index: int) -> SiteData:
        """A site's samples."""
        paths, config = self.sites[index], self.config.model_dump_json()
        return data_of(paths, config, facts_text(self.facts), changed(paths))

    def encoded_site(self, index: int) -> SiteData:
        """A site's samples, with embeddings where the run has an encoder."""
        paths, config = self.sites[index], self.config.model_dump_json()
        return encoded_of(paths, config, facts_text(self.facts), changed(paths))

    def release(self, index: int, round: int = 1) -> Release:
        """What a site sent in a round; BadInput if it sent nothing, or a masked vector."""
        path = sent_file(self.sites[index].home, round)
        if not path.is_file():
            raise BadInput(
                f"expected a release of round {round} by {self.sites[index].name}, found none; a "
                "site that takes part in a secure sum sends a masked vector instead"
            )
        phi, classes = self.feature_map, self.facts.classes
        width = spec_of(self.config, self.facts).width if phi is None else phi.width
        return Release.from_bytes(path.read_bytes(), width=width, classes=classes)

    def hello(self, index: int) -> bytes:
        """What the run tells a site."""
        return Hello(
            site=index,
            run=self.run.resolve().name if is_hub(self.run) else self.sites[index].run,
            config=self.config.model_dump_json(),
            facts=facts_text(self.facts),
            public=_there(public_file(self.run)),
            unlabelled=_there(unlabelled_file(self.run)),
            map=_there(map_file(self.run)),
        ).to_bytes()


def _there(path: Path) -> str:
    """A file's absolute path; empty if there is none."""
    return str(path.resolve()) if path.exists() else ""
