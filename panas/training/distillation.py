"""A small network, the student, learns what a teacher answers.

The student is trained by cross-entropy to the probabilities that the teacher gives to samples whose
labels nobody needs to know. Images may be shifted a little at each step; the teacher is not asked
again: its answer to an image counts for the shifted one, too.

Privacy: the student depends on its samples and on the teacher alone. Of a teacher that a release
or DP-SGD has protected, and public samples, it is post-processing and costs nothing.

Source: Hinton, Vinyals and Dean 2015 (distillation).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig, Trainer

STUDENT = OptimizerConfig(
    optimiser="adam", learning_rate=0.005, decay="cosine", batch_size=32, epochs=25
)
"""The training that makes a genome's network a student; see `long_enough`."""

STEPS, SHORT_STEPS = 500, 300  # at least, of a student's training, and of one that ranks genomes

PIXELS = 14  # of a side, for one pixel that an image may be shifted; smaller ones are not


@dataclass(frozen=True)
class SoftSamples:
    """Samples and what a teacher answers to them; their own labels are not read."""

    samples: Samples
    targets: Float[Tensor, "n classes"]  # probabilities

    def __post_init__(self) -> None:
        wanted = (len(self.samples), self.samples.classes)
        if self.targets.shape != wanted:
            raise BadInput(
                f"expected a teacher's answers of shape {wanted}, got {tuple(self.targets.shape)}; "
                "ask it about all samples"
            )

    def __len__(self) -> int:
        return len(self.samples)


def long_enough(config: OptimizerConfig, samples: int, steps: int) -> OptimizerConfig:
    """The training with as many more epochs as so many samples need for so many steps.

    A few epochs of a hundred samples teach nothing, whatever the architecture.
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
    augment: bool,
) -> None:
    """Train in place on what the teacher answers, from the first epoch to the last; see
    `student_trainer`."""
    trainer = student_trainer(bottom, head, taught, config=config, rng=rng, augment=augment)
    trainer.run(config.epochs)


def student_trainer(
    bottom: Bottom,
    head: Head,
    taught: SoftSamples,
    *,
    config: OptimizerConfig,
    rng: np.random.Generator,
    augment: bool,
) -> Trainer:
    """The training of a student, which can stop after any epoch and go on later.

    Args:
        bottom: moves in place, as the head does unless `config.train_head` is False.
        head: gives the student's logits.
        taught: at least one sample, else BadInput.
        config: how weights move.
        rng: orders the samples and draws the shifts; nothing else may draw from it.
        augment: whether images are shifted, and those in colour mirrored; never for tables.
    """
    seed = int(rng.integers(2**32)) if augment else None

    def batches(at: Tensor, step: int) -> tuple[Tensor, Tensor]:
        x = taught.samples.inputs(at)
        if seed is not None:
            x = moved(x, stream(seed, "shifts", step))
        return x, taught.targets[at]

    return Trainer(bottom, head, taught.samples, config=config, rng=rng, batches=batches)


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
