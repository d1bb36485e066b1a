"""One client: its data, its budget, and the state that a round hands to the next.

A client is rebuilt from configuration and state wherever it runs, in this process, in a worker or
on another machine; its samples are loaded there and never move.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprbft.config.participation import LABEL_SHARE, rounds_of, train_parts
from dprbft.config.schema import RunConfig
from dprbft.paths import ledger_file, search_file, tune_file
from dprbft.simulation.federation import ClientData, Federation, load_federation, search_parts
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, Head, NetworkSpec
from panas.data.samples import Samples
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.plan import Plan
from panas.privacy.release.mechanisms import flip_for, relation_of
from panas.runtime.errors import BadInput
from panas.runtime.store import pack_tensors, read_json, unpack_tensors
from panas.training.sgd import OptimizerConfig
from panas.tuning.objective import TrainingSchedule
from panas.tuning.space import DPSGDSettings


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

    @property
    def releases(self) -> bool:
        """Whether it sends anything to the server."""
        return self.config.sent is not None

    @property
    def train_head(self) -> bool:
        """Whether its head moves during local training."""
        return self.spec.head_moves

    @property
    def warm(self) -> OptimizerConfig | None:
        """How it warms up on public samples; None if it does not."""
        t = self.config.training
        if self.config.federation.warm_start == "none":
            return None
        return OptimizerConfig(
            learning_rate=t.warm_learning_rate,
            optimiser="adam",
            decay="cosine",
            batch_size=t.warm_batch_size,
            epochs=t.warm_epochs,
        )

    def schedule(self) -> TrainingSchedule:
        """Everything that it will charge to its budget from now on, if it starts from the top.

        Noisy rows are planned for one record, which leaves once.
        """
        p, rounds = self.config.privacy, len(rounds_of(self.config, self.id))
        rows = self.releases and p.release == "noisy_rows"
        releases = rounds if self.releases and p.release in ("moments", "class_sums") else 0
        label = LABEL_SHARE * p.release_share * self.budget.epsilon
        return TrainingSchedule(
            samples=len(self.data.train),
            epochs=self.config.training.epochs,
            rounds=rounds,
            releases=min(1, rounds) if rows else releases,
            release_share=p.release_share,
            # Before the first release all parts are charged alike: for training and the search.
            spent=max(self.charged().values(), key=len),
            flip=flip_for(label, self.spec.classes) if rows else None,
            classes=self.spec.classes if rows else 0,
        )

    def charged(self) -> dict[str, list[Event]]:
        """What was charged so far for each part of its training samples that leaves on its own."""
        account = self.ledger.account(self.id)
        return {part: account.events_on(part) for part in train_parts(self.config, self.id)}


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
        train_head=config.federation.train_head or config.federation.method == "local",
    )


def build_client(config: RunConfig, id: int, run: Path, device: str) -> Client:
    """The client `id` of a run; opens its account in the ledger."""
    federation = load_federation(config)
    ledger = Ledger(ledger_file(run))
    budget = config.budgets()[id]
    ledger.open_account(
        id,
        budget,
        allow_unprotected=config.privacy.allow_unprotected,
        relation=relation_of(config.sent) if config.sent else ADD_OR_REMOVE,
        subsets=(*train_parts(config, id), *search_parts(config)),
    )
    return Client(
        id,
        config,
        federation.clients[id],
        federation.public,
        spec_of(config, federation),
        budget,
        ledger,
        torch.device(device),
    )


@dataclass(frozen=True)
class State:
    """Where a client stands after a round: all that is needed to go on.

    Attributes:
        bottom, head: weights after the last round; `head` is the one that it holds.
        kept_bottom, kept_head: weights of the round that validation selected.
        facts: JSON-able facts: genome, setting, plan, round, charges, accuracies.

    """

    bottom: dict[str, Tensor]
    head: dict[str, Tensor]
    kept_bottom: dict[str, Tensor]
    kept_head: dict[str, Tensor]
    facts: dict[str, Any]

    def to_bytes(self) -> bytes:
        """The state as safetensors; `from_bytes` reads it back."""
        groups = ("bottom", "head", "kept_bottom", "kept_head")
        # Copies, because safetensors refuses tensors that share memory.
        tensors = {f"{g}.{k}": v.clone() for g in groups for k, v in getattr(self, g).items()}
        return pack_tensors(tensors, {"facts": json.dumps(self.facts)})

    @staticmethod
    def from_bytes(content: bytes, origin: Path) -> "State":
        """Read a state; `origin` is named if it is damaged."""
        tensors, metadata = unpack_tensors(content, origin)
        groups: dict[str, dict[str, Tensor]] = {
            g: {} for g in ("bottom", "head", "kept_bottom", "kept_head")
        }
        for name, tensor in tensors.items():
            group, _, key = name.partition(".")
            groups[group][key] = tensor
        return State(**groups, facts=json.loads(metadata["facts"]))

    @property
    def genome(self) -> Genome:
        """The client's architecture."""
        return Genome.parse(self.facts["genome"])

    @property
    def plan(self) -> Plan | None:
        """The plan of its remaining rounds; None without DP."""
        return Plan(**self.facts["plan"]) if self.facts["plan"] else None

    @property
    def setting(self) -> DPSGDSettings:
        """Its training settings."""
        return DPSGDSettings(**self.facts["setting"])

    def networks(self, client: Client) -> tuple[Bottom, Head]:
        """Bottom and head on the client's device, with the state's weights."""
        return _networks(client, self.genome, self.bottom, self.head)

    def kept(self, client: Client) -> tuple[Bottom, Head]:
        """The bottom and head that validation selected."""
        return _networks(client, self.genome, self.kept_bottom, self.kept_head)


def _networks(
    client: Client, genome: Genome, bottom: dict[str, Tensor], head: dict[str, Tensor]
) -> tuple[Bottom, Head]:
    b = client.spec.bottom(genome)
    b.load_state_dict(bottom)
    h = Head(client.spec.width, client.spec.classes)
    h.load_state_dict(head)
    return b.to(client.device), h.to(client.device)


def weights(module: torch.nn.Module) -> dict[str, Tensor]:
    """A copy of a module's weights on the CPU."""
    return {k: v.detach().cpu().clone() for k, v in module.state_dict().items()}


LEAST_NOISE = 1e-6
"""Stands for a noise multiplier that is left to the plan; it is never used as one."""


def settings_of(run: Path, client: Client) -> tuple[Genome, DPSGDSettings, dict[str, Any]]:
    """What search and tuning left for a client: genome, setting, and the search's record.

    Raises:
        BadInput: if one of the two stages has not run.

    """
    found = read_json(search_file(run, client.id))
    genome = Genome.parse(found["genome"])
    tuned = read_json(tune_file(run, client.id))
    setting = tuned["setting"]
    # Without tuning the noise is the least that the budget needs, which the plan will find.
    noise = setting["noise_multiplier"] or LEAST_NOISE
    return genome, DPSGDSettings(**(setting | {"noise_multiplier": noise})), found


def check_finite(bottom: Bottom, client: int) -> None:
    """Refuse weights that training has driven to NaN or infinity."""
    if not all(bool(torch.isfinite(p).all()) for p in bottom.parameters()):
        raise BadInput(
            f"expected finite weights after training client {client}, got NaN or infinity; lower "
            "training.learning_rate"
        )
