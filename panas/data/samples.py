"""Labelled images in memory.

Pictures stay uint8 until `Samples.inputs` converts a batch: a full set never exists as floats. A
set whose values are not bytes (scaled tables, float pictures) is float32 and already in [-1, 1].
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64, Integer, UInt8, UInt64
from torch import Tensor

from panas.data.files.raw import row_hashes
from panas.runtime.errors import BadInput

Labels = Integer[np.ndarray, "n"] | Integer[Tensor, "n"]
"""The classes of n samples, as a numpy array or a CPU tensor."""

Indices = Integer[np.ndarray, "m"] | Integer[Tensor, "m"] | Sequence[int]
"""Positions of m samples in a set."""


@dataclass(frozen=True)
class Samples:
    """Labelled images of one shape."""

    x: UInt8[Tensor, "n c h w"] | Float32[Tensor, "n c h w"]
    """Values 0..255 (uint8), or network inputs in [-1, 1] (float32)."""
    y: Int64[Tensor, "n"]  # classes, 0..C-1
    classes: int  # C, the number of classes of the task; a set may lack some of them
    groups: Int64[Tensor, "n"] | None = None
    """The privacy unit that each sample belongs to; None: every sample is its own."""
    part: Int64[Tensor, "n"] | None = None
    """`TRAIN`, `VALIDATION` or `TEST` (`panas.data.files.raw`), as the data themselves say."""
    official: tuple[int, ...] = ()
    """`VALIDATION`, `TEST` or both, where the data have a part for them, even if it is empty."""
    embeddings: Float32[Tensor, "n e"] | None = None
    """Vectors of an encoder; None: there is none, or it has not been asked."""
    files: np.ndarray | None = None
    """Picture file of each sample (n,), as texts, where an encoder is to read them; "" for none."""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        c, h, w = self.x.shape[1:]
        return c, h, w

    def take(self, indices: Indices) -> "Samples":
        """The samples at `indices`, in that order, as a copy."""
        at = torch.as_tensor(indices, dtype=torch.int64, device=self.x.device)
        optional = (self.groups, self.part, self.embeddings)
        groups, part, embeddings = (None if a is None else a[at] for a in optional)
        files = None if self.files is None else self.files[at.cpu().numpy()]
        x, y = self.x[at], self.y[at]
        return Samples(x, y, self.classes, groups, part, self.official, embeddings, files)

    @property
    def units(self) -> int:
        """Number of privacy units: of groups, or of samples where there are none."""
        return len(self) if self.groups is None else len(self.groups.unique())

    def inputs(self, indices: Indices | None = None) -> Float[Tensor, "m c h w"]:
        """Network inputs in [-1, 1] of the samples at `indices` (all, if None)."""
        x = self.x if indices is None else self.take(indices).x
        return x.float().div_(127.5).sub_(1) if x.dtype == torch.uint8 else x

    def histogram(self) -> Int[Tensor, "classes"]:
        """Number of samples of each class."""
        return torch.bincount(self.y, minlength=self.classes)


def concat(parts: Sequence[Samples]) -> Samples:
    """Join sets of the same shape, type and classes into one, in the given order.

    A group that is in several of them stays one: its number means the same in all. Of which part
    of their data the samples were is forgotten.

    >>> import torch
    >>> half = Samples(torch.zeros(3, 1, 8, 8), torch.tensor([0, 1, 1]), 2)
    >>> concat([half, half]).histogram().tolist()
    [2, 4]
    """
    kinds = {(p.shape, p.x.dtype, p.classes) for p in parts}
    if len(kinds) != 1:
        result = "; ".join(f"{s} {t} with {c} classes" for s, t, c in kinds) or "none"
        raise BadInput(f"expected sets of one shape, type and class count, got {result}")
    grouped = [p.groups for p in parts if p.groups is not None]
    if grouped and len(grouped) < len(parts):
        raise BadInput("expected groups in all sets or in none, got some; name the group column")
    x, y = torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts])
    groups, some = torch.cat(grouped) if grouped else None, [p for p in parts if len(p)]
    vectors = [p.embeddings for p in some if p.embeddings is not None]
    files = [np.full(len(p), "") if p.files is None else p.files for p in some]
    return Samples(
        x,
        y,
        parts[0].classes,
        groups,
        embeddings=torch.cat(vectors) if vectors and len(vectors) == len(some) else None,
        files=np.concatenate(files) if any(p.files is not None for p in some) else None,
    )


def content_hashes(samples: Samples, key: bytes = b"") -> UInt64[np.ndarray, "n"]:
    """A number from 0 to 2^64 - 1 for each sample, by its values and class alone.

    Equal samples have equal numbers. With a secret `key` of at most 64 bytes they are random draws
    to whoever lacks it; without, whoever sees a number can test a guess of its sample.
    """
    x, y = samples.x.contiguous().numpy(), samples.y.numpy()
    return row_hashes((x[i].tobytes() + y[i].tobytes() for i in range(len(y))), key)


def value_hashes(samples: Samples, key: bytes = b"") -> UInt64[np.ndarray, "n"]:
    """A number for each sample as of `content_hashes`, by its values alone."""
    return row_hashes((x.tobytes() for x in samples.x.contiguous().numpy()), key)


def digest(samples: Samples) -> str:
    """A fingerprint of samples: whoever sees it can test a guess of them all."""
    content = hashlib.sha256(samples.x.contiguous().numpy().tobytes())
    content.update(samples.y.numpy().tobytes())
    if samples.groups is not None:
        content.update(samples.groups.numpy().tobytes())
    return content.hexdigest()
