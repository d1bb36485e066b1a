"""A small network, the student, learns what a teacher answers.

The student is trained by cross-entropy to the probabilities that the teacher gives to samples whose
labels nobody needs to know. Where images are few, the teacher is asked about more than those: about
pictures made of two of them. Forty images then teach more than their forty answers. Photographs may
be shown moved a little, differently at each step.

Privacy: the student depends on its samples and on the teacher alone. Of a teacher that a release
or DP-SGD has protected, and public samples, it is post-processing and costs nothing.

Source: Hinton, Vinyals and Dean 2015 (distillation); Beyer et al. 2022 (asking the teacher about
each picture that the student sees); Zhang et al. 2018 and Yun et al. 2019 (blends and patches).
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Indices, Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig, Trainer

Teacher = Callable[[Float[Tensor, "n c h w"]], Float[Tensor, "n classes"]]
"""Probabilities that a teacher gives network inputs, whatever they show."""

STUDENT = OptimizerConfig(
    optimiser="adam", learning_rate=0.01, decay="one-cycle", batch_size=32, epochs=25
)
"""The training that makes a genome's network a student; see `long_enough`. A rate that first rises
to twice as much saves a third of the steps."""

STEPS, SHORT_STEPS = 4000, 300  # at least, of a student's training, and of one that ranks genomes

BATCH = 256  # pictures at a time

PIXELS = 14  # of a side, for one pixel that an image may be shifted; smaller ones are not


THINNED = 0.2  # of the channels of a map, that a step leaves out


@dataclass(frozen=True)
class SoftSamples:
    """Samples and what a teacher answers to them; their own labels are not read."""

    samples: Samples
    targets: Float[Tensor, "n classes"]  # probabilities

    def __post_init__(self) -> None:
        shape = (len(self.samples), self.samples.classes)
        if self.targets.shape != shape:
            raise BadInput(
                f"expected a teacher's answers of shape {shape}, got {tuple(self.targets.shape)}; "
                "ask it about all samples"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, indices: Indices) -> "SoftSamples":
        """Those at some places, in their order."""
        return SoftSamples(self.samples.take(indices), self.targets[torch.as_tensor(indices)])

    @cached_property
    def digest(self) -> str:
        """A fingerprint of inputs and answers; labels play no part."""
        return fingerprint(self.samples.x, self.targets)


def fingerprint(*tensors: Tensor) -> str:
    """A digest of tensors on the CPU, their types and shapes."""
    content = hashlib.sha256()
    for t in tensors:
        content.update(f"{t.dtype}{tuple(t.shape)}".encode())
        content.update(t.contiguous().numpy().tobytes())
    return content.hexdigest()


def long_enough(config: OptimizerConfig, samples: int, steps: int) -> OptimizerConfig:
    """The training with as many more epochs as so many samples need for so many steps.

    A few epochs of a hundred samples teach nothing, whatever the architecture.

    Args:
        config: its batch size and epochs, which are the fewest.
        samples: n, how many an epoch has.
        steps: of the optimiser, that the whole training shall have at least.
    """
    in_epoch = math.ceil(max(1, samples) / config.batch_size)
    return replace(config, epochs=max(config.epochs, math.ceil(steps / in_epoch)))


def distil(
    bottom: Bottom,
    head: Head,
    taught: SoftSamples,
    *,
    config: OptimizerConfig,
    rng: np.random.Generator,
) -> None:
    """Train in place on what the teacher answers, from the first epoch to the last.

    Args:
        bottom: moves in place, as the head does unless `config.train_head` is False.
        head: gives the student's logits.
        taught: at least one sample, else BadInput.
        config: how weights move, and for how many epochs.
        rng: orders the samples.
    """
    student_trainer(bottom, head, taught, config=config, rng=rng).run(config.epochs)


def student_trainer(
    bottom: Bottom,
    head: Head,
    taught: SoftSamples,
    *,
    config: OptimizerConfig,
    rng: np.random.Generator,
    changed: "tuple[Change, int] | None" = None,
) -> Trainer:
    """The training of a student, which can stop after any epoch and go on later.

    Args:
        bottom: moves in place, as the head does unless `config.train_head` is False.
        head: gives the student's logits.
        taught: at least one sample, else BadInput.
        config: how weights move.
        rng: orders the samples; nothing else may draw from it.
        changed: what is done to inputs at each step, whose answers stay, and its seed; None:
            nothing.
    """

    def batches(at: Tensor, step: int) -> tuple[Tensor, Tensor]:
        x = taught.samples.inputs(at)
        if changed is not None:
            change, seed = changed
            x = CHANGES[change](x, stream(seed, change, step))
        return x, taught.targets[at]

    return Trainer(bottom, head, taught.samples, config=config, rng=rng, batches=batches)


def made_of(samples: Samples, n: int, *, teacher: Teacher, rng: np.random.Generator) -> SoftSamples:
    """n pictures made of two of the samples each, and what a teacher answers to them.

    Args:
        samples: at least one, of pictures, not tables.
        n: how many pictures to make, 0 or more.
        teacher: answers to images in [-1, 1] by probabilities (b, classes).
        rng: draws pairs, shifts and blends.
    """
    made = pictures_of_two(samples, n, rng)
    answers = [teacher(made.inputs(part)) for part in torch.arange(n).split(BATCH)]
    return SoftSamples(made, torch.cat(answers))


def pictures_of_two(samples: Samples, n: int, rng: np.random.Generator) -> Samples:
    """n pictures made of two of the samples each, as bytes; their labels are 0, and mean nothing.

    Args:
        samples: at least one, of pictures, not tables.
        n: how many pictures to make, 0 or more.
        rng: draws pairs, shifts and blends.
    """
    at = torch.from_numpy(rng.integers(len(samples), size=n))
    parts = [pictures(samples, part, rng).add(1).mul(127.5).round() for part in at.split(BATCH)]
    x = torch.cat([part.clamp(0, 255).to(torch.uint8) for part in parts])
    return Samples(x, torch.zeros(n, dtype=torch.int64), samples.classes)


def pictures(
    samples: Samples, at: Int[Tensor, "b"], rng: np.random.Generator
) -> Float[Tensor, "b c h w"]:
    """Images, each moved and put together with another one; see `made_of_two`.

    Args:
        samples: whom the others are drawn from, too.
        at: positions of b samples in it.
        rng: draws the others, shifts and blends.
    """
    others = torch.from_numpy(rng.integers(len(samples), size=len(at)))
    x, beside = (moved(samples.inputs(places), rng) for places in (at, others))
    return made_of_two(x, beside, rng)


def moved(x: Float[Tensor, "n c h w"], rng: np.random.Generator) -> Float[Tensor, "n c h w"]:
    """Images shifted by up to a fourteenth of each side, what is missing reflected at the border.

    Half of those in colour are mirrored, too: pictures in colour are photographs, mostly.
    """
    n, channels, h, w = x.shape
    tall, wide = h // PIXELS, w // PIXELS
    rows = torch.from_numpy(rng.integers(0, 2 * tall, n, endpoint=True))[:, None] + torch.arange(h)
    cols = torch.from_numpy(rng.integers(0, 2 * wide, n, endpoint=True))[:, None] + torch.arange(w)
    if channels == 3:
        mirror = torch.from_numpy(rng.random(n) < 0.5)[:, None]
        cols = torch.where(mirror, cols.flip(1), cols)
    padded = F.pad(x, (wide, wide, tall, tall), mode="reflect")
    image, channel = torch.arange(n)[:, None, None, None], torch.arange(channels)[:, None, None]
    return padded[image, channel, rows[:, None, :, None], cols[:, None, None, :]]


def thinned(x: Float[Tensor, "n c h w"], rng: np.random.Generator) -> Float[Tensor, "n c h w"]:
    """Feature maps without some channels, as dropout does it: the others are larger.

    Few pictures do not tell which of an encoder's channels to rely on.
    """
    kept = torch.from_numpy(rng.random(x.shape[:2]) >= THINNED)[:, :, None, None]
    return x * kept / (1 - THINNED)


Change = Literal["moved", "thinned"]
CHANGES: Mapping[Change, Callable[[Tensor, np.random.Generator], Tensor]] = {
    "moved": moved,
    "thinned": thinned,
}


def made_of_two(
    x: Float[Tensor, "n c h w"], others: Float[Tensor, "n c h w"], rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """Images blended with others, half of them, and half with a patch of the other one.

    Both are drawn apart: a quarter of the images stay as they are.

    Args:
        x: n images of any range.
        others: as many, one for each.
        rng: draws shares and patches.
    """
    n, _, h, w = x.shape
    share = np.where(rng.random(n) < 0.5, 1.0, rng.random(n))
    blend = torch.from_numpy(share.astype(np.float32))[:, None, None, None]
    patched = torch.from_numpy(rng.random(n) < 0.5)[:, None, None]
    rows, cols = (_between(rng, n, side) for side in (h, w))
    patch = (patched & rows[:, :, None] & cols[:, None, :])[:, None]
    return torch.where(patch, others, blend * x + (1 - blend) * others)


def _between(rng: np.random.Generator, n: int, side: int) -> Bool[Tensor, "n side"]:
    """For each image the pixels of a side between two that are drawn."""
    low, high = torch.from_numpy(np.sort(rng.integers(side + 1, size=(2, n)), axis=0))[:, :, None]
    at = torch.arange(side)
    return (low <= at) & (at < high)
