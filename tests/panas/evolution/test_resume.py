"""A search that stopped, anywhere, goes on to the same journal, population and winner."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_samples import by_brightness
from toy_fitness import RUNGS, Curves, plain
from toy_search import by_size, prior_score, run

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.evolution.fitness import Fitness, TrainingFitness
from panas.evolution.records import (
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
)
from panas.runtime.journal import open_journal, read_journal
from panas.training.sgd import OptimizerConfig

SHAPE = (1, 8, 8)
CONFIG = EvolutionConfig(population=4, generations=3, rungs=RUNGS, screening=2)
HEADER = {"search": "of a test"}


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
        return run(
            fitness,
            seed=5,
            config=config,
            journal=journal,
            size=size,
            prior=prior_score,
            workers=workers,
            on_progress=on_generation,
        )


VARIANTS: dict[str, tuple[EvolutionConfig, Fitness, Callable[[Genome], float] | None]] = {
    "default": (CONFIG, Curves(), None),
    "the paper's": (EvolutionConfig.paper(population=4, generations=3), plain, None),
    "wheel with rungs": (replace(CONFIG, survival="roulette"), Curves(), None),
    "two objectives": (CONFIG, Curves(), by_size),
    "all equal": (CONFIG, lambda _: 0.5, None),
}


@pytest.mark.slow
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


def test_a_finished_search_trains_nothing_more_and_a_longer_one_goes_on_from_it(tmp_path: Path):
    first = Curves()
    whole = search(tmp_path / "log", first)
    assert first.calls
    again = Curves()
    assert search(tmp_path / "log", again) == whole
    assert not again.calls
    search(tmp_path / "short", Curves(), replace(CONFIG, generations=1))
    assert search(tmp_path / "short", Curves()) == whole


@pytest.mark.slow
def test_an_interrupt_in_a_training_keeps_the_generations_before(tmp_path: Path) -> None:
    whole = search(tmp_path / "whole", Curves())
    for job in (0, 4, 9, 15):
        log, curves = tmp_path / f"log-{job}", Curves()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Curves, "advance", interrupted(curves.advance, job))
            with pytest.raises(KeyboardInterrupt):
                search(log, Curves())
        lines = read_journal(log)
        assert lines == read_journal(tmp_path / "whole")[: len(lines)]
        assert search(log, Curves()) == whole
        assert log.read_bytes() == (tmp_path / "whole").read_bytes()


def interrupted(real: Callable[[Any], Any], at: int) -> Callable[..., Any]:
    """The same, but for Ctrl-C at one of its calls."""
    left = iter(range(at))

    def advance(_: Any, job: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(job)

    return advance


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
    # A score that is forgotten is computed again: only the journal shows it.
    assert (search(path, Curves()) == whole) == (forgotten == "priors")
    assert read_journal(path)[2:] != read_journal(tmp_path / "whole")[2:]


TRAINING = TrainingFitness(
    by_brightness(24, 1),
    by_brightness(40, 2),
    NetworkSpec(shape=SHAPE, classes=3, width=6),
    OptimizerConfig(learning_rate=0.01, optimiser="adam", batch_size=8, epochs=4, decay="cosine"),
    7,
    0,
)
SHORT = EvolutionConfig(population=4, generations=3, rungs=(0.5,), screening=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_workers_write_what_one_writes(tmp_path: Path) -> None:
    config = replace(SHORT, generations=2)
    one = search(tmp_path / "one", TRAINING, config)
    eight = search(tmp_path / "eight", TRAINING, config, workers=8)
    assert (tmp_path / "eight").read_bytes() == (tmp_path / "one").read_bytes()
    assert eight == one
