"""What a site's network, its student, learns: public samples, and what teachers answer to them.

The site's teacher is the head that it builds on with its log prior and residual; the shared head by
itself teaches what is the same for all sites. Either answers rows of the common map, which are
computed once. Where images are few, pictures are made of two of them each, once for all sites.

Privacy: answers to public samples are post-processing of what the ledger covers.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dprbft.methods.joined.residual import head_of
from dprbft.methods.joined.state import JoinedState
from dprbft.site.site import Site
from panas.data.facts import Facts
from panas.data.samples import Samples, concat, digest
from panas.runtime.seeds import stream
from panas.runtime.store import exclusive, read_tensors, write_tensors
from panas.training.distillation import Teacher, pictures_of_two
from panas.training.linear.predictor import Candidates
from panas.training.linear.residual import residual_logits
from panas.training.linear.ridge import logits

MANY = 1000
"""Images from which on a student learns nothing of shifted ones, nor of pictures made of two."""

PICTURES = 4000
"""Made of two where images are few; a student of 1,000 steps sees each of them eight times."""


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
    if not are_few(site.facts, len(inputs)):
        return Lessons(inputs, site.rows(inputs).z)
    path = site.common / f"pictures-{digest(inputs)[:32]}.safetensors"
    with exclusive(path):
        if not path.is_file():
            rng = stream(site.config.seed, "students", "pictures")
            made = pictures_of_two(inputs, PICTURES, rng)
            write_tensors(path, {"x": made.x, "z": site.rows(made).z}, {})
        kept, _ = read_tensors(path)
    x = kept["x"]
    return Lessons(Samples(x, torch.zeros(len(x), dtype=torch.int64), inputs.classes), kept["z"])


def answers_to(
    site: Site, state: JoinedState, z: Float[Tensor, "n d"]
) -> Float[Tensor, "n classes"]:
    """What the site's teacher, its own protected predictor, answers to rows of public samples.

    Args:
        site: for heads of public samples.
        state: of the site, with its residual where it has one.
        z: rows of the common map.
    """
    head, residual = head_of(site, state), state.linear()
    if residual is None:
        return (logits(state.check_joined(), z) + state.log_prior).softmax(1)
    base = state.log_prior if head is None else logits(head, z) + state.log_prior
    with torch.no_grad():
        return (base + residual_logits(residual, z)).softmax(1)


def learnt_from(site: Site) -> Samples:
    """Public samples, whose labels are not looked at, and those without any."""
    parts = [replace(part, groups=None, part=None) for part in (site.public, site.unlabelled)]
    return concat([part for part in parts if len(part)] or parts[:1])


def shared_teacher(site: Site, state: JoinedState) -> Teacher:
    """What the shared head answers to public samples: the same for all sites."""
    shared = state.check_joined()
    heads = {"shared": shared}
    candidates = Candidates(phi=site.phi, heads=heads, log_prior=torch.zeros(len(shared)))
    return lambda x: candidates.logits(x)["shared"].softmax(1)


def are_few(facts: Facts, inputs: int) -> bool:
    """Whether so many samples are images, and too few to teach a student by themselves."""
    return not facts.columns and inputs < MANY
