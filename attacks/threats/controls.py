"""What an attack must be compared with before its error means anything.

| control | what it shows |
|---|---|
| mean image | the mean public image for everyone: R^2 = 0 by definition |
| same-class mean | the mean public image of the sample's class: what a label alone gives away |
| held-out class mean | the same, with samples of the client that no release was made of |
| unrelated image | a public image drawn at random: what a sharp but wrong picture scores |
| shuffled | the attack's own reconstructions, each given to a sample of another class |
| random extractor | the attacks on raw rows of an untrained bottom: what architecture alone leaks |
| ceiling | the attacks on noiseless raw rows of what made the release: as the paper's release |

The first three are *blind*: they use no release; an attack that does not beat them shows no leak.
The third is what the client's population looks like, which a sound release is meant to tell: with
few public samples an attack beats their mean, and knows nothing of any one training sample. A
shuffled score above 0 says that reconstructions carry what the client's samples have in
common, or that the audit matches rows wrongly, and not that samples leak. The random extractor
bounds what protecting the weights can do; a common map has no weights to protect, and goes without.
Only the auditor can compute it, the held-out class mean and the ceiling.
"""

import copy
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.threats.knowledge import WhiteBox
from attacks.threats.observation import Observation, class_means
from attacks.threats.representation import Representation, rows_of
from panas.architecture.network import Bottom, initialise
from panas.data.samples import Samples, concat
from panas.runtime.seeds import torch_generator

BLIND = ("mean image", "same-class mean", "held-out class mean")
"""Controls that know nothing of the release; the verdict compares with the best of them."""


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
