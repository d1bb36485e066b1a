"""What a run knows of its sites, where they are on this machine (`Local`).

On one machine a run may look into the folders of its sites, as their simulator. Of sites elsewhere
a hub knows names, codes and releases (`dprbft.run.sites.remote.Remote`, of the same methods).
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from dprbft import paths as files
from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Code
from dprbft.methods.joined.state import has_head
from dprbft.run import events
from dprbft.run.view import RunView, has_results
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.results.report import SiteReport
from dprbft.site.results.scores import read_scores
from panas.runtime.errors import BadInput, BudgetExhausted, PanasError
from panas.runtime.store import read_json

Step = Literal["join", "search", "tune", "train"]
"""What a site may be through with."""

FILES = {"search": files.search_file, "tune": files.tune_file}
LOGS = {"search": files.search_log, "tune": files.tune_log}


class Local:
    """Sites on this machine, as their simulator sees them."""

    def __init__(self, view: RunView) -> None:
        self._view = view

    @property
    def names(self) -> Sequence[str]:
        """What the run calls them."""
        return [paths.name for paths in self._view.sites]

    def hello(self, site: int) -> bytes:
        """What the run tells a site."""
        return self._view.hello(site)

    def done(self, step: Step, site: int) -> bool:
        """Whether a site is through with a step: by the files in its folder."""
        paths = self._view.sites[site]
        if step == "train":
            return has_results(paths)
        return has_head(paths.home) if step == "join" else FILES[step](paths.home).exists()

    def check(self, step: Step, site: int) -> None:
        """BadInput unless a site, if it is there, is through with a step."""
        paths = self._view.sites[site]
        if paths.is_present and step in FILES:
            (SearchRecord if step == "search" else TuningRecord).read(paths.home)

    def why(self, site: int) -> events.Why:
        """Why a site has no part: it is not there, since what a site here refuses stops the run."""
        return "absent"

    def outcome(self, step: events.StageName, site: int) -> events.Event | None:
        """The event that a site has finished a step, or ("start") is ready for round 1; None if it
        has gone meanwhile."""
        paths = self._view.sites[site]
        if step == "start":
            for score in read_scores(paths.home)[:1]:
                return events.SiteStarted(paths.name, score.validation)
            return events.SiteLeftOut(paths.name, "train")  # it has gone meanwhile
        if not paths.is_present:
            return None
        if step == "search":
            return events.SiteSearched(paths.name, SearchRecord.read(paths.home))
        if step == "tune":
            return events.SiteTuned(paths.name, TuningRecord.read(paths.home))
        report = SiteReport.read(paths.home)
        return events.SiteKept(paths.name, report.shares, report.steps.joined)

    def accuracy(self, sites: Sequence[int]) -> float | None:
        """Mean accuracy of what sites keep, on validation samples; None before any round."""
        scores = [read_scores(self._view.sites[i].home) for i in sites]
        kept = [own[-1].kept for own in scores if own]
        return fmean(kept) if kept else None

    def log(self, step: Literal["search", "tune"], site: int) -> Path | None:
        """Where a site's log of a step is."""
        return LOGS[step](self._view.sites[site].home)

    def error(self, refusal: SiteRefusal) -> PanasError:
        """What stops a run that cannot go on without a site; its reason is in its own folder."""
        paths = self._view.sites[refusal.site]
        if refusal.code is Code.ABSENT and paths.is_present:
            return BadInput(
                "expected a valid reply of one site at least, got none; "
                f"{files.refused_file(files.server_folder(self._view.run))} says what was expected"
            )
        if refusal.code is Code.ABSENT:
            return BadInput(
                f"expected site {paths.name} at {paths.folder}, found none; put it back, and go "
                "on with --resume"
            )
        if refusal.code is Code.FAILED:
            return PanasError(
                f"expected an answer of site {paths.name}, and it failed; where, says node.log in "
                f"{paths.folder}"
            )
        text = f"{paths.name}: {read_json(files.refusal_file(paths.home))['reason']}"
        return BudgetExhausted(text) if refusal.code is Code.NO_BUDGET else BadInput(text)
