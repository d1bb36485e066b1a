"""`panas.tune`: DP-SGD settings for an architecture and a budget, and the network trained so.

It runs in the calling process, tells its progress to a callback, and can be interrupted or killed
at any moment: the same call again goes on where it was. Only the private training itself is paid
for once: killed in its middle, it has spent the budget.

Source: DPFNAS, algorithm 1, second half.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from panas.api import digest
from panas.architecture.blocks import BlockType
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.arrays import as_samples, in_unit_range
from panas.data.samples import Samples
from panas.data.search_split import proxy_data
from panas.data.splits import split
from panas.plots.tuning import trials
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_bytes, write_json
from panas.training.checkpoint import load_network, save_network
from panas.training.dp_sgd import fit_private
from panas.training.evaluate import accuracy
from panas.training.sgd import WARM, OptimizerConfig
from panas.training.warm_start import WarmStart, warm_started
from panas.tuning.bayesian import tune as tune_settings
from panas.tuning.budgeted import BudgetedSpace, ScheduleConstraint
from panas.tuning.objective import training_objective
from panas.tuning.space import DPSGDSettings, TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig, TuningResult


@dataclass(frozen=True)
class TuneResult:
    """What tuning found, and the network that was trained with it under the budget.

    Attributes:
        setting: the hyperparameters.
        bottom: the bottom, trained by DP-SGD.
        head: its head.
        accuracy: on test samples that nothing else saw.
        epsilon: what the ledger has for the training samples, at the budget's delta.
        result: every trial; None where a finished directory was read again.

    """

    setting: DPSGDSettings
    bottom: Bottom
    head: Head
    accuracy: float
    epsilon: float
    result: TuningResult | None

    @property
    def network(self) -> nn.Sequential:
        """Bottom and head as one module: images in [-1, 1] to logits."""
        return nn.Sequential(self.bottom, self.head)


def tune(
    dataset: Any,
    genome: Genome | str,
    *,
    public: Any,
    out: str | Path,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    epochs: int = 10,
    space: TuningSpace | None = None,
    config: TuningConfig | None = None,
    warm: OptimizerConfig | None = WARM,
    width: int = 64,
    blocks: tuple[BlockType, ...] = (),
    seed: int = 0,
    workers: int = 1,
    device: str = "cpu",
    progress: Callable[[TrialRecord], None] | None = None,
) -> TuneResult:
    """Tune DP-SGD for an architecture and a budget, and train it so.

    Trials rehearse on public samples, so that they cost nothing; then four fifths of the data set
    train once, by DP-SGD from the network that public samples have warmed up, and a fifth tests.

    Args:
        dataset: the private samples, as for `search`.
        genome: the architecture, or its text.
        public: samples of the same kind that anybody may see.
        out: folder for the trials, the ledger and the network; one that holds a tuning that was
            interrupted is gone on with.
        epsilon: the budget, above 0.
        delta: of the budget, in (0, 1), below 1/n.
        epochs: passes of the private training, at least 1, unless `space` searches them.
        space: of the settings.
        config: number of trials.
        warm: training on public samples before the private one; None for none.
        width: d, width of the representation.
        blocks: blocks of one's own that the genome's text may name.
        seed: of public split, rehearsals and weights; never of private noise.
        workers: processes for trials that are proposed at once (`TuningConfig.parallel`).
        device: "cpu" or "cuda".
        progress: called with every trial.

    Raises:
        BadInput: for data, settings or a folder that do not fit.
        BudgetExhausted: if the budget affords no training, or an earlier call that was killed
            while it trained has spent it.

    Privacy: the network is (epsilon, delta)-differentially private for one training sample added
    or removed; the ledger in `out` is charged before the first private sample is read for
    training. Nothing else in `out` depends on private samples but their number, which counts as
    public, like the number of classes. `accuracy` is exact and of private test samples, and not
    in `out`: keep it where the data are.

    """
    # What public floats look like decides for the private ones: their own look is private.
    raw = as_samples(public, unit=False)
    unit = raw.x.dtype == torch.uint8 or in_unit_range(raw.x)
    open_samples = as_samples(public, unit=unit)
    samples = as_samples(dataset, unit=unit)
    classes = max(samples.classes, open_samples.classes)
    if samples.shape != open_samples.shape:
        raise BadInput(
            f"expected public samples of shape {samples.shape} as the private ones, got "
            f"{open_samples.shape}; bring them to one shape"
        )
    samples = Samples(samples.x, samples.y, classes)
    open_samples = Samples(open_samples.x, open_samples.y, classes)
    genome = Genome.parse(genome, blocks) if isinstance(genome, str) else genome
    space = space or TuningSpace(
        learning_rate=(0.02, 2.0), clip=(0.1, 4.0), noise_factor=(1.0, 1.0)
    )
    config, folder, budget = config or TuningConfig(), Path(out), Budget(epsilon, delta)
    spec = NetworkSpec(shape=samples.shape, classes=classes, width=width)
    s = split(samples.y, search=0.0, validation=0.0, test=0.2, rng=stream(seed, "split"))
    train, test = samples.take(s.train), samples.take(s.test)
    budget.check(len(train), 0)
    schedule = TrainingSchedule(samples=len(train), epochs=epochs)
    header = {
        "search": "settings",
        # No digest of private samples: it would tell whether a guess of them all is right.
        "data": [len(samples), digest(open_samples)],
        "genome": str(genome),
        "budget": [epsilon, delta],
        "epochs": epochs,
        "space": repr(space),
        "config": repr(config),
        "warm": repr(warm),
        "seed": seed,
        "width": width,
    }
    with open_journal(folder / "log.jsonl", header) as journal:
        if (folder / "best.json").exists():
            return _read(folder, test, blocks)
        alike = torch.ones(classes)
        data = proxy_data(open_samples, alike, samples=len(train), rng=stream(seed, "proxy"))
        start = WarmStart(genome=genome, spec=spec, optimizer=warm, device=torch.device(device))
        result = tune_settings(
            training_objective(data, start, schedule, momentum=0.0, seed=seed, client=0),
            BudgetedSpace(space, ScheduleConstraint(budget, schedule)),
            config,
            rng=stream(seed, "client", 0, "tune"),
            execution=Execution(workers=workers, journal=journal, on_progress=progress),
        )
        write_bytes(folder / "trials.png", trials(result.trials, result.best))
        bottom, head = warm_started(start, open_samples, seed=seed, client=0)
        plan = calibrate(
            budget,
            schedule,
            batch_size=result.best.batch_size,
            clip=result.best.clip,
            epochs=result.best.epochs,
        )
        plan = replace(plan, noise_multiplier=result.best.noise_multiplier)
        ledger = Ledger(folder / "ledger.jsonl")
        ledger.open_account(0, budget)
        with ledger.charge(
            0,
            Charge(
                event=plan.training_event,
                phase="training",
                mechanism="dp-sgd",
                recipient="whoever sees the network",
                sensitivity=plan.clip,
            ),
        ):
            fit_private(
                bottom,
                head,
                train,
                plan=plan,
                config=OptimizerConfig(
                    learning_rate=result.best.learning_rate, train_head=spec.head_moves
                ),
                noise=SystemNoise(),
            )
        spent = ledger.account(0).spent()
        found = TuneResult(result.best, bottom, head, accuracy(bottom, head, test), spent, result)
        _save(folder, found, genome, spec)
    return found


def _save(folder: Path, found: TuneResult, genome: Genome, spec: NetworkSpec) -> None:
    save_network(
        folder / "network.safetensors",
        found.bottom,
        found.head,
        genome=genome,
        spec=spec,
        notes={"epsilon": found.epsilon},
    )
    record = {"setting": found.setting.to_json(), "epsilon": found.epsilon}
    write_json(folder / "best.json", record)


def _read(folder: Path, test: Samples, blocks: tuple[BlockType, ...]) -> TuneResult:
    """A tuning that was finished before."""
    record = read_json(folder / "best.json")
    saved = load_network(folder / "network.safetensors", blocks)
    setting = DPSGDSettings(**record["setting"])
    right = accuracy(saved.bottom, saved.head, test)
    return TuneResult(setting, saved.bottom, saved.head, right, record["epsilon"], None)
