"""How fast this machine is now: short trainings, in as many processes at once as a run will use.

So what else the machine does slows both alike. The time of a training step is taken as

    seconds = step + sample * batch

since steps on few samples cost as much as their overhead. Networks of the search's space differ in
size. A few are measured that a search could begin with, and their spread says how sure a forecast
can be. Searches like larger networks: those that they choose took 1.4 times as long as the mean one
(ten runs), about as long as the slowest third of what is measured.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import torch
from torch import nn

from dprbft.methods.joined.inputs import foreseen
from dprbft.run.directory import OpenRun
from dprbft.run.view import RunView
from dprbft.site.directory import read_site
from dprbft.site.embeddings import encoder_file
from dprbft.site.search import search_space
from dprbft.site.site import spec_of
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.data.encoder import EncoderFacts
from panas.data.samples import Samples
from panas.evolution.surrogate import prior_of
from panas.features.encoders.files import deferred
from panas.features.map import FeatureMap
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.runtime.pool import Pool
from panas.runtime.seeds import one_thread, stream, torch_generator
from panas.training.any_model import train_model_private
from panas.training.distillation import pictures
from panas.training.sgd import OptimizerConfig, fit

GENOMES = 6  # that are measured
FEW, MANY = 8, 32  # samples of the batches that are timed
STEPS = 4  # of each
PICTURES = 8  # that an encoder is timed with
REFERENCE = 0.041
"""Seconds of `_reference` on the machine whose constants the forecasts have: two cores, idle."""
REFERENCE_STEPS = 60


@dataclass(frozen=True)
class Line:
    """Seconds of a step on so many samples."""

    step: float
    sample: float

    def __call__(self, batch: float) -> float:
        """Seconds of one step with a batch of this size."""
        return self.step + self.sample * batch

    def times(self, factor: float) -> "Line":
        """The same of what takes so many times as long."""
        return Line(factor * self.step, factor * self.sample)


@dataclass(frozen=True)
class Pace:
    """Seconds of what a run does most, on this machine as it is now."""

    plain: Line  # a training step of a network of the search's space
    private: Line  # the same of DP-SGD
    picture: float  # a picture made of two, and a teacher's answer to it
    slowness: float  # of all else, beside the machine of `REFERENCE`
    spread: tuple[float, float] = (1.0, 1.0)  # of networks' times, over their mean
    liked: float = 1.0  # time of the network that a search likes, over their mean
    encoding: float = 0.0  # of a picture by the encoder; 0 without one


@dataclass(frozen=True)
class _Work:
    spec: NetworkSpec
    phi: FeatureMap | None
    device: str
    is_private: bool
    seed: int
    encoder: tuple[str, EncoderFacts] | None = None  # its file
    pictures: Samples | None = None  # that it is timed with


def measured(run: OpenRun, *, workers: int, device: str) -> Pace:
    """The pace of so many processes at once; it takes a second or two.

    Args:
        run: that is greeted: spec and feature map.
        workers: processes, at least 1.
        device: "cpu" or "cuda".
    """
    config, view, rng = run.config, run.view, stream(run.config.seed, "forecast")
    facts, (encoder, pictures) = view.facts, _to_encode(view)
    first = foreseen(config, facts, encoder[0]) if encoder else None
    spec = first.spec if first else spec_of(config, facts)
    space = search_space(config, facts, None, first)
    # An encoder's pace is not that of a map.
    phi = view.feature_map if facts.are_pictures and not facts.encoder else None
    work = _Work(spec, phi, device, config.some_private, config.seed, encoder, pictures)
    count, prior = max(GENOMES, 2 * workers), prior_of(spec.shape)
    drawn = [random_genome(space, rng) for _ in range(config.search.evolution.seeding * count)]
    genomes = sorted(drawn, key=prior, reverse=True)[:count]  # as a search begins
    with Pool(workers, work, preload=("dprbft.methods.serve",)) as pool:
        for _ in pool.map(_ready, range(workers)):
            pass  # what comes up once
        results = [result for _, result in pool.map(_measure, genomes)]
    return _mean(results)


def _to_encode(view: RunView) -> tuple[tuple[str, EncoderFacts], Samples] | tuple[None, None]:
    """The encoder of a site on this machine and a few of its pictures; none without one."""
    paths = next((paths for paths in view.sites if paths.is_present), None)
    if view.facts.encoder is None or paths is None:
        return None, None
    file = encoder_file(paths.folder, read_site(paths.folder))
    few = view.site(paths.index).train
    return (file, view.facts.encoder), few.take(range(min(PICTURES, len(few))))


def _ready(work: _Work, number: int) -> None:
    _reference()


def _mean(results: Sequence[Pace]) -> Pace:
    def line(name: str) -> Line:
        lines = [getattr(r, name) for r in results]
        return Line(fmean(x.step for x in lines), fmean(x.sample for x in lines))

    plain = line("plain")
    typical = plain(MANY)
    times = sorted(r.plain(MANY) / typical for r in results)
    return Pace(
        plain,
        line("private"),
        median(r.picture for r in results),
        median(r.slowness for r in results),
        (times[0], times[-1]),
        fmean(times[2 * len(times) // 3 :]),
        median(r.encoding for r in results),
    )


def _measure(work: _Work, genome: Genome) -> Pace:
    with one_thread():
        slowness = _reference() / REFERENCE
        plain = _line(lambda n: _plain(work, genome, n))
        private = _line(lambda n: _private(work, genome, n)) if work.is_private else plain
        return Pace(plain, private, _picture(work), slowness, encoding=_encoding(work))


def _line(seconds: Callable[[int], float]) -> Line:
    few, many = seconds(FEW), seconds(MANY)
    sample = max(0.0, many - few) / (MANY - FEW)
    return Line(max(many - MANY * sample, 0.0), sample)


def _blank(spec: NetworkSpec, n: int) -> Samples:
    return Samples(torch.zeros(n, *spec.shape), torch.arange(n) % spec.classes, spec.classes)


def _plain(work: _Work, genome: Genome, batch: int) -> float:
    rng = stream(work.seed, "pace", str(genome))
    bottom, head = work.spec.network(genome, rng, work.device)
    config = OptimizerConfig(optimiser="adam", batch_size=batch, epochs=1)
    fit(bottom, head, _blank(work.spec, batch), config=config, rng=rng)
    samples = _blank(work.spec, STEPS * batch)
    return _timed(lambda: fit(bottom, head, samples, config=config, rng=rng)) / STEPS


def _private(work: _Work, genome: Genome, batch: int) -> float:
    rng = stream(work.seed, "pace", str(genome))
    bottom, head = work.spec.network(genome, rng, work.device)
    head.requires_grad_(work.spec.head_moves)
    model, samples = nn.Sequential(bottom, head), _blank(work.spec, batch)
    noise = ReproducibleNoise(rng)

    def train(steps: int) -> None:
        plan = Plan(
            samples=batch,
            batch_size=batch,
            clip=1.0,
            noise_multiplier=1.0,
            epochs=1,
            rounds=1,
            steps_a_round=steps,
        )
        train_model_private(model, samples, plan=plan, config=OptimizerConfig(), noise=noise)

    train(1)
    return _timed(lambda: train(STEPS)) / STEPS


def _picture(work: _Work) -> float:
    if work.phi is None:
        return 0.0
    phi, rng, samples = work.phi, stream(work.seed, "pace", "pictures"), _blank(work.spec, MANY)

    def ask() -> None:
        for _ in range(STEPS):
            phi(pictures(samples, torch.arange(MANY), rng))

    ask()
    return _timed(ask) / STEPS / MANY


def _encoding(work: _Work) -> float:
    """Seconds of a picture by the encoder, with its reading."""
    if work.encoder is None or not work.pictures:
        return 0.0
    (file, facts), pictures = work.encoder, work.pictures
    encoder = deferred(file, facts, work.device)
    encoder.of(pictures.take([0]))  # what comes up once

    def read() -> None:
        encoder.of(pictures)

    return _timed(read) / len(pictures)


def _reference() -> float:
    """Seconds of a small training that is the same in all runs."""
    generator = torch_generator(stream(0, "reference"))
    x = torch.randn(32, 1, 8, 8, generator=generator)
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def train() -> None:
        for _ in range(REFERENCE_STEPS):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    return _timed(train)


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
