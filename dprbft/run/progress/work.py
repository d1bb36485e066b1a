"""What a site does in each stage, in seconds at some pace.

Training steps are counted as the stages count them. All else (drawings, forests, accounting, the
attacks of an audit) has the seconds that it took on an idle machine of two cores, times its
slowness now.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from dprbft.config.schema import RunConfig
from dprbft.methods.joined.networks import steps_of_student
from dprbft.methods.joined.student import MANY, PICTURES, are_few
from dprbft.methods.joined.student_search import MADE, candidate_steps, taught_to_candidates
from dprbft.methods.joined.tuning import FEWEST, JUDGES, NEAR, SIZE, SKEWS
from dprbft.run.progress.pace import Pace
from panas.data.facts import Facts
from panas.evolution.records import EvolutionConfig
from panas.training.distillation import STUDENT, long_enough
from panas.training.linear.rules import joined_recipe
from panas.training.sgd import OptimizerConfig, steps_of

NOISE_STEPS, NOISE_BATCH = 60, 32  # of a genome that is scored on noise

# Seconds on the machine of `pace.REFERENCE`.
AUDIT = 1.5  # until the processes of an audit have come up
GAUSSIAN_PROCESS = 1.5  # until its libraries have
TRIAL = 0.12  # of the surrogate, beside what is tried
RESIDUAL_STEP = 3e-4  # of a linear residual's DP-SGD
CALIBRATION = 0.3  # of the least noise at one batch size
JOIN, DRAWN, TUNED = 0.2, 0.6, 0.2  # of each site, beside trainings
REPORT, ALONE, TABLE = 0.5, 0.4, 0.5  # what a site measures, its rival, and a table's models
LATER = 1.25  # times as long as first candidates take all of a search, which grow (ten runs)
SCORED = 0.03  # of each candidate
ROUND = 0.1  # of a round, beside training
MEMBERSHIP, ATTACK = 0.4, 1.3  # on a network, and on what a site released
DECODER_STEP = 1.5e-3  # on pictures of 8 x 8
TRUNK = 3.0  # of an encoder's time: its first layers read a public picture and its mirror image
DECODED = 32  # pictures of a decoder's step
GENOMES = 3  # that sites of a table choose among them all, about; sites of pictures choose one


@dataclass(frozen=True)
class Data:
    """Sizes of what sites learn from."""

    facts: Facts
    public: int  # samples with labels
    unlabelled: int  # and without
    own: float  # training samples of a site, in the mean
    to_encode: float = 0.0  # pictures of a site, in the mean, whose vectors are not on disk

    @property
    def inputs(self) -> int:
        """Samples that everybody may see."""
        return self.public + self.unlabelled

    @property
    def behind(self) -> bool:
        """Whether networks begin with an encoder's layers, as those of most encoders do."""
        return self.facts.encoder is not None

    @property
    def made(self) -> tuple[int, int]:
        """Pictures made of few public ones that an encoder reads, for candidates and students."""
        few = self.behind and self.inputs and are_few(self.facts, self.inputs, behind=True)
        return (sum(MADE), MANY) if few else (0, 0)


@dataclass(frozen=True)
class Cost:
    """Seconds of a stage."""

    each: float = 0.0  # of one process, for every site
    common: tuple[tuple[int, float], ...] = ()
    """Once for all sites: groups of so many jobs of so many seconds. The processes share a group
    out, and begin the next one when it is through."""
    once: float = 0.0  # of all processes, before any site


Work = Callable[[RunConfig, Data, Pace, Pace], Mapping[str, Cost]]
"""Costs of the stages, at the mean pace of networks, and at that of the network that is chosen."""


def joined(config: RunConfig, data: Data, pace: Pace, chosen: Pace) -> dict[str, Cost]:
    """Where sites join before they search.

    Args:
        config: of the run.
        data: sizes.
        pace: of networks in the mean.
        chosen: of the network that the search chooses.
    """
    s, reads = pace.slowness, config.privacy.mode.reads_samples
    candidates = candidates_of(config)
    if reads:
        taught = taught_to_candidates(data.facts, data.inputs, behind=data.behind)
        least = candidate_steps(config.search, data.behind)
        short = long_enough(config.search.optimizer, taught, least)
        one = LATER * _training(short, taught, pace)
        groups = stretches(config.search.evolution, shared=config.federation.clients > 1)
        common = tuple((n, share * one + SCORED * s) for n, share in groups)
        read = data.made[0] + TRUNK * data.inputs * data.behind
        search = Cost(each=DRAWN * s, common=common, once=read * pace.encoding)
    else:
        one = NOISE_STEPS * pace.plain(NOISE_BATCH)
        search = Cost(each=DRAWN * s + candidates * one)
    train = s * (REPORT + CALIBRATION + (TABLE if data.facts.columns else 0.0))
    train += ALONE * s * config.federation.baselines
    networks = _networks(config, data, chosen)
    is_sum = config.secure_sum
    return {
        "join": Cost(each=JOIN * s + data.to_encode * pace.encoding, once=JOIN * s),
        "search": search,
        "tune": _rehearsals(config, data, s),
        "train": replace(networks, each=train + networks.each),
        "audit": Cost(each=s * MEMBERSHIP if is_sum else _attacks(config, data, s), once=AUDIT * s),
    }


def _networks(config: RunConfig, data: Data, chosen: Pace) -> Cost:
    """Students, and where networks stay those that sites would have by themselves."""
    if not config.has_networks:
        return Cost()
    if not data.inputs:
        return Cost(each=_of_own_samples(config, data, chosen))
    kinds = 1 if data.facts.are_pictures else min(config.federation.clients, GENOMES)
    steps = steps_of_student(config, data.facts, data.inputs, behind=data.behind)
    seconds = chosen.plain(STUDENT.batch_size)
    common, each = [(kinds, steps.common * seconds)], steps.own * seconds
    if config.stays:
        lone = config.federation.baselines
        each += (1 + lone) * _training(config.training.warm, data.own, chosen)
        if lone and data.public:
            labelled = long_enough(STUDENT, data.public, config.training.student_steps)
            common.append((kinds, _training(labelled, data.public, chosen)))
    few = are_few(data.facts, data.inputs, behind=data.behind)
    made = PICTURES * chosen.picture if few else 0.0
    made += data.made[1] * chosen.encoding
    return Cost(each=each, common=tuple(common), once=made)


def _of_own_samples(config: RunConfig, data: Data, chosen: Pace) -> float:
    """Seconds of networks that stay, where nothing is public."""
    seconds = config.training.student_steps * chosen.plain(STUDENT.batch_size)
    labels = _training(config.training.warm, data.own, chosen)
    return seconds + (1 + config.federation.baselines) * labels


def _rehearsals(config: RunConfig, data: Data, s: float) -> Cost:
    """The DP-SGD settings of a residual are tuned once for all; by rule they take no time."""
    trials = config.tuning.config.trials
    public = data.public if data.public >= FEWEST else data.inputs
    units = SIZE * public
    fits = units / NEAR <= data.own <= units * NEAR
    given = config.stays or config.training.noise_multiplier is not None or not config.some_private
    if given or public < FEWEST or not (trials and fits):
        return Cost(each=0.02 * s)
    recipe = joined_recipe(round(units), config.privacy.epsilon)
    fit = recipe.epochs * max(1.0, units / recipe.batch_size) * RESIDUAL_STEP
    rehearsed = trials * (TRIAL + len(SKEWS) * fit) + 2 * JUDGES * fit + CALIBRATION
    return Cost(each=TUNED * s, once=s * (GAUSSIAN_PROCESS + rehearsed))


def rounds(config: RunConfig, data: Data, pace: Pace, chosen: Pace) -> dict[str, Cost]:
    """Where sites train in rounds.

    Args:
        config: of the run.
        data: sizes.
        pace: of networks in the mean.
        chosen: of the network that the search chooses.
    """
    s, t, f, mode = pace.slowness, config.training, config.federation, config.privacy.mode
    looked_at = 0.0
    if mode.reads_samples:  # the public part as it is, and as many as the site has, drawn of it
        looked_at = 0.4 * data.public + data.own if mode.needs_public else data.own
    one = NOISE_STEPS * pace.plain(NOISE_BATCH)
    if looked_at:
        whole = LATER * _training(config.search.optimizer, looked_at, pace)
        trained = sum(n * share for n, share in stretches(config.search.evolution))
        one = whole * trained / candidates_of(config)
    batches = config.tuning.space.batch_sizes
    trials = config.tuning.config.trials
    tunes = mode.reads_samples and config.some_private and t.noise_multiplier is None
    trials = trials if tunes else 0
    sizes = batches if trials else (t.optimizer.batch_size,)
    local = f.rounds * f.participation * fmean(_local(config, data, n, chosen) for n in sizes)
    warm = _training(t.warm, data.public, chosen) if f.warm_start != "none" else 0.0
    tune = trials * (TRIAL * s + local) + len(batches) * CALIBRATION * s + 0.4 * warm
    train = warm + local + s * (f.rounds * ROUND + REPORT)
    train += 2 * CALIBRATION * s if config.some_private else 0.0
    attacks = _attacks(config, data, s) if config.sent else MEMBERSHIP * s
    if config.sent and "shadow" in config.audit.threats:
        shadow = OptimizerConfig(epochs=config.audit.decoder_epochs)
        attacks += _training(shadow, data.public, chosen)
    return {
        "search": Cost(each=candidates_of(config) * (one + SCORED * s) + DRAWN * s),
        "tune": Cost(each=tune + TUNED * s, once=GAUSSIAN_PROCESS * s) if trials else Cost(0.02),
        "train": Cost(each=train),
        "audit": Cost(each=attacks, once=AUDIT * s),
    }


STAGES_OF: Mapping[str, Work] = {"joined": joined, "rounds": rounds}
"""Costs by stage, for each family that searches networks."""


def candidates_of(config: RunConfig) -> int:
    """Networks that a search scores, at most."""
    evolution = config.search.evolution
    return evolution.first + evolution.generations * evolution.children


def stretches(evolution: EvolutionConfig, *, shared: bool = False) -> list[tuple[int, float]]:
    """Candidates and the share of a training that they get, group after group, as slower ones stop.

    Where there are rungs, the first candidate of all is trained to the end before the others begin.

    Args:
        evolution: sizes and rungs.
        shared: whether searches share their candidates out: then others begin beside the first.
    """
    result, rungs = list[tuple[int, float]](), (*evolution.rungs, 1.0)
    for generation in range(evolution.generations + 1):
        going, before = evolution.children if generation else evolution.first, 0.0
        beside = 0
        if not generation and evolution.rungs:
            going -= 1
            if shared:  # the first one counts as so many jobs of the first rung
                beside = round(1 / rungs[0])
            else:
                result.append((1, 1.0))
        for rung in rungs:
            result.append((going + beside, rung - before))
            going, before, beside = math.ceil(evolution.keep * going), rung, 0
    return [(n, share) for n, share in result if n]


def _training(config: OptimizerConfig, samples: float, pace: Pace) -> float:
    """Seconds of a training without noise."""
    n = max(1, round(samples))
    steps = steps_of(config, n)
    return steps * pace.plain(config.epochs * n / steps)


def _local(config: RunConfig, data: Data, batch: int, pace: Pace) -> float:
    """Seconds of a round of a site's training, with so many samples a step."""
    epochs, own = config.training.optimizer.epochs, max(1.0, data.own)
    batch = min(batch, round(own))
    if not config.some_private:
        return _training(config.training.optimizer, own, pace)
    return math.ceil(epochs * own / batch) * pace.private(batch)


def _attacks(config: RunConfig, data: Data, s: float) -> float:
    """Seconds of the audit of a site that has sent a release."""
    c, h, w = data.facts.shape
    epochs, known = config.audit.decoder_epochs, data.public
    steps = epochs * math.ceil(known / DECODED) * (1 + len(config.audit.threats) / 2)
    area = c * h * w / 64
    return s * (MEMBERSHIP + ATTACK * max(1.0, area / 4) + steps * DECODER_STEP * area)
