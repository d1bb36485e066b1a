"""One client: its data, its budget, its ledger. Where it stands: `dprbft.site.state`.

It is rebuilt from the configuration wherever it runs; its samples are loaded there and never move.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from dprbft.config.schema import RunConfig, rounds_of
from dprbft.paths import ledger_file
from dprbft.simulation.federation import ClientData, Federation, load_federation
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.privacy.accounting.events import Event
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.kind import is_noised, kind_named
from panas.privacy.schedule import TrainingSchedule
from panas.training.warm_start import WarmStart


@dataclass(frozen=True)
class Client:
    """What a client is, as opposed to where its training stands."""

    id: int
    config: RunConfig
    data: ClientData
    public: Samples
    spec: NetworkSpec
    budget: Budget
    ledger: Ledger
    device: torch.device

    def warm_start(self, genome: Genome) -> WarmStart:
        """Where training of a genome's network starts: on public samples, if at all."""
        warm = self.config.training.warm if self.config.federation.warm_start != "none" else None
        return WarmStart(genome=genome, spec=self.spec, optimizer=warm, device=self.device)

    def schedule(self) -> TrainingSchedule:
        """Everything that it will charge to its budget from now on, with all rounds to come."""
        c, rounds = self.config, len(rounds_of(self.config, self.id))
        noised = c.sent is not None and is_noised(kind_named(c.sent))
        return TrainingSchedule(
            samples=self.data.train.units,
            epochs=c.training.optimizer.epochs,
            rounds=rounds,
            releases=rounds if noised else 0,
            release_share=c.privacy.release_share,
            spent=self.charged(),
        )

    def charged(self) -> list[Event]:
        """What was charged so far for its training samples, at a finite price."""
        return self.ledger.account().events_on("train")


def spec_of(config: RunConfig, federation: Federation) -> NetworkSpec:
    """What all clients' networks share."""
    return NetworkSpec(
        shape=federation.shape,
        classes=federation.classes,
        width=config.network.width,
        norm=config.norm,
        unit=config.network.unit,
        head_init=config.federation.head_init,
        # Without a server nobody else moves the head.
        train_head=config.federation.train_head or not config.federation.has_server,
    )


def build_client(config: RunConfig, id: int, run: Path, device: str) -> Client:
    """The client `id` of a run; opens its account in the ledger."""
    federation, budget = load_federation(config), config.budgets()[id]
    ledger = Ledger(ledger_file(run, id))
    ledger.open_account(
        budget,
        allow_unprotected=config.privacy.allow_unprotected,
        subsets=("train", "search") if config.privacy.mode.least_search else ("train",),
    )
    data, public, spec = federation.clients[id], federation.public, spec_of(config, federation)
    return Client(id, config, data, public, spec, budget, ledger, torch.device(device))
