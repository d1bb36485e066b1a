"""What an attack must be compared with before its error means anything.

| control | what it shows |
|---|---|
| mean image | the mean public image for everyone: R^2 = 0 by definition |
| same-class mean | the mean public image of the sample's class: what a label alone gives away |
| held-out class mean | the same, with samples of the client that no release was made of |
| leaked mean, class mean, regression | guesses from the samples that leaked, and public ones |
| others' mean, class mean, regression | guesses from all samples of the site but the one guessed |
| unrelated image | a public image drawn at random: what a sharp but wrong picture scores |
| shuffled | the attack's own reconstructions, each given to a sample of another class |
| random extractor | the attacks on raw rows of an untrained bottom: what architecture alone leaks |
| ceiling | the attacks on noiseless raw rows of what made the release: as the paper's release |

The first three, and the guesses (`attacks.threats.blind`), are *blind*: they use no release. An
attack that does not beat those of its own knowledge (`blind_to`) shows no leak. Leaked samples are
known to the threat that has them, and to its controls alone. All others are in every bar: they are
what the site's population looks like, which a sound release is meant to tell; a site may differ
from the public samples, and then any attack that learns of the site beats public means without
knowing any one training sample.

A shuffled score above 0 says that reconstructions carry what the client's samples have in
common, or that the audit matches rows wrongly, and not that samples leak. The random extractor
bounds what protecting the weights can do; a common map has no weights to protect, and goes without.
Only the auditor can compute it, the ceiling, and what needs samples of the site.

The ceiling decides nothing. No *best possible* attack on a release can beat the best possible one
on the noiseless rows that it was computed from, by the same knowledge. But ceiling and attacks are
the best of a few inverters, so that one above the ceiling shows how weak these are, or that its
score is what it knew before. It may also be a leak: a release may hold what those rows do not. So
a score above the ceiling neither makes a leak nor excuses one; the bar decides.
"""

import copy
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.threats.blind import GUESSES, from_all_others, from_known
from attacks.threats.knowledge import LeakedPairs, WhiteBox
from attacks.threats.observation import Observation, class_means
from attacks.threats.representation import Representation, rows_of
from panas.architecture.network import Bottom, initialise
from panas.data.samples import Samples, concat
from panas.runtime.seeds import torch_generator

PUBLIC = ("mean image", "same-class mean", "held-out class mean")
OTHERS = tuple(f"others' {name}" for name in GUESSES)
LEAKED = tuple(f"leaked {name}" for name in GUESSES)

BLIND = (*PUBLIC, *OTHERS)
"""Controls of every attack that know nothing of the release."""


def blind_to(threat: str | None) -> tuple[str, ...]:
    """The controls that know what a threat knows besides the release."""
    return (*BLIND, *LEAKED) if threat == LeakedPairs.name else BLIND


def in_words(name: str) -> str:
    """A control's name, as a sentence has it: the data may be a table."""
    return name.replace("image", "sample")


def mean_image(public: Samples) -> Float[Tensor, "c h w"]:
    """The mean public image."""
    return public.inputs().mean(0)


def same_class_mean(public: Samples, y: Int[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
    """For each label the mean public image of its class, or of all where the public has none."""
    return class_means(public.inputs(), public)[y]


def held_out_class_mean(
    public: Samples, held_out: Samples, y: Int[Tensor, "n"]
) -> Float[Tensor, "n c h w"]:
    """For each label the mean image of its class, of public and held-out samples together."""
    return same_class_mean(concat([replace(s, groups=None) for s in (public, held_out)]), y)


def by_others(
    public: Samples, samples: Samples, others: Samples | None
) -> dict[str, Float[Tensor, "n c h w"]]:
    """Each sample as all others of its site have it: the rest of `samples`, and `others`."""
    found = from_all_others(public, samples, others)
    return {f"others' {name}": images for name, images in found.items()}


def by_leaked(
    public: Samples, leaked: Samples, y: Int[Tensor, "n"]
) -> dict[str, Float[Tensor, "n c h w"]]:
    """For each label what leaked samples, and public ones, say of its class."""
    found = from_known(public, leaked, y)
    return {f"leaked {name}": images for name, images in found.items()}


def unrelated_image(
    public: Samples, n: int, *, rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """n public images, drawn at random."""
    return public.inputs(rng.integers(len(public), size=n))


def shuffled(
    images: Float[Tensor, "n c h w"], y: Int[Tensor, "n"], *, rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """Give each sample the reconstruction of a random sample of another class, if there is one.

    In a release of sums a class shares an image, and samples of one class resemble one another.
    """
    labels = y.numpy()
    partner = rng.permutation(len(labels))
    for c in np.unique(labels):
        others = np.flatnonzero(labels != c)
        if len(others):
            partner[labels == c] = rng.choice(others, int((labels == c).sum()))
    return images[torch.from_numpy(partner)]


def raw_rows(
    observation: Observation[WhiteBox], private: Samples, representation: Representation
) -> Observation[WhiteBox]:
    """What the server would see, had the client sent noiseless representations of `private`."""
    arrays = {"z": rows_of(representation, private), "y": private.y}
    return replace(
        observation,
        kind="raw_rows",
        arrays=arrays,
        noise_multiplier=None,
        knowledge=WhiteBox(representation),
    )


def random_extractor(bottom: Bottom, *, rng: np.random.Generator) -> Bottom:
    """An untrained bottom of the same architecture."""
    fresh = copy.deepcopy(bottom)
    initialise(fresh, torch_generator(rng))
    return fresh
