"""Training as a fitness, on labels or as agreement with a teacher, in shares as in one go."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from made_samples import by_brightness
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec, Norm
from panas.evolution.fitness import (
    AgreementFitness,
    DataFreeFitness,
    Outcome,
    ResumableFitness,
    TrainingFitness,
    TrainingJob,
    chosen_for,
)
from panas.evolution.records import Evaluation, EvolutionResult
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, pack_tensors, unpack_tensors
from panas.training.distillation import SoftSamples
from panas.training.linear.averaging import log_prior
from panas.training.sgd import OptimizerConfig, Trainer

SHAPE = (1, 14, 4)
SPEC = NetworkSpec(shape=SHAPE, classes=3, width=6)
CONFIG = OptimizerConfig(
    learning_rate=0.02, optimiser="adam", batch_size=8, epochs=5, decay="cosine"
)
GENOME = Genome.parse("c4k3-max-c6k3")
HISTOGRAM = torch.tensor([30.0, 5.0, -2.0])


def soft(n: int, seed: int) -> SoftSamples:
    """Brightness tells the class; the teacher is not sure of it."""
    samples, g = by_brightness(n, seed, SHAPE), torch.Generator().manual_seed(seed)
    answers = 3 * torch.nn.functional.one_hot(samples.y, 3) + torch.randn(n, 3, generator=g)
    return SoftSamples(replace(samples, y=torch.zeros_like(samples.y)), answers.softmax(1))


def fitness(site: int = 0, cache: Path | None = None) -> AgreementFitness:
    return AgreementFitness(
        taught=soft(20, 2),
        held_out=soft(60, 3),
        histogram=HISTOGRAM,
        spec=SPEC,
        optimizer=CONFIG,
        seed=7,
        site=site,
        cache=cache,
    )


def naive(objective: AgreementFitness, logits: Tensor) -> float:
    """The formula, one sample after another."""
    prior = log_prior(objective.histogram)
    answers = [int(p.argmax()) for p in objective.held_out.targets]
    right = total = 0.0
    for row, p, c in zip(logits, objective.held_out.targets, answers, strict=True):
        weight = math.exp(prior[c]) / answers.count(c)
        total += weight
        if int((row + prior).argmax()) == int((p.log() + prior).argmax()):
            right += weight
    return right / total


@pytest.mark.slow
def test_a_student_that_is_its_teacher_agrees_its_opposite_does_not_and_learning_shows() -> None:
    result = fitness()
    answers = result.held_out.targets.log()
    assert result.agreement(answers) == 1
    assert result.agreement(answers + 5) == 1
    assert result.agreement(answers.roll(1, dims=1) - 2 * log_prior(HISTOGRAM)) < 0.2
    assert replace(result, histogram=torch.ones(3)).agreement(-answers) == pytest.approx(
        0, abs=1e-9
    )
    result = replace(fitness(), histogram=torch.ones(3))
    assert replace(result, optimizer=replace(CONFIG, epochs=40))(GENOME) > 0.6  # of chance 1/3
    none = SoftSamples(soft(20, 2).samples.take([]), torch.zeros(0, 3))
    assert np.isnan(replace(fitness(), held_out=none)(GENOME))


@pytest.mark.parametrize("counts", [HISTOGRAM, torch.ones(3), torch.tensor([0.0, 1.0, 400.0])])
def test_weights_are_those_of_a_naive_loop(counts: Tensor) -> None:
    result = replace(fitness(), histogram=counts)
    for seed in range(3):
        logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(seed))
        mixed = logits + result.held_out.targets.log()
        assert result.agreement(mixed) == pytest.approx(naive(result, mixed), abs=1e-6)


def test_classes_count_by_what_the_teacher_answers_and_by_a_site_s_mix() -> None:
    whole = fitness()
    some = torch.nonzero(whole.held_out.targets.argmax(1) != 0).flatten()
    held_out = SoftSamples(whole.held_out.samples.take(some), whole.held_out.targets[some])
    result = replace(whole, held_out=held_out)
    assert float(result.weights.sum()) == pytest.approx(1)
    assert result.agreement(held_out.targets.log()) == 1
    # A site's mix decides what counts.
    result = fitness()
    logits = result.held_out.targets.log().clone()
    logits[:, 0] = -9  # never class 0
    scores = [
        replace(result, histogram=torch.tensor(h)).agreement(logits)
        for h in ([90.0, 1.0, 1.0], [30.0, 30.0, 30.0], [1.0, 90.0, 90.0])
    ]
    assert scores[0] < scores[1] < scores[2]


@pytest.mark.parametrize("cached", [False, True])
def test_shares_end_where_one_go_ends(cached: bool, tmp_path: Path) -> None:
    result = fitness()
    whole = result.advance(TrainingJob(GENOME))
    assert isinstance(result, ResumableFitness)
    assert (whole.passes, whole.state) == (100, None)
    cache = tmp_path if cached else None
    state, passes = None, 0
    for share in (0.2, 0.6, 1.0):
        outcome = replace(result, cache=cache).advance(TrainingJob(GENOME, share, state))
        state, passes = outcome.state, passes + outcome.passes
    assert outcome == Outcome(whole.fitness, 40)
    assert passes == 100


@pytest.mark.slow
def test_one_training_serves_every_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = torch.tensor([1.0, 40.0, 10.0])
    apart = replace(fitness(1), histogram=other)
    jobs = [TrainingJob(GENOME, 0.4), TrainingJob(GENOME)]
    expected = [apart.advance(job) for job in jobs]
    first = [fitness(0, tmp_path).advance(job) for job in jobs]
    assert first == [fitness(0).advance(job) for job in jobs]
    assert all(outcome.passes > 0 for outcome in first)
    monkeypatch.setattr(Trainer, "run", None)  # nothing trains from here on
    site = replace(apart, cache=tmp_path)
    again = [site.advance(job) for job in jobs]
    assert again == [replace(outcome, passes=0) for outcome in expected]
    # A search that was killed before it noted its passes reports them when it goes on.
    assert [fitness(0, tmp_path).advance(job) for job in jobs] == first


def changed() -> dict[str, AgreementFitness]:
    base = fitness()
    samples = base.taught.samples
    x = samples.x.clone()
    x[0, 0, 0, 0] ^= 1
    other = replace(base.taught, targets=base.taught.targets.flip(0))
    return {
        "seed": replace(base, seed=8),
        "teacher": replace(base, taught=other),
        "inputs": replace(base, taught=replace(base.taught, samples=replace(samples, x=x))),
        "held out": replace(base, held_out=soft(60, 4)),
        "network": replace(base, spec=replace(SPEC, unit=False)),
        "training": replace(base, optimizer=replace(CONFIG, batch_size=7)),
    }


def test_a_job_that_another_process_is_at_is_left_to_it(tmp_path: Path) -> None:
    result, job = fitness(cache=tmp_path), TrainingJob(GENOME)
    first = result.attempt(job)
    (kept,) = tmp_path.glob("*.safetensors")
    with exclusive(kept):
        assert result.attempt(job) is None
    assert first == result.attempt(job) == result.advance(job)
    assert fitness().attempt(job) is not None  # nobody to share with


@pytest.mark.parametrize("what", changed())
def test_another_training_is_not_mistaken_for_it(what: str, tmp_path: Path) -> None:
    fitness(0, tmp_path).advance(TrainingJob(GENOME, 0.2))
    outcome = replace(changed()[what], site=1, cache=tmp_path).advance(TrainingJob(GENOME, 0.2))
    assert outcome.passes == 20
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


@pytest.mark.slow
def test_genome_and_share_are_not_mistaken(tmp_path: Path) -> None:
    jobs = [TrainingJob(GENOME, 0.2), TrainingJob(GENOME, 0.4), TrainingJob(GENOME)]
    jobs += [TrainingJob(Genome.parse("c4k3-max-c6k5"))]
    jobs += [TrainingJob(GENOME, 0.99)]  # all epochs, but it may go on
    states = [fitness(0, tmp_path).advance(job).state for job in jobs]
    assert len(list(tmp_path.glob("*.safetensors"))) == 5
    assert [state is None for state in states] == [False, False, True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"not safetensors", None])
def test_a_damaged_file_is_refused_in_one_line(content: bytes | None, tmp_path: Path) -> None:
    result = fitness(0, tmp_path)
    result(GENOME)
    (path,) = tmp_path.glob("*.safetensors")
    bytes_there = bytearray(path.read_bytes())
    bytes_there[-1] ^= 1
    path.write_bytes(bytes(bytes_there) if content is None else content)
    with pytest.raises(BadInput, match="damaged or edited file; move it") as e:
        result(GENOME)
    assert "\n" not in str(e.value)
    path.unlink()
    assert result(GENOME) == fitness()(GENOME)


@pytest.mark.parametrize("cached", [False, True])
def test_a_training_that_diverges_fails_at_every_site(cached: bool, tmp_path: Path) -> None:
    wild = OptimizerConfig(learning_rate=1e38, batch_size=8, epochs=3)
    cache = tmp_path if cached else None
    for site, passes in ((0, 60), (1, 0 if cached else 60)):
        outcome = replace(fitness(site, cache), optimizer=wild).advance(TrainingJob(GENOME))
        assert np.isnan(outcome.fitness)
        assert (outcome.passes, outcome.error) == (passes, "its training diverged")


@dataclass(frozen=True, kw_only=True)
class Answering(AgreementFitness):
    """Students that were trained elsewhere, by their logits of the held-out samples."""

    answers: Mapping[str, Tensor]

    def _kept(self, job: TrainingJob, *, wait: bool) -> Any:
        return SimpleNamespace(
            logits=self.answers[str(job.genome)], site=0, passes=0, state=dict[str, Tensor]()
        )


def answering(wrong: Mapping[str, Sequence[int]]) -> Answering:
    """Students that answer as the teacher does, but for some samples each."""
    base = replace(fitness(), histogram=torch.ones(3))
    right, answers = base.held_out.targets.log(), dict[str, Tensor]()
    for name, at in wrong.items():
        answers[name] = right.clone()
        answers[name][list(at)] = -right[list(at)]
    return Answering(**{f.name: getattr(base, f.name) for f in fields(base)}, answers=answers)


def test_a_genome_is_as_good_up_to_a_standard_error_of_the_weighted_difference() -> None:
    wrong = {"c4k3": range(3), "c2k3": range(10, 14), "c6k3": range(12)}
    objective, best = answering(wrong), Genome.parse("c4k3")
    weights = [float(w) for w in objective.weights]
    for name in ("c2k3", "c6k3"):
        worse = [(i in wrong[name]) - (i in wrong["c4k3"]) for i in range(60)]
        mean = sum(w * d for w, d in zip(weights, worse, strict=True))
        error = math.sqrt(sum((w * (d - mean)) ** 2 for w, d in zip(weights, worse, strict=True)))
        assert objective.as_good(Genome.parse(name), best) == (mean <= error), (mean, error)
    assert objective.as_good(Genome.parse("c2k3"), best)
    assert not objective.as_good(Genome.parse("c6k3"), best)
    assert objective.as_good(best, Genome.parse("c6k3"))
    objective = replace(objective, answers=objective.answers | {"c2k3": None})  # it diverged
    assert not objective.as_good(Genome.parse("c2k3"), best)


@pytest.mark.parametrize(("wrong", "taken"), [(2, "c2k3"), (4, "c2k3"), (20, "c4k3")])
def test_the_cheapest_of_those_that_agree_as_well_is_taken(wrong: int, taken: str) -> None:
    at = range(10, 10 + wrong)
    objective = answering({"c4k3": range(3), "c2k3": at, "c6k3": range(3)})
    result = searched(objective, ["c4k3", "c2k3", "c6k3"], [0.0] * 3)
    chosen = chosen_for(result, objective)
    assert (str(chosen.best), chosen.fitness) == (taken, objective(chosen.best))


@pytest.mark.parametrize(("wrong", "taken"), [(4, "c4k3"), (25, "c2k3")])
def test_a_plain_genome_is_taken_unless_it_is_surely_beaten(wrong: int, taken: str) -> None:
    objective = answering({"c4k3": range(10, 10 + wrong), "c2k3": range(2)})
    result = searched(objective, ["c2k3"], [0.0])  # the search had dropped the plain one
    chosen = chosen_for(result, objective, Genome.parse("c4k3"))
    assert (str(chosen.best), chosen.fitness) == (taken, objective(chosen.best))
    assert str(chosen_for(result, objective).best) == "c2k3"


def test_a_plain_genome_whose_training_failed_is_not_taken() -> None:
    objective = answering({"c2k3": range(2)})
    objective = replace(objective, answers=objective.answers | {"c4k3": None})
    result = searched(objective, ["c2k3"], [0.0])
    assert str(chosen_for(result, objective, Genome.parse("c4k3")).best) == "c2k3"


def test_a_network_that_fails_where_classes_are_rare_is_not_taken() -> None:
    answers = fitness().held_out.targets.argmax(1)
    common, rare = ([int(i) for i in (answers == c).nonzero()] for c in (0, 2))
    alike = answering({"c4k3": common[:3], "c2k3": [*common[3:6], *rare]})
    objective = replace(alike, histogram=HISTOGRAM)
    best, cheap = map(Genome.parse, ("c4k3", "c2k3"))
    assert objective.as_good(cheap, best)
    assert not alike.as_good(cheap, best)
    result = searched(objective, ["c4k3", "c2k3"], [0.0] * 2)
    assert chosen_for(result, objective).best == best


def searched(
    objective: AgreementFitness, genomes: list[str], sizes: list[float]
) -> EvolutionResult:
    history = [
        Evaluation(g, objective(g), 0, failed=False, size=size)
        for g, size in zip(map(Genome.parse, genomes), sizes, strict=True)
    ]
    history.append(Evaluation(Genome.parse("c2k3"), 0.99, 0, failed=False, dropped=True))
    best = max(history[:-1], key=lambda e: e.fitness)
    return EvolutionResult(best.genome, best.fitness, [], history, 100, [])


@pytest.mark.slow
def test_a_site_takes_what_agrees_best_in_its_own_frequencies(tmp_path: Path) -> None:
    alike = replace(fitness(0, tmp_path), histogram=torch.ones(3))
    genomes = ["c4k3-max-c6k3", "c4k3", "c2k5-c4k3", "max-c4k3"]
    result = searched(alike, genomes, [4.0, 2.0, 3.0, 1.0])
    files = set(tmp_path.iterdir())
    for histogram in (torch.tensor([50.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 70.0])):
        own = replace(alike, histogram=histogram, site=1)
        scores = {g: own(Genome.parse(g)) for g in genomes}
        chosen = chosen_for(result, own)
        assert scores[str(chosen.best)] == chosen.fitness
        assert own.as_good(chosen.best, max(map(Genome.parse, genomes), key=own))
        assert set(tmp_path.iterdir()) == files  # nothing was trained for it
        sizes = [size for _, _, size in chosen.front]
        fits = [fit for _, fit, _ in chosen.front]
        assert sizes == sorted(sizes)
        assert fits == sorted(fits)
        assert fits[-1] == max(scores.values())
    same = searched(alike, genomes, [0.0] * 4)
    assert len(chosen_for(same, own).front) == 1


SQUARE = (1, 8, 8)
PLAIN = NetworkSpec(shape=SQUARE, classes=3, width=6, unit=False, head_init="random")


def training(
    norm: Norm = "group", optimizer: OptimizerConfig = CONFIG, n: int = 20
) -> TrainingFitness:
    return TrainingFitness(
        by_brightness(n), by_brightness(60, 3), replace(PLAIN, norm=norm), optimizer, 7, 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("shares", [(0.1, 0.3, 0.9), (0.2, 0.4, 0.6, 0.8)])
def test_in_shares_as_in_one_go(norm: Norm, shares: tuple[float, ...]) -> None:
    trained = training(norm)
    whole = trained.advance(TrainingJob(GENOME))
    assert whole.passes == 5 * 20
    assert trained(GENOME) == whole.fitness
    state, passes, scores, states = None, 0, [], [None]
    for share in (*shares, 1.0):
        # A fitness of its own, as another process has it.
        outcome = training(norm).advance(TrainingJob(GENOME, share, state))
        state, passes = outcome.state, passes + outcome.passes
        assert passes == 20 * max(1, round(share * 5))
        scores.append(outcome.fitness)
        states.append(state)
    assert (scores[-1], passes) == (whole.fitness, whole.passes)
    kept = unpacked(end(trained))
    assert end(trained, states[-2]) == end(trained)
    bottom, head = trained.trained(GENOME)
    network = nn.Sequential(bottom, head).state_dict()
    assert all(torch.equal(t, kept[f"model.{name}"]) for name, t in network.items())


def end(of: TrainingFitness, state: bytes | None = None) -> bytes:
    """All that the full training of GENOME leaves, from scratch or from where it stopped."""
    _, _, fitting = of._begin(GENOME)
    if state is not None:
        fitting.resume(unpacked(state))
    fitting.run(of.optimizer.epochs)
    return pack_tensors(fitting.state(), {})


def unpacked(state: bytes) -> dict[str, Tensor]:
    return unpack_tensors(state, Path("state"))[0]


@pytest.mark.slow
def test_states_are_kept_where_they_are_wanted_and_a_share_is_its_epochs() -> None:
    assert isinstance(training(), ResumableFitness)
    assert not isinstance(DataFreeFitness(PLAIN, 0), ResumableFitness)
    assert training().advance(TrainingJob(GENOME)).state is None
    assert training().advance(TrainingJob(GENOME, 0.5)).state is not None
    part = training().advance(TrainingJob(GENOME, 0.4))
    _, _, fitting = training()._begin(GENOME)
    fitting.run(2)
    assert part.state == pack_tensors(fitting.state(), {})
    assert part.state != training().advance(TrainingJob(GENOME, 0.6)).state


@pytest.mark.slow
def test_a_genome_fares_the_same_whatever_was_trained_before() -> None:
    other = Genome.parse("c6k5-c4k3")
    first = training()
    scores = [first(GENOME), first(other)]
    assert [training()(other), training()(GENOME)] == scores[::-1]
    states = {
        end(replace(training(), seed=seed, site=site)) for seed, site in [(7, 0), (8, 0), (7, 1)]
    }
    assert len(states) == 3


@pytest.mark.slow
def test_learning_shows_and_no_validation_samples_leave_no_accuracy() -> None:
    assert training(optimizer=replace(CONFIG, epochs=40))(GENOME) > 0.6  # of chance 1/3
    assert np.isnan(replace(training(), validation=by_brightness(60).take([]))(GENOME))


@pytest.mark.parametrize("moving", [True, False], ids=["moving head", "fixed head"])
@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_a_training_that_diverges_is_a_failure(rate: float, moving: bool) -> None:
    optimizer = OptimizerConfig(learning_rate=rate, batch_size=8, epochs=3)
    spec = replace(PLAIN, head_init="random" if moving else "etf", unit=not moving)
    diverging = replace(training(optimizer=optimizer), spec=spec)
    outcome = diverging.advance(TrainingJob(GENOME, 0.9))
    assert np.isnan(outcome.fitness)
    assert outcome.error == "its training diverged"
    assert outcome.passes == 60
    assert outcome.state is None


def test_a_head_that_diverges_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trainer.run

    def overflow(self: Trainer, epochs: int) -> int:
        passes = run(self, epochs)
        with torch.no_grad():
            self._parameters[-1].fill_(torch.inf)
        return passes

    monkeypatch.setattr(Trainer, "run", overflow)
    assert training().advance(TrainingJob(GENOME)).error == "its training diverged"
