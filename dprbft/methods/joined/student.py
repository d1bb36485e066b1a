"""What a site's network, its student, learns: public samples, and what teachers answer to them.

The site's teacher is the head that it builds on with its log prior and residual; the shared head by
itself teaches what is the same for all sites. Either answers rows of the common map, which are
computed once. Where images are few, pictures are made of two of them each, once for all sites.

Of a table rows are made of public ones (`panas.training.made_rows`), and the models of public rows
teach, too (`rows_teacher`).

Privacy: answers to public samples are post-processing of what the ledger covers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dprbft.methods.joined.inputs import as_read, trunk_for, without_embeddings
from dprbft.methods.joined.residual import head_of, public_heads
from dprbft.methods.joined.state import JoinedState
from dprbft.paths import embeddings_folder
from dprbft.site.directory import read_site
from dprbft.site.embeddings import site_encoder
from dprbft.site.site import Site
from panas.data.facts import Facts
from panas.data.samples import Samples, concat, digest
from panas.features.encoders.cache import with_embeddings
from panas.runtime.seeds import stream
from panas.runtime.store import exclusive, read_tensors, write_tensors
from panas.training.distillation import Teacher, pictures_of_two
from panas.training.linear.predictor import Candidates, weighed
from panas.training.linear.public_models import public_models
from panas.training.linear.residual import residual_logits
from panas.training.linear.ridge import logits
from panas.training.made_rows import Layout, rows_of_rows

MANY = 1000
"""Images from which on a student learns nothing of pictures made of two, nor, unless they are in
colour, of shifted ones."""

MANY_BEHIND = 250
"""The same of images that a trunk reads: 560 of CIFAR-10 teach 3 points more than 1,000 made of
them, 250 as much, 100 teach 3 less."""

PICTURES = 4000
"""Made of two where images are few; a student of 4,000 steps sees each of them 32 times."""


ROWS = 4000
"""Rows, made of public ones, that a student of a table learns from."""


@dataclass(frozen=True)
class Lessons:
    """Public samples, and their rows of the common map, for teachers to answer."""

    samples: Samples
    z: Float[Tensor, "n d"]

    def some(self, n: int, rng: np.random.Generator) -> "Lessons":
        """n of them, drawn without replacement; all where they are fewer."""
        at = torch.from_numpy(rng.permutation(len(self.samples))[:n])
        return Lessons(self.samples.take(at), self.z[at])


def lessons_of(site: Site, inputs: Samples) -> Lessons:
    """What students learn: the same at all sites.

    Args:
        site: whose common folder keeps what is made.
        inputs: at least one public sample.
    """
    few = are_few(site.facts, len(inputs), behind=trunk_for(site) is not None)
    if not (site.facts.are_rows or few):
        return _with_mirrored(site, inputs, site.rows(inputs).z)
    path = site.common / f"made-{digest(inputs)[:32]}.safetensors"
    with exclusive(path):
        if not path.is_file():
            rng = stream(site.config.seed, "students", "pictures")
            made = made_of_these(site.facts, inputs, rng)
            write_tensors(path, {"x": made.x, "z": site.rows(in_common(site, made)).z}, {})
        kept, _ = read_tensors(path)
    x = kept["x"]
    made = Samples(x, torch.zeros(len(x), dtype=torch.int64), inputs.classes)
    return _with_mirrored(site, made, kept["z"])


def _with_mirrored(site: Site, samples: Samples, z: Float[Tensor, "n d"]) -> Lessons:
    """Samples as networks read them; photographs that a trunk reads also mirrored, with the same
    answers: their maps cannot be moved later."""
    read = as_read(site, samples)
    if trunk_for(site) is None or not are_photographs(site.facts):
        return Lessons(read, z)
    both = concat([read, as_read(site, samples, mirrored=True)])
    return Lessons(both, torch.cat([z, z]))


def made_of_these(facts: Facts, inputs: Samples, rng: np.random.Generator) -> Samples:
    """Samples made of others: rows of rows, and pictures of two each.

    Args:
        facts: what is public of the data.
        inputs: at least one sample.
        rng: draws what they are made of.
    """
    if facts.are_rows:
        return rows_of_rows(inputs, Layout.of(facts), ROWS, rng)
    few = MANY if facts.encoder else PICTURES  # an encoder takes its time
    return pictures_of_two(without_embeddings(inputs), few, rng)


def in_common(site: Site, samples: Samples) -> Samples:
    """Public samples with their embeddings, kept for all sites, where the facts have an encoder."""
    if site.facts.encoder is None:
        return samples
    folder, facts = site.paths.folder, site.facts.encoder
    encoder = site_encoder(folder, read_site(folder), facts, str(site.device))
    return with_embeddings(samples, encoder, embeddings_folder(site.common))


def taught_to_student(facts: Facts, inputs: int) -> int:
    """How many samples a student's steps are counted by where so many are public."""
    return ROWS if facts.are_rows and inputs else inputs


def answers_to(site: Site, state: JoinedState, lessons: Lessons) -> Float[Tensor, "n classes"]:
    """What the site's teacher, its own protected predictor, answers to rows of public samples.

    Args:
        site: for heads of public samples.
        state: of the site, with its residual where it has one.
        lessons: public samples, and their rows of the common map.
    """
    if site.facts.columns:
        return rows_teacher(site, state)(lessons.samples.inputs())
    z = lessons.z
    head, residual = head_of(site, state), state.linear()
    if residual is None:
        return (logits(state.check_joined(), z) + state.log_prior).softmax(1)
    base = state.log_prior if head is None else logits(head, z) + state.log_prior
    with torch.no_grad():
        return (base + residual_logits(residual, z)).softmax(1)


def rows_teacher(site: Site, state: JoinedState) -> Teacher:
    """The average of a table's protected candidates, as it is before validation samples are seen.

    Validation samples would be covered by nothing. The forest and the regression of public rows
    count in what the site predicts with, so the student learns from them, too.
    """
    models, none = public_models(site.public, table=True), site.facts.no_samples()
    candidates = Candidates(
        phi=site.phi,
        heads={"shared": state.check_joined(), **public_heads(site)},
        log_prior=state.log_prior,
        residual=state.linear(),
        over=state.over,
        forest=models.forest,
        logistic=models.logistic,
    )
    beforehand = weighed(candidates, none, {}, worth=0.0)
    return lambda x: beforehand.probabilities_of(x).float()


Asked = Samples | Float[Tensor, "n c h w"]
"""Samples, or network inputs in [-1, 1]."""

AnyTeacher = Callable[[Asked], Float[Tensor, "n classes"]]
"""Probabilities that a teacher gives them."""


def shared_teacher(site: Site, state: JoinedState) -> AnyTeacher:
    """What the shared head answers to public samples: the same for all sites."""
    shared = state.check_joined()
    heads = {"shared": shared}
    candidates = Candidates(phi=site.phi, heads=heads, log_prior=torch.zeros(len(shared)))
    return lambda asked: candidates.logits(asked)["shared"].softmax(1)


def encoding_once(site: Site, ask: AnyTeacher) -> AnyTeacher:
    """The teacher, for which each made picture is encoded once for all sites on this machine.

    Privacy: made pictures are of public samples; so the folder may be a common one.
    """
    if site.facts.encoder is None:
        return ask

    def answers(x: Asked) -> Float[Tensor, "n classes"]:
        assert isinstance(x, Tensor)
        made = Samples(x.float(), torch.zeros(len(x), dtype=torch.int64), site.facts.classes)
        return ask(in_common(site, made))

    return answers


def are_few(facts: Facts, inputs: int, *, behind: bool = False) -> bool:
    """Whether so many samples are images, and too few to teach a student by themselves.

    Args:
        facts: of the samples.
        inputs: how many.
        behind: whether the student's blocks come after an encoder's layers.
    """
    return facts.are_pictures and inputs < (MANY_BEHIND if behind else MANY)


def are_photographs(facts: Facts) -> bool:
    """Whether samples are pictures in colour, as photographs mostly are."""
    return facts.are_pictures and facts.shape[0] == 3
