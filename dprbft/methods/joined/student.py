"""A site's own evolved network: the student of what it has joined and adapted.

Its teacher is the shared head with the site's log prior and residual, asked about public samples:
post-processing of what the ledger covers. So the network's weights cost nothing more, and may be
shown. Where `privacy.network` is "stays" it learns from the site's own samples besides, without
noise: then it must not be.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dprbft.methods.joined.residual import public_heads
from dprbft.methods.joined.state import ROUND, JoinedState
from dprbft.paths import embeddings_folder
from dprbft.site.directory import read_site
from dprbft.site.embeddings import site_encoder
from dprbft.site.results.records import SearchRecord
from dprbft.site.site import Site
from panas.data.facts import Facts
from panas.data.samples import Samples, concat
from panas.features.encoders.cache import with_embeddings
from panas.runtime.seeds import stream, torch_generator
from panas.training.checkpoint import SavedNetwork
from panas.training.distillation import (
    STUDENT,
    SoftSamples,
    distil,
    long_enough,
    made_of,
    moved,
)
from panas.training.linear.predictor import Candidates
from panas.training.sgd import OptimizerConfig, fit

MANY = 1000
"""Images from which on a student learns nothing of shifted ones, nor of pictures made of two."""


def student(site: Site, state: JoinedState) -> SavedNetwork | None:
    """The network of the site's genome, distilled; None without samples, or if it diverged."""
    inputs = learnt_from(site)
    if not len(inputs):
        return None
    rng = stream(site.config.seed, "client", site.id, "student")
    started, ask = _untrained(site, torch_generator(rng)), teacher(site, state)
    taught = SoftSamples(inputs, ask(inputs))
    few = are_few(site.facts, len(inputs))
    if few and site.facts.encoder:  # to encode pictures anew at each step would take hours
        taught, few = beside_made(site, taught, ask), False
    distil(
        started.bottom,
        started.head,
        taught,
        config=_training(site, len(inputs)),
        rng=rng,
        teacher=ask if few else None,
    )
    if site.config.stays:
        _from_own_samples(site, started, rng)
    return _if_finite(started)


def lone_network(site: Site) -> SavedNetwork | None:
    """A network of the site's genome that has learnt from labelled public samples and, without
    noise, from the site's own: it must stay. None without a genome, or if it diverged."""
    if not len(learnt_from(site)):
        return None  # none was searched
    rng = stream(site.config.seed, "client", site.id, "lone network")
    started = _untrained(site, torch_generator(rng))
    if len(site.public):
        config = _training(site, len(site.public))
        fit(started.bottom, started.head, site.public, config=config, rng=rng)
    _from_own_samples(site, started, rng)
    return _if_finite(started)


def _training(site: Site, samples: int) -> OptimizerConfig:
    config = long_enough(STUDENT, samples, site.config.training.student_steps)
    return replace(config, train_head=site.spec.head_moves)


def _untrained(site: Site, generator: torch.Generator) -> SavedNetwork:
    genome, spec = SearchRecord.read(site.home).genome, site.spec
    bottom = spec.bottom(genome, generator).to(site.device)
    head = spec.head(generator).to(site.device)
    promise = site.config.privacy.network if site.budget.private else "unprotected"
    about = {"client": site.id, "round": ROUND, "network": promise}
    return SavedNetwork(bottom, head, genome, spec, about | {"facts": site.facts.to_json()})


def _from_own_samples(site: Site, started: SavedNetwork, rng: np.random.Generator) -> None:
    """Train in place without noise, if there are samples; images are moved a little each time."""
    config = replace(site.config.training.warm, train_head=site.spec.head_moves)
    own, seed = site.data.train, int(rng.integers(2**32))
    if not len(own):
        return

    def each_moved(at: Tensor, step: int) -> tuple[Tensor, Tensor]:
        return moved(own.inputs(at), stream(seed, "moved", step)), own.y[at]

    batches = each_moved if site.facts.are_pictures else None
    fit(started.bottom, started.head, own, config=config, rng=rng, batches=batches)


def _if_finite(trained: SavedNetwork) -> SavedNetwork | None:
    """The network, to predict with; None if its training diverged: the site does without it."""
    modules = (trained.bottom, trained.head)
    if not all(p.isfinite().all() for m in modules for p in m.parameters()):
        return None
    return replace(trained, bottom=trained.bottom.cpu().eval(), head=trained.head.cpu().eval())


def learnt_from(site: Site) -> Samples:
    """Public samples, whose labels are not looked at, and those without any."""
    parts = [replace(part, groups=None, part=None) for part in (site.public, site.unlabelled)]
    return concat([part for part in parts if len(part)] or parts[:1])


Asked = Samples | Float[Tensor, "n c h w"]
"""Samples, or network inputs in [-1, 1]."""

AnyTeacher = Callable[[Asked], Float[Tensor, "n classes"]]
"""Probabilities that a teacher gives them."""


def teacher(site: Site, state: JoinedState) -> AnyTeacher:
    """The site's own protected predictor: what it answers to public samples."""
    candidates = Candidates(
        phi=site.phi,
        heads={"shared": state.check_joined(), **public_heads(site)},
        log_prior=state.log_prior,
        residual=state.linear(),
        over=state.over,
    )

    def answers(x: Asked) -> Float[Tensor, "n classes"]:
        values = candidates.logits(x)
        if "residual" in values:
            return values["residual"].softmax(1)
        return (values["shared"] + state.log_prior).softmax(1)

    return answers


def beside_made(site: Site, taught: SoftSamples, ask: AnyTeacher) -> SoftSamples:
    """Samples that are taught, and pictures made of two of them, the same for all sites.

    Args:
        site: whose student it is.
        taught: public samples, and what the teacher answers to them.
        ask: the teacher.
    """
    rng = stream(site.config.seed, "student", "made")
    inputs = taught.samples
    made = made_of(inputs, MANY, teacher=encoding_once(site, ask), rng=rng)
    if inputs.x.dtype != torch.uint8:
        made = replace(made, samples=replace(made.samples, x=made.samples.inputs()))
    both = concat([replace(part, embeddings=None, files=None) for part in (inputs, made.samples)])
    return SoftSamples(both, torch.cat([taught.targets, made.targets]))


def encoding_once(site: Site, ask: AnyTeacher) -> AnyTeacher:
    """The teacher, for which each made picture is encoded once for all sites on this machine.

    Privacy: made pictures are of public samples; so the folder may be a common one.
    """
    if site.facts.encoder is None:
        return ask
    encoder = site_encoder(site.paths.folder, read_site(site.paths.folder), site.facts.encoder)

    def answers(x: Asked) -> Float[Tensor, "n classes"]:
        assert isinstance(x, Tensor)
        made = Samples(x.float(), torch.zeros(len(x), dtype=torch.int64), site.facts.classes)
        return ask(with_embeddings(made, encoder, embeddings_folder(site.common)))

    return answers


def shared_teacher(site: Site, state: JoinedState) -> AnyTeacher:
    """What the shared head answers to public samples: the same for all sites."""
    shared = state.check_joined()
    heads = {"shared": shared}
    candidates = Candidates(phi=site.phi, heads=heads, log_prior=torch.zeros(len(shared)))
    return lambda x: candidates.logits(x)["shared"].softmax(1)


def are_few(facts: Facts, inputs: int) -> bool:
    """Whether so many samples are images, and too few to teach a student by themselves."""
    return facts.are_pictures and inputs < MANY
