"""A search that stopped, anywhere, goes on to the same journal, population and winner."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import run_script
from toy_fitness import RUNGS, Curves, plain, unit

from panas.architecture.blocks import ConvBlock
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.samples import Samples
from panas.evolution.fitness import Fitness, TrainingFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import (
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
    ZeroCostScore,
)
from panas.evolution.toolbox import SearchProblem
from panas.runtime import store
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal, read_journal
from panas.runtime.pool import Pool
from panas.training.sgd import OptimizerConfig

SHAPE = (1, 8, 8)
SPACE = SearchSpace(shape=SHAPE, min_blocks=1, max_blocks=4, widths=(4, 8))
CONFIG = EvolutionConfig(population=4, generations=3, rungs=RUNGS, screening=2)
HEADER = {"search": "of a test"}


def width(genome: Genome) -> float:
    return float(sum(b.out_channels for b in genome.blocks if isinstance(b, ConvBlock)))


def promise(genome: Genome) -> float:
    return unit(f"prior of {genome}")


def search(
    path: Path,
    fitness: Fitness,
    config: EvolutionConfig = CONFIG,
    *,
    workers: int = 1,
    size: Callable[[Genome], float] | None = None,
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    with open_journal(path, HEADER) as journal:
        return evolve(
            SearchProblem(SPACE, fitness, size, ZeroCostScore(promise, 1)),
            config=config,
            rng=np.random.default_rng(5),
            execution=Execution(workers=workers, journal=journal, on_progress=on_generation),
        )


VARIANTS: dict[str, tuple[EvolutionConfig, Fitness, Callable[[Genome], float] | None]] = {
    "default": (CONFIG, Curves(), None),
    "the paper's": (EvolutionConfig.paper(population=4, generations=3), plain, None),
    "wheel with rungs": (replace(CONFIG, survival="roulette"), Curves(), None),
    "two objectives": (CONFIG, Curves(), width),
    "all equal": (CONFIG, lambda _: 0.5, None),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_search_stopped_after_any_generation_goes_on(tmp_path: Path, variant: str) -> None:
    error = KeyboardInterrupt() if variant == "default" else RuntimeError("from outside")
    config, fitness, size = VARIANTS[variant]
    whole = search(tmp_path / "whole", fitness, config, size=size)
    content = (tmp_path / "whole").read_bytes()
    for stop in range(config.generations + 1):
        path = tmp_path / f"stopped-{stop}"
        seen: list[GenerationRecord] = []

        def stopping(record: GenerationRecord, at: int = stop) -> None:
            if record.generation == at:
                raise error

        with pytest.raises(type(error)):
            search(path, fitness, config, size=size, on_generation=stopping)
        assert len(read_journal(path)) == stop + 1
        assert content.startswith(path.read_bytes())
        again = search(path, fitness, config, size=size, on_generation=seen.append)
        assert path.read_bytes() == content
        assert again == whole
        assert [record.generation for record in seen] == list(
            range(stop + 1, config.generations + 1)
        )


def test_a_finished_search_trains_nothing_more(tmp_path: Path) -> None:
    first = Curves()
    whole = search(tmp_path / "log", first)
    assert first.calls
    again = Curves()
    assert search(tmp_path / "log", again) == whole
    assert not again.calls


def test_a_longer_search_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    search(tmp_path / "log", Curves(), replace(CONFIG, generations=1))
    longer = search(tmp_path / "log", Curves())
    assert longer == search(tmp_path / "whole", Curves())


class Interrupts:
    """Staged: as `Curves`, but for Ctrl-C at one of its jobs."""

    def __init__(self, at: int) -> None:
        self._left, self._curves = at, Curves()

    def advance(self, job: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._curves.advance(job)


@pytest.mark.parametrize("job", [0, 4, 9, 15])
def test_an_interrupt_in_a_training_keeps_the_generations_before(tmp_path: Path, job: int) -> None:
    whole = search(tmp_path / "whole", Curves())
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "log", Interrupts(job))
    lines = read_journal(tmp_path / "log")
    assert lines == read_journal(tmp_path / "whole")[: len(lines)]
    assert search(tmp_path / "log", Curves()) == whole
    assert (tmp_path / "log").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_journal_cut_anywhere_goes_on(tmp_path: Path) -> None:
    whole = search(tmp_path / "whole", Curves())
    content = (tmp_path / "whole").read_bytes()
    path = tmp_path / "log"
    for cut in np.random.default_rng(0).integers(len(content), size=6):
        path.write_bytes(content[:cut])
        assert search(path, Curves()) == whole
        assert path.read_bytes() == content


@pytest.mark.parametrize("forgotten", ["rng", "population", "priors", "history"])
def test_resuming_needs_everything_that_a_line_holds(tmp_path: Path, forgotten: str) -> None:
    # The planted bugs: a search that goes on without one of them comes out differently.
    whole = search(tmp_path / "whole", Curves())
    lines = [json.loads(line) for line in (tmp_path / "whole").read_bytes().splitlines()[:3]]
    other = search(tmp_path / "other", Curves(), replace(CONFIG, generations=0))
    assert other.logbook == whole.logbook[:1]
    match forgotten:
        case "rng":
            lines[2]["rng"] = lines[1]["rng"]
        case "population":
            lines[2]["population"] = lines[1]["population"]
        case "priors":
            lines[1]["priors"] = {}
        case "history":
            for evaluation in (*lines[1]["history"], *lines[2]["history"]):
                evaluation["scores"] = []
    path = tmp_path / "log"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert search(path, Curves()) != whole


def test_the_journal_of_another_search_and_of_another_process_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    search(path, Curves())
    with pytest.raises(BadInput, match="search = ") as caught, open_journal(path, {"search": "x"}):
        pass
    assert "\n" not in str(caught.value)
    with open_journal(path, HEADER), pytest.raises(BadInput, match="another process"):
        search(path, Curves())
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"generation": 1,', b'"generation" 1,', 1))
    with pytest.raises(BadInput, match=r"line 3 of .* damaged"):
        search(path, Curves())


# SIGKILL. A search counts what it does to the disk and which trainings it begins, and kills itself
# before one of them, or in the middle of a line.


def digits_like(n: int, seed: int) -> Samples:
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randint(120, (n, *SHAPE), generator=g) + 60 * y[:, None, None, None]
    return Samples(x.to(torch.uint8), y, 3)


TRAINING = TrainingFitness(
    digits_like(24, 1),
    digits_like(40, 2),
    NetworkSpec(shape=SHAPE, classes=3, width=6),
    OptimizerConfig(learning_rate=0.01, optimiser="adam", batch_size=8, epochs=4, decay="cosine"),
    7,
    0,
)
SHORT = EvolutionConfig(population=4, generations=3, rungs=(0.5,), screening=3)


@contextmanager
def deadly(at: int | None) -> Iterator[list[str]]:
    """Within the block, this process kills itself before event number `at`; yields the events."""
    events: list[str] = []

    def event(name: str) -> None:
        events.append(name)
        if len(events) - 1 == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            event(name)
            return function(*args, **kwargs)

        return wrapped

    append = store.append_bytes

    def torn(path: Path, content: bytes, at: int) -> None:
        event("before a line")
        with path.open("ab") as file:
            file.write(content[: len(content) // 2])
        event("within a line")
        append(path, content, at=at)
        event("behind a line")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("panas.runtime.journal.append_bytes", torn)
        patch.setattr(Path, "replace", before("rename", Path.replace))
        patch.setattr(Path, "unlink", before("unlink", Path.unlink))
        patch.setattr(os, "fsync", before("fsync", os.fsync))
        patch.setattr(TrainingFitness, "advance", before("training", TrainingFitness.advance))
        patch.setattr(Pool, "survive", before("rung", Pool.survive))
        yield events


def killed_search(path: Path, workers: int, at: int | None) -> int:
    """Run the search in a process of its own; returns its exit code, or minus the signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with deadly(at):
                search(path, TRAINING, SHORT, workers=workers)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check_kills(folder: Path, workers: int, moments: int) -> None:
    """Kill searches at random moments, go on with each, and compare it with the whole one."""
    with deadly(None) as events:
        whole = search(folder / "whole", TRAINING, SHORT)
    content = (folder / "whole").read_bytes()
    if workers > 1:  # trainings are begun elsewhere
        events = [event for event in events if event != "training"]
    assert len(events) > 15
    rng = np.random.default_rng([workers, 0])
    for number, at in enumerate(rng.choice(len(events), size=moments, replace=False)):
        path = folder / f"killed-{number}" / "log"
        assert killed_search(path, workers, int(at)) == -signal.SIGKILL
        if path.exists():
            assert path.read_bytes() != content or events[at:].count("rung") == 0
        second = int(rng.integers(0, len(events)))  # and perhaps once more
        code = killed_search(path, workers if number % 3 == 0 else 1, second)
        assert code in (0, -signal.SIGKILL)
        again = search(path, TRAINING, SHORT)
        assert path.read_bytes() == content
        assert again == whole


DRIVER = """
import sys
from pathlib import Path
sys.path[:0] = {folders!r}
from test_resume import check_kills
if __name__ == "__main__":  # its workers import it
    check_kills(Path({folder!r}), {workers}, {moments})
"""


@pytest.mark.parametrize(
    ("workers", "moments"),
    [
        pytest.param(1, 5, marks=pytest.mark.thorough),
        pytest.param(2, 5, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.timeout(1500)
def test_a_search_killed_anywhere_goes_on(tmp_path: Path, workers: int, moments: int) -> None:
    # In a process of its own: it forks, which only a process without threads should.
    here = Path(__file__).resolve()
    folders = [str(here.parent), str(here.parents[2] / "helpers")]
    code = DRIVER.format(folders=folders, folder=str(tmp_path), workers=workers, moments=moments)
    driver, said = tmp_path / "driver.py", tmp_path / "stderr"
    driver.write_text(code)
    exit_code = run_script(driver, said, None, {**os.environ, "OMP_NUM_THREADS": "1"})
    assert exit_code == 0, said.read_text()[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_workers_write_what_one_writes(tmp_path: Path) -> None:
    config = replace(SHORT, generations=2)
    one = search(tmp_path / "one", TRAINING, config)
    eight = search(tmp_path / "eight", TRAINING, config, workers=8)
    assert (tmp_path / "eight").read_bytes() == (tmp_path / "one").read_bytes()
    assert eight == one
