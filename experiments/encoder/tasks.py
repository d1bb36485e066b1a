"""Held-out tasks of random processes, and how well a linear head on a map's axes solves them.

Their classes are drawn from seeds, and mostly made in ways, that training never sees:

| task | a class is |
|---|---|
| glyphs | four drawings of random strokes, as they are bent; white on black |
| garments | four symmetric unions, as they are bent; grey fillings of any kind, on black |
| things | three random masks and a range of colours, before any background |
| surfaces | the seed of a texture: a spectrum's power, direction and stretch |
| places | how large and how round leaves are, that cover each other |
| haze | whether a soft spot lies within one and the same body |
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from experiments.encoder import processes as p
from experiments.encoder.views import KINDS, Bank, composed, lit
from panas.features.axes import fit_axes
from panas.features.images import fit_gabor

CLASSES = 10
PUBLIC, TRAIN, TEST = 700, 1000, 1300
WIDTH = 128
RIDGE = 0.9  # as `benchmarks.features` has it
BENT = (0.35, 0.35, 0.2, 0.1)
VARIANTS = 4  # prototypes of a class of glyphs or garments


@dataclass(frozen=True)
class Task:
    """Pictures in [0, 1] and their classes; the first `PUBLIC` of them fit the axes, unlabelled."""

    name: str
    x: Float[Tensor, "n 3 s s"]
    y: Int[Tensor, "n"]


Drawn = Callable[[Tensor, Bank, p.Generator], Tensor]


def glyphs(y: Tensor, bank: Bank, g: p.Generator) -> Tensor:
    """White curves on black."""
    prototypes = p.strokes(VARIANTS * CLASSES, g)[:, :1]
    which = VARIANTS * y + torch.randint(VARIANTS, y.shape, generator=g)
    return p.moved(prototypes[which], BENT, g).expand(-1, 3, -1, -1)


def garments(y: Tensor, bank: Bank, g: p.Generator) -> Tensor:
    """Symmetric shapes on black, of any filling."""
    half = p.parts(VARIANTS * CLASSES, g)
    prototypes = torch.maximum(half, half.flip(3))
    which = VARIANTS * y + torch.randint(VARIANTS, y.shape, generator=g)
    n, mask = len(y), p.moved(prototypes[which], (0.1, 0.35, 0.1, 0.08), g)
    fill = 0.25 + 0.75 * bank.filling(n, g).mean(1, keepdim=True).expand(-1, 3, -1, -1)
    return composed(mask, fill, fill * p.uniform((n, 1, 1, 1), 0.6, 1, g), torch.zeros_like(fill))


def things(y: Tensor, bank: Bank, g: p.Generator) -> Tensor:
    """Objects in colour before anything."""
    prototypes = torch.cat([kind(CLASSES, g) for kind in KINDS])
    tones = p.flat(CLASSES, g)[y]
    which, n = y + CLASSES * torch.randint(len(KINDS), y.shape, generator=g), len(y)
    fill, inside, behind = (bank.filling(n, g) for _ in range(3))
    fill = fill.lerp(tones, p.uniform((n, 1, 1, 1), 0, 0.6, g))
    mask = p.moved(prototypes[which], (0.3, 0.4, 0.3, 0.08), g)
    return lit(composed(mask, fill, inside, behind), torch.zeros(n, 1, 1, 1).bool(), g)


def surfaces(y: Tensor, bank: Bank, g: p.Generator) -> Tensor:
    """Noise whose spectrum is the class's, in any colours."""
    angle, stretch, power = (
        p.uniform((CLASSES,), low, high, g)[y][:, None, None]
        for low, high in ((0, math.pi), (0, 2), (-2, -0.5))
    )
    n, f = len(y), torch.fft.fftfreq(p.SIDE) * p.SIDE
    fx, fy = f[None, None], f[None, :, None]
    angle = angle + 0.2 * torch.randn(n, 1, 1, generator=g)
    u, v = fx * angle.cos() + fy * angle.sin(), (fy * angle.cos() - fx * angle.sin())
    amplitude = (1 + u**2 + (v * torch.exp2(stretch)) ** 2).sqrt() ** power
    noise = torch.randn(n, 3, p.SIDE, p.SIDE, generator=g)
    x = torch.fft.ifft2(torch.fft.fft2(noise) * amplitude[:, None]).real
    skewed = torch.where((y % 2 == 0)[:, None, None, None], x.abs(), x)  # beyond the spectrum
    return p.coloured(skewed, g)


def places(y: Tensor, bank: Bank, g: p.Generator) -> Tensor:
    """Covering leaves of the class's size and shape."""
    size, box, thin = (
        p.uniform((CLASSES,), low, high, g)[y] for low, high in ((-3, -0.8), (0, 1), (0.2, 1))
    )
    n = len(y)
    x, across = bank.filling(n, g), p.places(n)
    for _ in range(20):
        radius = torch.exp2(size + 0.4 * torch.randn(n, generator=g))[:, None, None]
        angle = p.uniform((n, 1, 1), 0, math.pi, g)
        u, v = (a - p.uniform((n, 1, 1), -1, 1, g) for a in across)
        u, v = u * angle.cos() + v * angle.sin(), (v * angle.cos() - u * angle.sin())
        u, v = u / radius, v / (radius * thin[:, None, None])
        boxed = (torch.rand(n, generator=g) < box)[:, None, None]
        distance = torch.where(boxed, torch.maximum(u.abs(), v.abs()), (u**2 + v**2).sqrt())
        leaf = ((1 - distance) * radius / p.EDGE + 0.5).clamp(0, 1)[:, None]
        x = x.lerp(bank.filling(n, g), leaf)
    return x


def haze(y: Tensor, bank: Bank, g: p.Generator) -> Tensor:
    """One body in any light; class 1 has soft spots in it."""
    body, n = p.parts(1, g)[:, :1], len(y)
    body = torch.maximum(body, body.flip(3)).expand(n, -1, -1, -1)
    mask = p.moved(body, (0.08, 0.2, 0.1, 0.08), g)
    ribs = p.moved(p.gratings(1, g).mean(1, keepdim=True).expand(n, -1, -1, -1), BENT, g)
    spot = (_smooth(torch.rand(n, 1, 5, 5, generator=g)) - 0.5).clamp(min=0) * (y == 1)[
        :, None, None, None
    ]
    smooth = F.interpolate(
        torch.randn(n, 1, 3, 3, generator=g), size=(p.SIDE, p.SIDE), mode="bicubic"
    )
    x = 0.25 + 0.3 * mask + 0.2 * mask * ribs + 0.1 * smooth + 0.35 * mask * spot
    x = x * torch.exp2(0.4 * torch.randn(n, 1, 1, 1, generator=g))
    return (x + 0.03 * torch.randn(x.shape, generator=g)).clamp(0, 1).expand(-1, 3, -1, -1)


def _smooth(coarse: Tensor) -> Tensor:
    return F.interpolate(coarse, size=(p.SIDE, p.SIDE), mode="bicubic")


TASKS: dict[str, Drawn] = {
    f.__name__: f for f in (glyphs, garments, things, surfaces, places, haze)
}


def drawn(seed: int) -> list[Task]:
    """A draw of each task."""
    tasks = []
    for i, (name, draw) in enumerate(TASKS.items()):
        g = torch.Generator().manual_seed(1_000_003 * (seed + 1) + i)
        bank, n = Bank.drawn(1000, g), PUBLIC + TRAIN + TEST
        y = torch.randint(2 if name == "haze" else CLASSES, (n,), generator=g)
        tasks.append(Task(name, draw(y, bank, g), y))
    return tasks


def solved(z: Float[Tensor, "n d"], y: Int[Tensor, "n"]) -> float:
    """Accuracy of a ridge regression on unit rows.

    Args:
        z: rows of all samples of a task.
        y: their classes.
    """
    _, train, test = z.double().split((PUBLIC, TRAIN, TEST))
    _, known, true = y.split((PUBLIC, TRAIN, TEST))
    targets = F.one_hot(known, int(y.max()) + 1).double()
    A = train.T @ train + RIDGE * torch.eye(train.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(A, train.T @ (targets - targets.mean(0)))
    return float(((test @ weight).argmax(1) == true).double().mean())


def by_vectors(v: Float[Tensor, "n e"], y: Int[Tensor, "n"]) -> float:
    """How well vectors solve a task, on the product's axes.

    Args:
        v: of all samples.
        y: their classes.
    """
    return solved(fit_axes(v[:PUBLIC], WIDTH)(v), y)


def by_gabor(task: Task) -> float:
    """How well the product's own map solves it; pictures without colour have one channel."""
    x = task.x[:, :1] if bool((task.x[:, 0] == task.x[:, 1]).all()) else task.x
    feature_map = fit_gabor((x.shape[1], p.SIDE, p.SIDE), x[:PUBLIC] * 2 - 1, WIDTH)
    return solved(feature_map(x * 2 - 1), task.y)
