"""How long a run will take: sample-passes that its stages plan, at a pace measured on the spot.

It is a forecast: networks differ in size, and nobody knows beforehand which a search will like.
While the run goes on, what has been done corrects it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch

from dprbft.config.schema import RunConfig
from dprbft.methods.joined.student_search import taught_to_candidates
from dprbft.run.directory import OpenRun, chosen
from dprbft.run.sites.known import FILES
from dprbft.site.search import search_space
from dprbft.site.site import spec_of
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.evolution.records import EvolutionConfig
from panas.runtime.seeds import one_thread, stream, torch_generator
from panas.training.distillation import STUDENT, long_enough
from panas.training.sgd import OptimizerConfig, fit

START = 3.0  # seconds in which a stage's processes come up
NOISE_PASSES = 64  # of a genome that is scored on noise
MEASURED, GENOMES = 128, 2  # samples, and genomes of the search's space, that the pace is taken on
MOST_SITES = 5  # whose samples are counted; the others are taken to have as many


@dataclass(frozen=True)
class Forecast:
    """Seconds that each stage to come will take."""

    seconds: Mapping[str, float]
    serve_all: frozenset[str] = frozenset()  # stages that are through once one site is, or nearly

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())

    def left(self, stage: str, share: float, spent: float) -> float:
        """Seconds that are left; what was done tells how right the forecast is.

        Args:
            stage: under way, one of `seconds`.
            share: of it that is done, in [0, 1].
            spent: seconds since the first stage began.
        """
        names = list(self.seconds)
        at = names.index(stage)
        done = sum(self.seconds[n] for n in names[:at]) + share * self.seconds[stage]
        # As if a tenth had gone as forecast, so that the first steps do not say too much.
        trusted = self.total / 10
        return (self.total - done) * (spent + trusted) / (done + trusted)


def forecast(
    run: OpenRun,
    stages: Sequence[str],
    *,
    workers: int,
    device: str,
    clients: Sequence[int] | None = None,
) -> Forecast:
    """The seconds of stages to come, of those that leave a site anything to do.

    Args:
        run: its configuration and sites.
        stages: to come, in order.
        workers: processes of a stage, at least 1.
        device: "cpu" or "cuda", on which the pace is measured.
        clients: numbers of the sites that search or tune, whose samples are counted; None: all.
    """
    passes_of = PASSES.get(run.config.federation.family.name)
    if passes_of is None:
        return Forecast({})  # their networks are not those of the search's space
    view = run.view
    sites = [view.sites[i] for i in chosen(run.config, clients) if view.sites[i].is_present]
    todo = {
        stage: [s for s in sites if not (stage in FILES and FILES[stage](s.home).exists())]
        for stage in stages
    }
    if not any(todo.values()):
        return Forecast({})
    counts = {
        stage: min(1, len(left)) if run.config.serves_all(stage) else len(left)
        for stage, left in todo.items()
    }
    own = fmean(len(view.site(site.index).train) for site in sites[:MOST_SITES])
    public = len(view.public) + len(view.unlabelled)
    passes = passes_of(run.config, view.facts, public, own)
    with one_thread():
        pace = seconds_a_pass(run, device)
    return Forecast(
        {
            stage: START + pace * passes[stage] * _turns(stage, count, workers)
            for stage, count in counts.items()
            if count
        },
        frozenset(stage for stage in counts if run.config.serves_all(stage)),
    )


def _turns(stage: str, sites: int, workers: int) -> float:
    """How many sites' work comes one after the other; few sites share the workers out."""
    alone = min(workers, sites)
    return sites / alone / (workers // alone if stage in FILES else 1)


def _round_passes(config: RunConfig, facts: Facts, public: int, own: float) -> dict[str, float]:
    """Sample-passes of one site in each stage, with so many public and own training samples."""
    t, f, mode = config.training, config.federation, config.privacy.mode
    looked_at = public if mode.needs_public else own if mode.reads_samples else 0
    tunes = mode.reads_samples and t.noise_multiplier is None
    warm = t.warm.epochs * public if f.warm_start != "none" else 0
    rounds = f.rounds * f.participation
    local = t.optimizer.epochs * rounds
    one = config.search.optimizer.epochs * looked_at * _trained_share(config.search.evolution)
    trials = config.tuning.config.trials if tunes else 0
    attacks = 1 + len(config.audit.threats)
    return {
        "search": _candidates(config) * (one or NOISE_PASSES),
        "tune": trials * local * looked_at + (warm if trials else 0),
        "train": local * own + warm,
        "audit": attacks * config.audit.decoder_epochs * max(public, config.audit.samples),
    }


def _joined_passes(config: RunConfig, facts: Facts, inputs: int, own: float) -> dict[str, float]:
    """The same where sites join before they search: heads on the common map take next to none."""
    looked_at = taught_to_candidates(facts, inputs) if config.privacy.mode.reads_samples else 0
    share = _trained_share(config.search.evolution)
    short = long_enough(config.search.optimizer, looked_at, config.search.student_steps)
    one = short.epochs * looked_at * share or NOISE_PASSES
    train: float = long_enough(STUDENT, inputs, config.training.student_steps).epochs * inputs
    if config.stays and inputs:
        networks = 2 if config.federation.baselines else 1  # the rival alone has one, too
        train = networks * (train + config.training.warm.epochs * own)
    return {
        "join": own,
        "search": _candidates(config) * one,
        "tune": own,
        "train": train,
        "audit": config.audit.decoder_epochs * max(inputs, config.audit.samples),
    }


PASSES = {"joined": _joined_passes, "rounds": _round_passes}
"""Sample-passes by stage, for each family that searches networks."""


def _candidates(config: RunConfig) -> int:
    evolution = config.search.evolution
    return evolution.first + evolution.generations * evolution.children


def _trained_share(evolution: EvolutionConfig) -> float:
    """Share of a full training that a candidate gets on average, as the slower ones stop."""
    share, going, before = 0.0, 1.0, 0.0
    for rung in (*evolution.rungs, 1.0):
        share += going * (rung - before)
        going, before = going * evolution.keep, rung
    return share


def seconds_a_pass(run: OpenRun, device: str) -> float:
    """Seconds in which one sample goes forward and backward through a network of the space."""
    spec = spec_of(run.config, run.view.facts)
    space, rng = search_space(run.config, spec, None), stream(run.config.seed, "forecast")
    config = replace(run.config.search.optimizer, epochs=1)
    return fmean(_timed(space, spec, config, rng, device) for _ in range(GENOMES))


def _timed(
    space: SearchSpace,
    spec: NetworkSpec,
    config: OptimizerConfig,
    rng: np.random.Generator,
    device: str,
) -> float:
    bottom = spec.bottom(random_genome(space, rng), torch_generator(rng)).to(device)
    head = spec.head(torch_generator(rng)).to(device)
    y = torch.arange(MEASURED) % spec.classes
    blank = Samples(torch.zeros(MEASURED, *spec.shape), y, spec.classes)
    fit(bottom, head, blank.take(range(8)), config=config, rng=rng)  # what comes up once
    began = time.perf_counter()
    fit(bottom, head, blank, config=config, rng=rng)
    return (time.perf_counter() - began) / MEASURED
