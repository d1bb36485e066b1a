"""A site's own networks: the student, and the one that it would have by itself.

What the shared head teaches is the same for all sites. So a genome's student learns it once
(`panas.training.common`), in the common folder, from the weights that the search has left. Each
site goes on from there for some steps (`OWN`, `MOST_OWN`) with its own teacher: the head that it
builds on, its log prior and its residual. Where more than `FEW_SITES` share a folder, it moves the
last layer alone, on maps that are computed once (`panas.training.last_layer`). The search's steps
and a site's own count among those that the training has in all, `training.student_steps` at least.

Privacy: a student's weights follow from public samples and what its teachers' charges cover, so
they may be shown. Where `privacy.network` is "stays" it learns from the site's own samples besides,
without noise: then it must not be. Nothing that is common to sites has seen either.
"""

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from dprbft.config.schema import RunConfig
from dprbft.methods.joined.inputs import (
    as_read,
    learnt_from,
    network_spec,
    own_as_read,
    trunk_for,
)
from dprbft.methods.joined.state import ROUND, JoinedState
from dprbft.methods.joined.student import (
    Lessons,
    answers_to,
    are_few,
    are_photographs,
    lessons_of,
    made_of_these,
    taught_to_student,
)
from dprbft.methods.joined.student_search import (
    candidate_steps,
    common_fitness,
    taught_to_candidates,
)
from dprbft.site.results.records import SearchRecord
from dprbft.site.site import Site
from panas.architecture.genome import Genome
from panas.data.facts import Facts
from panas.runtime.seeds import stream
from panas.runtime.store import Busy
from panas.training.checkpoint import SavedNetwork
from panas.training.common import CommonTraining, Weights, load, wanted
from panas.training.distillation import (
    STUDENT,
    Change,
    SoftSamples,
    distil,
    long_enough,
    moved,
    student_trainer,
)
from panas.training.last_layer import teach_last_layer
from panas.training.linear.ridge import logits
from panas.training.sgd import OptimizerConfig, fit, steps_of

OWN, MOST_OWN = 0.1, 150
"""Share of a student's steps that a site takes with its own teacher, and how many at most."""

OWN_OF_ROWS = 0.5
"""The same of a table, whose teacher at a site differs more from the shared head."""

OWN_RATE = 0.001  # of these steps, at first: the network has learnt most already
LEAST = 0.4  # of a student's steps that are common, however long the search has trained it

FEW_SITES = 10
"""Their own steps together take about twice as long as what is common to them; those of more sites
would take longer."""

LAST = OptimizerConfig(
    optimiser="adam", learning_rate=0.005, decay="cosine", batch_size=256, epochs=12
)
"""The training of a last layer alone."""

Training = Callable[[Genome], CommonTraining]


@dataclass(frozen=True)
class Steps:
    """Of a student's training, beside those of the search."""

    common: int
    own: int  # of all weights; 0 where the last layer moves alone


def steps_of_student(
    config: RunConfig, facts: Facts, inputs: int, *, behind: bool = False
) -> Steps:
    """How long a student is trained; follows from public facts.

    Args:
        config: of the run.
        facts: of its data.
        inputs: public samples, at least one.
        behind: whether its blocks come after an encoder's layers.
    """
    search = config.search
    lesson = taught_to_student(facts, inputs)
    whole = steps_of(long_enough(STUDENT, lesson, config.training.student_steps), lesson)
    searched, taught = 0, taught_to_candidates(facts, inputs, behind=behind)
    if config.privacy.mode.reads_samples and taught:
        least = candidate_steps(search, behind)
        searched = steps_of(long_enough(search.optimizer, taught, least), taught)
    own = OWN_OF_ROWS if facts.are_rows else min(OWN, MOST_OWN / whole)
    steps, f = steps_beside(searched, whole, own), config.federation
    return replace(steps, own=0) if f.clients > FEW_SITES and not f.remote else steps


def steps_beside(searched: int, whole: int, own: float = OWN) -> Steps:
    """The steps of a training of so many in all, in which a search's count.

    Args:
        searched: steps of the search's training.
        whole: steps in all.
        own: share of these that a site takes with its own teacher.
    """
    common = max(round(LEAST * whole), round((1 - own) * whole) - searched)
    return Steps(common, math.ceil(own * whole))


def student(site: Site, state: JoinedState) -> SavedNetwork | None:
    """The network of the site's genome, distilled; None without samples, or if it diverged."""
    inputs = learnt_from(site)
    if not site.config.has_networks:
        return None
    if not len(inputs):
        return _of_own_samples(site, state)
    lessons = lessons_of(site, inputs)
    training = _of_shared_head(site, state, lessons, len(inputs))
    network = _network(site, _in_common(site, training))
    steps = _steps(site, len(inputs)).own
    rng, changed = _stream(site, "student"), _changed(site, len(inputs))
    if steps:
        own = lessons.some(steps * STUDENT.batch_size, rng)
        taught = SoftSamples(own.samples, answers_to(site, state, own))
        config = _for(site, steps, len(own.z))
        if not site.facts.are_rows:
            config = replace(config, learning_rate=OWN_RATE)
        seed = int(rng.integers(2**32))
        student_trainer(
            *(network.bottom, network.head, taught),
            config=config,
            rng=rng,
            changed=changed and (changed, seed),
        ).run(config.epochs)
    else:
        maps, answers = training(network.genome).maps(), answers_to(site, state, lessons)
        teach_last_layer(network.bottom, network.head, maps, answers, config=LAST, rng=rng)
    if site.config.stays:
        _from_own_samples(site, network, _stream(site, "student, own samples"))
    return _finished(site, network)


def _of_own_samples(site: Site, state: JoinedState) -> SavedNetwork | None:
    """A network that must stay, where nothing is public: it learns what the site's teacher answers
    to its own samples, and their labels. Nothing of it is common."""
    network, rng = _network(site, {}), _stream(site, "student")
    own = replace(site.data.train, groups=None, part=None)
    if len(own):
        if site.facts.are_rows or are_few(site.facts, len(own)):
            own = made_of_these(site.facts, own, rng)
        answers = answers_to(site, state, Lessons(own, site.rows(own).z))
        config = _for(site, site.config.training.student_steps, len(own))
        distil(network.bottom, network.head, SoftSamples(own, answers), config=config, rng=rng)
    _from_own_samples(site, network, rng)
    return _finished(site, network)


def lone_network(site: Site) -> SavedNetwork | None:
    """A network of the site's genome that has learnt from labelled public samples and, without
    noise, from the site's own: it must stay. None without a genome, or if it diverged."""
    if not site.config.has_networks:
        return None  # none was searched
    weights = _in_common(site, _of_labels(site)) if len(site.public) else {}
    network = _network(site, weights)
    _from_own_samples(site, network, _stream(site, "lone network"))
    return _finished(site, network)


def _of_shared_head(site: Site, state: JoinedState, lessons: Lessons, inputs: int) -> Training:
    """How a genome's student learns the shared head's answers, the same for all sites."""
    steps, search = _steps(site, inputs).common, site.config.search
    searched = site.config.privacy.mode.reads_samples and inputs > 1
    shared = logits(state.check_joined(), lessons.z).softmax(1)
    taught = SoftSamples(lessons.samples, shared)

    def training(genome: Genome) -> CommonTraining:
        return CommonTraining(
            genome=genome,
            spec=network_spec(site),
            taught=taught,
            config=_for(site, steps, len(lessons.z)),
            seed=site.config.seed,
            device=str(site.device),
            changed=_changed(site, inputs),
            folder=site.common,
            # All else that decides a search's training decides the answers as well.
            origin=f"{search.optimizer}, {search.student_steps}" if searched else "",
            begin=(lambda: common_fitness(site, state).weights_of(genome)) if searched else None,
        )

    return training


def _steps(site: Site, inputs: int) -> Steps:
    behind = trunk_for(site) is not None
    return steps_of_student(site.config, site.facts, inputs, behind=behind)


def _changed(site: Site, inputs: int) -> Change | None:
    """How students are shown so many public samples."""
    if trunk_for(site):
        return "thinned"
    return "moved" if are_photographs(site.facts) and not are_few(site.facts, inputs) else None


def _of_labels(site: Site) -> Training:
    """How a genome's network learns the labels of public samples."""
    public = as_read(site, replace(site.public, groups=None, part=None))
    taught = SoftSamples(public, F.one_hot(public.y, public.classes).float())

    def training(genome: Genome) -> CommonTraining:
        return CommonTraining(
            genome=genome,
            spec=network_spec(site),
            taught=taught,
            config=long_enough(STUDENT, len(public), site.config.training.student_steps),
            seed=site.config.seed,
            device=str(site.device),
            folder=site.common,
        )

    return training


def _in_common(site: Site, training: Training) -> Weights:
    """The weights of the site's genome; while another process is at it, those of other genomes that
    sites will want are trained, the one that has most left first."""
    own = training(SearchRecord.read(site.home).genome)
    texts = [text for text in wanted(site.common) if text != str(own.genome)]
    others = [training(Genome.parse(text)) for text in texts]
    while own.left:
        try:
            own.go_on(wait=False)
        except Busy:
            _one_part(others, own)
    return own.weights()


def _one_part(others: list[CommonTraining], own: CommonTraining) -> None:
    """Train a part of another that no process is at; wait for one's own if there is none."""
    begun = [(each.left, each) for each in others]
    for left, each in sorted(begun, key=itemgetter(0), reverse=True):
        with suppress(Busy):
            if left:
                return each.go_on(wait=False)
    return own.go_on()


def _for(site: Site, steps: int, samples: int) -> OptimizerConfig:
    """A student's training of about so many steps."""
    in_epoch = math.ceil(samples / STUDENT.batch_size)
    epochs = max(1, round(steps / in_epoch))
    return replace(STUDENT, epochs=epochs, train_head=site.spec.head_moves)


def _network(site: Site, weights: Weights) -> SavedNetwork:
    """A network of the site's genome with these weights; untrained without any."""
    genome, spec = SearchRecord.read(site.home).genome, network_spec(site)
    rng = stream(site.config.seed, "untrained", str(genome))
    bottom, head = spec.network(genome, rng, site.device)
    if weights:
        load(bottom, head, weights)
    promise = site.config.privacy.network if site.budget.private else "unprotected"
    facts = site.facts.to_json()
    about = {"client": site.id, "round": ROUND, "network": promise, "facts": facts}
    return SavedNetwork(bottom, head, genome, spec, about)


def _stream(site: Site, purpose: str) -> np.random.Generator:
    return stream(site.config.seed, "client", site.id, purpose)


def _from_own_samples(site: Site, started: SavedNetwork, rng: np.random.Generator) -> None:
    """Train in place without noise, if there are samples; images are moved a little each time."""
    config = replace(site.config.training.warm, train_head=site.spec.head_moves)
    if not len(site.data.train):
        return
    own, seed = own_as_read(site, site.data.train), int(rng.integers(2**32))

    def each_moved(at: Tensor, step: int) -> tuple[Tensor, Tensor]:
        return moved(own.inputs(at), stream(seed, "moved", step)), own.y[at]

    batches = None if site.facts.are_rows else each_moved
    fit(started.bottom, started.head, own, config=config, rng=rng, batches=batches)


def _finished(site: Site, trained: SavedNetwork) -> SavedNetwork | None:
    """The whole network, to predict with; None if its training diverged: the site does without."""
    bottom, head, kept = trained.bottom.cpu().eval(), trained.head.cpu().eval(), trunk_for(site)
    if not all(p.isfinite().all() for m in (bottom, head) for p in m.parameters()):
        return None
    trunk = copy.deepcopy(kept.trunk).cpu() if kept else None
    return replace(trained, bottom=bottom, head=head, trunk=trunk)
