"""What is the same in two pictures: pairs of views of a random scene, or of a random object.

Two views of a scene are parts of one field. Two views of an object have its masks, bent anew; in
half of the pairs each has a filling of its own, so that the shape is all that both share.

Pairs come in groups of one style (scenes or objects of one kind of mask; grey or in colour), and
are told apart within their group alone: between styles that would teach nothing. Grey pairs are
not mirrored: where pictures have no colour, as of letters, the side often matters.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from experiments.encoder.processes import (
    Generator,
    blobs,
    chance,
    fields,
    flat,
    moved,
    parts,
    strokes,
    uniform,
)

GROUP = 48  # pairs of one style
SCENES, GREY = 0.3, 0.5  # shares of groups
OBJECT = (0.3, 0.3, 0.2, 0.05)  # angle, scale, shift and bend of a view's mask
SCENE = (0.3, 0.5, 0.4, 0.03)
KEPT, DARK = 0.5, 0.5  # pairs of one filling; grey groups before black
LUMA = torch.tensor([0.3, 0.59, 0.11])[None, :, None, None]
PART = 1000  # that are drawn at once
SHARES = (SCENES, GREY, DARK)
KINDS = (strokes, blobs, parts)


@dataclass(frozen=True)
class Bank:
    """Fields and masks that pairs are made of; masks by kind."""

    fields: Float[Tensor, "n 3 s s"]
    masks: tuple[Float[Tensor, "m 2 s s"], ...]

    @staticmethod
    def drawn(n: int, g: Generator) -> "Bank":
        """A bank of n fields and as many masks, n a multiple of `PART`."""
        some = torch.cat([fields(PART, g) for _ in range(n // PART)])
        each = [PART // len(KINDS)] * (n // PART)
        return Bank(some, tuple(torch.cat([kind(m, g) for m in each]) for kind in KINDS))

    def filling(self, n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
        """Fields, most of them with less contrast or of one colour."""
        some = self.fields[torch.randint(len(self.fields), (n,), generator=g)]
        some = some.mean((2, 3), keepdim=True).lerp(some, uniform((n, 1, 1, 1), 0.2, 1, g))
        return torch.where(chance(n, 0.4, g), flat(n, g), some)


def pairs(
    bank: Bank, groups: int, g: Generator
) -> tuple[Float[Tensor, "n 3 s s"], Float[Tensor, "n 3 s s"]]:
    """Two views of each of `groups` times `GROUP` scenes or objects, group after group.

    Args:
        bank: that they are made of.
        groups: how many.
        g: draws.
    """
    both = [group(bank, g) for _ in range(groups)]
    first, second = zip(*both, strict=True)
    return torch.cat(first), torch.cat(second)


def group(bank: Bank, g: Generator) -> tuple[Tensor, Tensor]:
    """The views of one group."""
    n, (scenes, greys, dark) = GROUP, (torch.rand(3, generator=g) < torch.tensor(SHARES)).tolist()
    grey = torch.full((n, 1, 1, 1), greys)
    if scenes:
        field = bank.fields[torch.randint(len(bank.fields), (n,), generator=g)]
        first, second = (lit(moved(field, SCENE, g), grey, g) for _ in range(2))
        return first, second
    kind = bank.masks[int(torch.randint(len(bank.masks), (), generator=g))]
    mask = kind[torch.randint(len(kind), (n,), generator=g)]
    fill, inside, kept = bank.filling(n, g), bank.filling(n, g), chance(n, KEPT, g)
    views = []
    for _ in range(2):
        own = torch.where(kept, fill, bank.filling(n, g))
        within = torch.where(kept, inside, bank.filling(n, g))
        behind = bank.filling(n, g)
        if greys and dark:
            own, within, behind = 0.3 + 0.7 * own, 0.3 + 0.7 * within, torch.zeros_like(behind)
        views.append(lit(composed(moved(mask, OBJECT, g), own, within, behind), grey, g))
    return views[0], views[1]


def composed(
    mask: Float[Tensor, "n 2 s s"],
    fill: Float[Tensor, "n 3 s s"],
    inside: Float[Tensor, "n 3 s s"],
    behind: Float[Tensor, "n 3 s s"],
) -> Float[Tensor, "n 3 s s"]:
    """An object before a background.

    Args:
        mask: its whole and its inside.
        fill: of the whole.
        inside: of the inside.
        behind: the background.
    """
    return behind.lerp(fill, mask[:, :1]).lerp(inside, mask[:, 1:])


def lit(x: Float[Tensor, "n 3 s s"], grey: Tensor, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Pictures in another light, some of them blurred or noisy; mirrored where in colour.

    Args:
        x: pictures in [0, 1].
        grey: which have no colour.
        g: draws.
    """
    n = len(x)
    x = torch.where(~grey & chance(n, 0.5, g), x.flip(3), x)
    mean = x.mean((1, 2, 3), keepdim=True)
    x = (x - mean) * torch.exp2(uniform((n, 1, 1, 1), -1, 0.5, g)) + mean
    x = x * uniform((n, 3, 1, 1), 0.8, 1.2, g) + uniform((n, 1, 1, 1), -0.2, 0.2, g)
    luma = (x * LUMA).sum(1, keepdim=True)
    x = luma.lerp(x, torch.where(grey, 0.0, uniform((n, 1, 1, 1), 0.4, 1.2, g)))
    soft = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, 1)
    x = torch.where(chance(n, 0.3, g), soft, x)
    noise = torch.randn(x.shape, generator=g)
    noise = torch.where(grey, noise[:, :1], noise) * uniform((n, 1, 1, 1), 0, 0.1, g)
    return torch.where(chance(n, 0.4, g), x + noise, x).clamp(0, 1)
