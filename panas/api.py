"""`panas.search`, `panas.tune` and `panas.load`: one data set in, its own network out.

With `out`, search and tuning can be interrupted or killed at any moment: the same call again goes
on where it was. Only a private training that was killed in its middle has spent its budget.
Source: DPFNAS, algorithm 1.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from panas.architecture.blocks import BlockType
from panas.architecture.cost import Size
from panas.architecture.genome import Genome
from panas.architecture.latency import limited
from panas.architecture.limits import Constraints
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.arrays import as_samples, with_facts
from panas.data.facts import Facts
from panas.data.load import check_disjoint
from panas.data.samples import Samples
from panas.evolution.fitness import Fitness
from panas.evolution.network_search import NetworkSearch, SearchResult
from panas.evolution.records import EvolutionConfig, GenerationRecord
from panas.plots.network import drawing
from panas.plots.search import history
from panas.plots.tuning import trials
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.device import check_device
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal
from panas.runtime.store import write_bytes
from panas.runtime.typed import checked
from panas.training.checkpoint import SavedNetwork, load_network
from panas.training.linear.predictor import Predictor, is_predictor, read_predictor
from panas.training.sgd import SHORT, WARM, OptimizerConfig
from panas.tuning.network_tuning import NetworkTuning, TuneResult
from panas.tuning.space import TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig

TUNING_SPACE = TuningSpace(learning_rate=(0.02, 2.0), clip=(0.1, 4.0), noise_factor=(1.0, 1.0))
"""Where `tune` looks by default: sigma is the least that the budget affords."""


@checked
def search(
    dataset: Any,
    *,
    out: str | Path | None = None,
    space: SearchSpace | None = None,
    blocks: tuple[BlockType, ...] = (),
    max_parameters: int | None = None,
    max_macs: int | None = None,
    max_bytes: int | None = None,
    max_latency_ms: float | None = None,
    size: Size | None = None,
    fitness: Fitness | None = None,
    config: EvolutionConfig | None = None,
    optimizer: OptimizerConfig = SHORT,
    width: int = 64,
    seed: int = 0,
    workers: int = 1,
    device: str = "cpu",
    progress: Callable[[GenerationRecord], None] | None = None,
    on_candidate: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """Search an architecture for a data set, and train the best one.

    Five sevenths of the samples train, one seventh validates, one seventh tests.

    Args:
        dataset: what `panas.data.arrays.as_samples` takes: a torch data set, or a pair of arrays.
        out: folder for the log, the winner and its pictures; None keeps nothing.
        space: where to search; None: up to 6 blocks of up to 64 channels.
        blocks: custom blocks, used besides; see `panas.architecture.blocks.BlockType`.
        max_parameters: hard limit on the network, as the next three.
        max_macs: multiply-accumulates of one image.
        max_bytes: of the weights.
        max_latency_ms: of one image on one thread, by a table that is measured first.
        size: makes small a second objective; `SearchResult.result.front` then holds the trade-off.
        fitness: scores a genome in place of validation accuracy, in [0, 1].
        config: of the genetic search; None: population 10, 20 generations.
        optimizer: the training that gives a genome its fitness, and the winner its weights.
        width: d, width of the representation, at least the number of classes.
        seed: of data split, search and weights.
        workers: processes, with the same outcome; above 1 needs `if __name__ == "__main__":`.
        device: "cpu" or "cuda".
        progress: called with the record of every generation.
        on_candidate: called with the numbers of candidates so far, and in all at most.

    Raises:
        BadInput: for data or settings that do not fit, or a folder of another search.

    Privacy: none. Who sees the genome, the network or the folder learns of the samples; use public
    ones, or keep all of it where the data are.

    >>> import numpy as np
    >>> import panas
    >>> x = np.random.default_rng(0).random((28, 1, 8, 8), dtype="float32")
    >>> space = panas.SearchSpace(shape=(1, 8, 8), max_blocks=3, widths=(4,))
    >>> short = panas.EvolutionConfig(population=1, generations=0, seeding=1)
    >>> found = panas.search((x, np.arange(28) % 2), space=space, config=short, width=4)
    >>> len(found.genome.blocks)
    3
    """
    _check(seed, device, out)
    samples, facts = with_facts(dataset)
    if samples.classes < 2:
        raise BadInput("expected samples of two or more classes, got one; nothing is to be learnt")
    folder = None if out is None else Path(out)
    spec = NetworkSpec(shape=samples.shape, classes=samples.classes, width=width)
    limits = Constraints(
        parameters=max_parameters, macs=max_macs, bytes=max_bytes, latency_ms=max_latency_ms
    )
    space = space or SearchSpace(shape=spec.shape, max_blocks=6, widths=(16, 32, 64))
    if space.shape != spec.shape:
        raise BadInput(f"expected a space for images of {spec.shape}, got {space.shape}; change it")
    space = replace(space, blocks=(*space.blocks, *blocks))
    task = NetworkSearch(
        samples=samples,
        spec=spec,
        space=limited(space, spec, limits, table=folder / "latency.json" if folder else None),
        config=config or EvolutionConfig(),
        optimizer=optimizer,
        fitness=fitness,
        size=size,
        seed=seed,
        device=device,
        facts=facts,
    )
    with open_journal(
        folder / "log.jsonl" if folder else None, task.header(), keep=False
    ) as journal:
        result = task.run(
            Execution(
                workers=workers, journal=journal, on_progress=progress, on_candidate=on_candidate
            )
        )
        if folder:
            _draw(folder, result, size)
            result.save(folder)
    return result


@checked
def tune(
    dataset: Any,
    genome: Genome | str,
    *,
    public: Any,
    out: str | Path,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    ledger: Ledger | str | Path | None = None,
    strict: bool = False,
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
        public: samples of the same kind that anybody may see, none of them private; a label that
            only private samples have is warned of.
        out: folder for the trials, the ledger and the network.
        epsilon: the budget of this training, above 0.
        delta: of the budget, in (0, 1), below 1/n.
        ledger: of these samples, for life, or its file or folder; it is opened before, as by
            `Ledger("mine/ledger.jsonl").open_account(Budget(8.0, 1e-5))`. None: one in `out`, for
            this training alone.
        strict: refuse samples that another ledger was charged for, which are warned of otherwise.
        epochs: passes of the private training, at least 1, unless `space` searches them.
        space: of the settings.
        config: number of trials.
        warm: training on public samples before the private one; None for none.
        width: d, width of the representation.
        blocks: custom blocks that the genome's text may name.
        seed: of public split, rehearsals and weights; never of private noise.
        workers: processes for trials that are proposed at once (`TuningConfig.parallel`).
        device: "cpu" or "cuda".
        progress: called with every trial.

    Raises:
        BadInput: for data, settings or a folder that do not fit.
        BudgetExhausted: if the budget affords no training, or a killed training has spent it, or
            `ledger` has less left; in that case before any private sample is trained on.

    Privacy: the network is (epsilon, delta)-differentially private for one training sample added
    or removed; the ledger is charged before the first private sample is read for training. Nothing
    else in `out` depends on private samples but their number, which is public, as is the number of
    classes. Keyed fingerprints of the samples stay in the user's own state folder. `accuracy`,
    exact, on private test samples, is not in `out`: keep it where the data are.

    >>> import tempfile
    >>> import numpy as np
    >>> import panas
    >>> x, y = np.random.default_rng(0).random((64, 1, 8, 8), dtype="float32"), np.arange(64) % 2
    >>> few = panas.TuningConfig(initial=1, trials=1)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     tuned = panas.tune(
    ...         (x[:40], y[:40]), "c4k3", public=(x[40:], y[40:]), out=out, delta=1e-3, config=few
    ...     )
    >>> 7.9 < tuned.epsilon <= 8
    True
    """
    _check(seed, device, out)
    private, open_samples, facts = _alike(dataset, public)
    check_disjoint(private, open_samples, "the private data")
    task = NetworkTuning(
        private=private,
        public=open_samples,
        genome=Genome.parse(genome, blocks) if isinstance(genome, str) else genome,
        spec=NetworkSpec(shape=private.shape, classes=private.classes, width=width),
        space=space or TUNING_SPACE,
        config=config or TuningConfig(),
        budget=Budget(epsilon, delta),
        epochs=epochs,
        warm=warm,
        seed=seed,
        device=device,
        facts=facts,
    )
    folder = Path(out)
    with open_journal(folder / "log.jsonl", task.header(), keep=False) as journal:
        if (folder / "best.json").exists():
            return task.read(folder, blocks)
        own = task.begin(_opened(ledger), folder, strict=strict)
        result = task.search(Execution(workers=workers, journal=journal, on_progress=progress))
        write_bytes(folder / "trials.png", trials(result.trials, result.best))
        return task.train(result, folder, own)


@checked
def load(path: str | Path, blocks: Sequence[BlockType] = ()) -> SavedNetwork | Predictor:
    """Read what a search, a tuning or a federation's run has saved: a network, or a predictor.

    Both have scikit-learn's `predict`, `predict_proba` and `classes_`, besides `probabilities`,
    `class_names` and `facts`.

    Args:
        path: folder of a search or a tuning, or a file of a network or predictor, as in a run's
            `models/`.
        blocks: custom blocks that its genome may name.

    Raises:
        BadInput: if there is none, or it is damaged.

    Privacy: a predictor's file stays with its site (`panas.training.linear.predictor`).

    >>> import tempfile
    >>> import numpy as np
    >>> import panas
    >>> x = np.random.default_rng(0).random((28, 1, 8, 8), dtype="float32")
    >>> space = panas.SearchSpace(shape=(1, 8, 8), max_blocks=3, widths=(4,))
    >>> short = panas.EvolutionConfig(population=1, generations=0, seeding=1)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     found = panas.search((x, np.arange(28) % 2), out=out, space=space, config=short)
    ...     network = panas.load(out)
    >>> network.genome == found.genome, tuple(network.probabilities(x[:3]).shape)
    (True, (3, 2))
    """
    file = Path(path)
    if file.is_dir() and not (file := file / "network.safetensors").exists():
        raise BadInput(
            f"expected a network in {path}, got a folder without {file.name}; give the folder of a "
            "search or a tuning, or a file of a run's models/"
        )
    return read_predictor(file, blocks) if is_predictor(file) else load_network(file, blocks)


def _check(seed: int, device: str, out: str | Path | None) -> None:
    """Refuse a seed, a device or a folder that cannot be."""
    if seed < 0:
        raise BadInput(f"expected a whole number of 0 or more as seed, got {seed!r}; give another")
    check_device(device)
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise BadInput(f"expected a folder as out, got the file {out}; give another")


def _opened(ledger: Ledger | str | Path | None) -> Ledger | None:
    """The ledger of a data set, by itself, its file or its folder; BadInput if it is not open."""
    if ledger is None:
        return None
    if not isinstance(ledger, Ledger):
        path = Path(ledger)
        ledger = Ledger(path / "ledger.jsonl" if path.is_dir() else path)
    ledger.account()
    return ledger


def _draw(folder: Path, winner: SearchResult, size: Size | None) -> None:
    result, front = winner.result, winner.result.front if size else None
    picture = history(result.records, result.history, front, size=size or "parameters")
    write_bytes(folder / "history.png", picture)
    write_bytes(folder / "network.png", drawing(winner.genome, winner.spec, winner.fitness))


def _alike(dataset: Any, public: Any) -> tuple[Samples, Samples, Facts]:
    """Private and public samples, as images of one shape and range with as many classes."""
    # Public floats decide whether the private ones go from 0 to 1: their own look is private.
    open_samples, facts = with_facts(public)
    private = as_samples(dataset, unit=facts.unit)
    if private.shape != open_samples.shape:
        raise BadInput(
            f"expected public samples of shape {private.shape} as the private ones, got "
            f"{open_samples.shape}; bring them to one shape"
        )
    if not set(private.y.tolist()) <= set(open_samples.y.tolist()):
        warnings.warn(
            "private samples have labels that no public sample has, so that no trial rehearses "
            "them; add public samples of those classes",
            stacklevel=4,
        )
    classes = max(private.classes, open_samples.classes)
    if classes > facts.classes:
        facts = replace(facts, class_names=tuple(map(str, range(classes))))
    return replace(private, classes=classes), replace(open_samples, classes=classes), facts
