"""DP-SGD settings for an architecture and a budget, and the network trained so: `panas.tune`.

Only the private training is paid for: killed in its middle, it has spent the budget.

Source: DPFNAS, algorithm 1, second half.
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from panas.architecture.blocks import BlockType
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.facts import Facts
from panas.data.samples import Samples, digest
from panas.data.splits import hashed_split, proxy_data
from panas.privacy.accounting.events import ADD_OR_REMOVE
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, rescale_noise
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.fingerprints import note_spent, refuse_seen, remember, seen_before
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import TrainingSchedule
from panas.privacy.unit import check_unit, unit_name
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_json
from panas.training.any_model import fit_private
from panas.training.checkpoint import load_network, save_network
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig
from panas.training.warm_start import WarmStart, warm_started
from panas.tuning.bayesian import tune
from panas.tuning.objective import training_objective
from panas.tuning.space import BudgetedSpace, DPSGDSettings, ScheduleConstraint, TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig, TuningResult


@dataclass(frozen=True)
class TuneResult:
    """What tuning found, and the network that was trained with it under the budget."""

    setting: DPSGDSettings
    bottom: Bottom = field(repr=False)
    head: Head = field(repr=False)
    accuracy: float  # on test samples that nothing else saw
    epsilon: float  # what the ledger has for the training samples, at the budget's delta
    # every trial; None where a finished directory was read again
    result: TuningResult | None = field(repr=False)

    @property
    def network(self) -> nn.Sequential:
        """Bottom and head as one module: images in [-1, 1] to logits."""
        return nn.Sequential(self.bottom, self.head)

    def to_json(self) -> dict[str, Any]:
        """What may be kept beside the network: its accuracy is of private samples, and is not."""
        return {"setting": asdict(self.setting), "epsilon": self.epsilon}


@dataclass(frozen=True, kw_only=True)
class NetworkTuning:
    """A tuning and one private training; the fields are what `panas.api.tune` takes."""

    private: Samples
    public: Samples
    genome: Genome
    spec: NetworkSpec
    space: TuningSpace
    config: TuningConfig
    budget: Budget
    epochs: int
    warm: OptimizerConfig | None
    seed: int
    device: str
    facts: Facts | None = None  # class names and preprocessing

    def __post_init__(self) -> None:
        self.budget.check(self._schedule.samples, "the data set")

    def header(self) -> dict[str, Any]:
        """What decides the tuning; no digest of private samples, which would confirm a guess."""
        return {
            "search": "settings",
            "data": [self.private.units, digest(self.public)],
            "genome": str(self.genome),
            "budget": [self.budget.epsilon, self.budget.delta],
            "epochs": self.epochs,
            "space": repr(self.space),
            "config": repr(self.config),
            "warm": repr(self.warm),
            "seed": self.seed,
            "width": self.spec.width,
        }

    def search(self, execution: Execution[TrialRecord]) -> TuningResult:
        """Tune by rehearsals on public samples, all classes alike."""
        alike, schedule = torch.ones(self.spec.classes), self._schedule
        rng = stream(self.seed, "proxy")
        data = proxy_data(self.public, alike, samples=schedule.samples, rng=rng)
        objective = training_objective(
            data, self._start, schedule, momentum=0.0, seed=self.seed, site=0
        )
        space = BudgetedSpace(self.space, ScheduleConstraint(self.budget, schedule))
        rng = stream(self.seed, "client", 0, "tune")
        return tune(objective, space, self.config, rng=rng, execution=execution)

    def begin(self, ledger: Ledger | None, folder: Path, *, strict: bool) -> Ledger:
        """The ledger that the training will be charged to, once it has admitted the budget.

        Args:
            ledger: of the data, for life, its account open; None: one in `folder`, for this
                training alone.
            folder: of the tuning; its path names the run in a ledger for life.
            strict: refuse samples that another ledger was charged for, which are warned of
                otherwise.
        """
        unit = unit_name(None if self.private.groups is None else "of the data set")
        own = ledger or Ledger(folder / "ledger.jsonl")
        if ledger is not None:
            own = Ledger(ledger.path, run=str(folder.resolve()))
            if ledger.account().relation != ADD_OR_REMOVE:
                raise BadInput(
                    f"expected a ledger under {ADD_OR_REMOVE} at {ledger.path}, got another; give "
                    "one that was opened so"
                )
            check_unit(ledger.account().unit, self.private.groups)
        seen = seen_before(self.private, own, self.budget)
        if strict:
            refuse_seen(seen)
        elif seen is not None:
            warnings.warn(
                f"{seen.overlap} of these {seen.samples} samples have spent up to epsilon "
                f"{seen.epsilon:.3g} in earlier runs; together up to {seen.together:.3g}",
                stacklevel=4,
            )
        if ledger is None:
            own.open_account(self.budget, unit=unit)
        else:
            own.begin_run(own.run, self.budget)
        remember(self.private, own)
        return own

    def train(self, result: TuningResult, folder: Path, ledger: Ledger) -> TuneResult:
        """Train once with the best settings, charged to a ledger first, and save the network.

        Args:
            result: of `search`.
            folder: where the network and its settings go.
            ledger: from `begin`.
        """
        bottom, head = warm_started(self._start, self.public, seed=self.seed, site=0)
        best, schedule = result.best, self._schedule
        plan = calibrate(
            self.budget, schedule, batch_size=best.batch_size, clip=best.clip, epochs=best.epochs
        )
        plan = replace(plan, noise_multiplier=best.noise_multiplier)
        account = ledger.account()
        if others := account.of_others(ledger.run).protected():
            # Beside other runs, subsampled events may cost a little more than their share.
            plan = rescale_noise(plan, account.budget, others)
            best = replace(best, noise_multiplier=plan.noise_multiplier)
        charge = Charge(
            event=plan.training_event,
            phase="training",
            mechanism="dp-sgd",
            recipient="whoever sees the network",
            sensitivity=plan.clip,
        )
        config = OptimizerConfig(learning_rate=best.learning_rate, train_head=self.spec.head_moves)
        with ledger.charge(charge):
            train = self._parts[0]
            fit_private(bottom, head, train, plan=plan, config=config, noise=SystemNoise())
        score = accuracy(bottom, head, self._parts[1])
        note_spent(ledger)
        spent = ledger.account().of_run(ledger.run).spent()
        outcome = TuneResult(best, bottom, head, score, spent, result)
        network = folder / "network.safetensors"
        notes: dict[str, Any] = {"epsilon": outcome.epsilon, "delta": self.budget.delta}
        if self.facts:
            notes["facts"] = self.facts.to_json()
        save_network(network, bottom, head, genome=self.genome, spec=self.spec, notes=notes)
        write_json(folder / "best.json", outcome.to_json())
        return outcome

    def read(self, folder: Path, blocks: Sequence[BlockType] = ()) -> TuneResult:
        """A tuning that has finished in `folder`."""
        record = read_json(folder / "best.json")
        saved = load_network(folder / "network.safetensors", blocks)
        setting = DPSGDSettings(**record["setting"])
        score = accuracy(saved.bottom, saved.head, self._parts[1])
        return TuneResult(setting, saved.bottom, saved.head, score, record["epsilon"], None)

    @cached_property
    def _parts(self) -> tuple[Samples, Samples]:
        """Private samples that train, and those that test."""
        key = stream(self.seed, "split").bytes(32)
        s = hashed_split(self.private, search=0.0, validation=0.0, test=0.2, key=key)
        return self.private.take(s.train), self.private.take(s.test)

    @property
    def _schedule(self) -> TrainingSchedule:
        return TrainingSchedule(samples=self._parts[0].units, epochs=self.epochs)

    @property
    def _start(self) -> WarmStart:
        device = torch.device(self.device)
        return WarmStart(genome=self.genome, spec=self.spec, optimizer=self.warm, device=device)
