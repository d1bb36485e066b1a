"""A site that plans and charges run after run, and never trains."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from baselines.common.spending import Mechanism, Planned, begin, charged
from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.schema import RunConfig
from dprbft.methods.joined.budget import histogram_event, planned_release, residual_plan
from dprbft.methods.joined.residual import default_settings
from dprbft.paths import SitePaths, ledger_file
from dprbft.site.data import SiteData
from dprbft.site.directory import SiteSettings, write_site
from dprbft.site.site import Site
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.privacy.accounting.events import Event, Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge, Phase, SecureSum
from panas.privacy.ledger.ledger import Ledger

SMALL: dict[str, Any] = {
    "federation": {"clients": 4},
    "privacy": {"release_share": 0.85},  # as the rule has it without public samples
    "tuning": {"trials": 0},
}


def pictures(n: int) -> Samples:
    """Blank ones, of ten classes."""
    return Samples(torch.zeros(n, 1, 4, 4, dtype=torch.uint8), torch.arange(n) % 10, 10)


@dataclass
class Life:
    """A site of `n` training samples with a budget for life."""

    folder: Path
    budget: Budget
    n: int = 380

    def __post_init__(self) -> None:
        write_site(
            self.folder,
            SiteSettings(
                name="site", data="none", epsilon=self.budget.epsilon, delta=self.budget.delta
            ),
        )
        self.ledger.open_account(self.budget, subsets=("train", "search"))

    @property
    def ledger(self) -> Ledger:
        return Ledger(ledger_file(self.folder))

    @property
    def events(self) -> list[Event]:
        return self.ledger.account().events()

    def site(self, run: str, share: Budget, **sections: Any) -> Site:
        """The site in a run, which the ledger has been asked for; BudgetExhausted as there."""
        privacy = {"epsilon": share.epsilon, "delta": share.delta, "search": "data-free"}
        settings = merge(SMALL, {"privacy": privacy}, sections)
        config: RunConfig = build_config(without_unread(settings))
        train, some = pictures(self.n), pictures(10)
        facts = Facts(class_names=tuple("0123456789"), shape=(1, 4, 4), dtype="uint8")
        return Site(
            paths=SitePaths(0, "site", self.folder, run),
            config=config,
            facts=facts,
            read_data=lambda: SiteData(0, pictures(0), train, some, some),
            public=pictures(0),
            unlabelled=pictures(0),
            feature_map=None,
            budget=share,
            ledger=self.ledger.begin_run(run, share),
            device=torch.device("cpu"),
        )

    def joined(
        self, run: str, share: Budget, *, killed: bool = False, summed: bool = False
    ) -> None:
        """A run of the default method; `killed`: between the charge of its release and the rest.

        BudgetExhausted where it is refused: by the ledger at first, or as it says that it is ready.
        """
        privacy = {"trust": "secure-sum"} if summed else {}
        site = self.site(run, share, federation={"method": "joined"}, privacy=privacy)
        planned_release(site)  # as it is asked whether it is ready
        [histogram] = histogram_event(share, site.histogram_share) or [None]
        if histogram is not None:
            _charge(site, histogram, "label-histogram", "search")
        release = planned_release(site)
        assert isinstance(release, Gaussian)
        trust = SecureSum(sites=4, missing=1, local=release.noise_multiplier) if summed else None
        _charge(site, release, "moments", "release", trust)
        if not killed:
            plan = residual_plan(site, default_settings(site))
            _charge(site, plan.training_event, "dp-sgd", "training")

    def updates(
        self, run: str, share: Budget, *, rounds: int = 3, releases: int = 0, rate: float = 1.0
    ) -> None:
        """A run of a method with messages of its own: DP-SGD in each round, and releases."""
        site = self.site(run, share, federation={"method": "fedavg", "rounds": rounds})
        planned = Planned(
            batch_size=round(rate * self.n), clip=1.0, epochs=1, rounds=rounds, releases=releases
        )
        plan = begin(site, planned).plan
        assert plan is not None
        for _ in range(rounds):
            charged(site, Mechanism("dp-sgd", 1.0), plan.training_event, 1)
        for _ in range(releases):
            charged(site, Mechanism("counts", 1.0, phase="release"), plan.release_event, 1)


def _charge(
    site: Site, event: Event, mechanism: str, phase: Phase, trust: SecureSum | None = None
) -> None:
    site.ledger.charge(
        Charge(
            event=event,
            phase=phase,
            mechanism=mechanism,
            recipient="server",
            sensitivity=1.0,
            trust=trust,
        )
    )
