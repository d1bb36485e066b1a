"""What is the same in two pictures: pairs of views of a random scene, or of a random object.

Two views of a scene are parts of one field. Two views of an object have its masks, bent anew; each
may have another filling and another background, so that the shape is what both have in common.
Grey pairs are not mirrored: where pictures have no colour, as of letters, the side often matters.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from experiments.encoder.processes import (
    Generator,
    chance,
    fields,
    flat,
    masks,
    moved,
    uniform,
)

SCENES, GREY = 0.35, 0.5  # shares of pairs
OBJECT = (0.3, 0.3, 0.2, 0.05)  # angle, scale, shift and bend of a view's mask
SCENE = (0.3, 0.5, 0.4, 0.03)
KEPT, DARK = 0.6, 0.4  # that a view has the pair's own filling; that its background is dark
LUMA = torch.tensor([0.3, 0.59, 0.11])[None, :, None, None]


@dataclass(frozen=True)
class Bank:
    """Fields and masks that pairs are made of."""

    fields: Float[Tensor, "n 3 s s"]
    masks: Float[Tensor, "n 2 s s"]

    @staticmethod
    def drawn(n: int, g: Generator, part: int = 1000) -> "Bank":
        """A bank of n fields and n masks.

        Args:
            n: of each.
            g: draws.
            part: that are drawn at once.
        """
        drawn = [(fields(part, g), masks(part, g)) for _ in range(n // part)]
        first, second = zip(*drawn, strict=True)
        return Bank(torch.cat(first), torch.cat(second))

    def filling(self, n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
        """Fields, most of them with less contrast or of one colour."""
        some = self.fields[torch.randint(len(self.fields), (n,), generator=g)]
        some = some.mean((2, 3), keepdim=True).lerp(some, uniform((n, 1, 1, 1), 0.2, 1, g))
        return torch.where(chance(n, 0.4, g), flat(n, g), some)


def pairs(
    bank: Bank, n: int, g: Generator
) -> tuple[Float[Tensor, "n 3 s s"], Float[Tensor, "n 3 s s"]]:
    """Two views of each of n scenes and objects.

    Args:
        bank: that they are made of.
        n: pairs.
        g: draws.
    """
    scene, grey = chance(n, SCENES, g), chance(n, GREY, g)
    field = bank.fields[torch.randint(len(bank.fields), (n,), generator=g)]
    mask = bank.masks[torch.randint(len(bank.masks), (n,), generator=g)]
    fill, inside = bank.filling(n, g), bank.filling(n, g)
    views = []
    for _ in range(2):
        kept = chance(n, KEPT, g)
        own = torch.where(kept, fill, bank.filling(n, g))
        within = torch.where(kept, inside, bank.filling(n, g))
        shown = composed(moved(mask, OBJECT, g), own, within, background(bank, grey, n, g))
        views.append(lit(torch.where(scene, moved(field, SCENE, g), shown), grey, g))
    return views[0], views[1]


def background(bank: Bank, grey: Tensor, n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Behind an object: a field, or one colour; often black where the picture is grey."""
    return bank.filling(n, g) * ~(grey & chance(n, DARK, g))


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
