"""What an auditor plants in a training: samples with wrong labels, patterns, or one's own.

The strongest for DP-SGD are `attacks.epsilon.gradient_canaries`.
"""

from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from panas.data.samples import Indices, Samples
from panas.runtime.errors import BadInput

C = TypeVar("C", bound="Canaries")


@runtime_checkable
class Canaries(Protocol):
    """What an auditor plants: `Samples`, `gradient_canaries.DiracCanaries`, or one's own."""

    def __len__(self) -> int:
        """How many."""
        ...

    def take(self: C, indices: Indices) -> C:
        """Those at `indices`, in that order."""
        ...


def mislabelled(samples: Samples, m: int, rng: np.random.Generator) -> Samples:
    """m different samples, at most all, each with a wrong label: all wrong ones equally likely.

    What they are taken from must not be trained on besides.

    Raises:
        BadInput: if there are too few samples, or there is no wrong label.

    """
    if m > len(samples) or samples.classes < 2:
        raise BadInput(
            f"expected {m} samples or more of two or more classes, got {len(samples)} of "
            f"{samples.classes}; plant fewer canaries"
        )
    chosen = samples.take(rng.choice(len(samples), m, replace=False))
    shift = torch.from_numpy(rng.integers(1, samples.classes, m))
    return Samples(chosen.x, (chosen.y + shift) % samples.classes, samples.classes)


def random_patterns(like: Samples, m: int, rng: np.random.Generator) -> Samples:
    """m images of black and white at random, with random labels, of the shape and type of `like`.

    Nothing in the data helps to learn them: what a network knows of one, it has memorised.
    """
    white = torch.from_numpy(rng.random((m, *like.shape)) < 0.5)
    y = torch.from_numpy(rng.integers(like.classes, size=m))
    if like.x.dtype == torch.uint8:
        return Samples(white.to(torch.uint8) * 255, y, like.classes)
    return Samples(2 * white.float() - 1, y, like.classes)
