"""Pictures of random processes: fields that fill, masks that cut, and what both make together.

| process | what is drawn |
|---|---|
| spectra | noise of a power law, with an exponent, a direction and colours of its own |
| shaders | random networks of a pixel's place, as compositional pattern networks are |
| gratings | sums of two waves, soft or hard |
| leaves | textured ellipses and boxes that cover each other |
| strokes | random curves of some width |
| blobs | closed curves of a few frequencies about a centre |
| parts | unions of ellipses and boxes, often symmetric |

Source: Baradad and others 2021 (learning to see by looking at noise); Lee and others 2001.
Fields are float32 arrays (n, 3, s, s) in [0, 1], masks (n, 2, s, s): a whole and its inside.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

SIDE = 32
LEAVES = 14  # that cover each other, on one field
POINTS, CURVES = 20, 3  # of a stroke, and strokes of a mask
WAVES = 5  # frequencies of a blob
PARTS = 4  # of a union
HIDDEN = 12  # of a shader's layers
EDGE = 0.06  # width of a soft edge, in half sides

Generator = torch.Generator


def uniform(shape: tuple[int, ...], low: float, high: float, g: Generator) -> Tensor:
    """Uniform numbers of a shape.

    Args:
        shape: of the result.
        low: bound.
        high: bound.
        g: draws.
    """
    return torch.rand(shape, generator=g) * (high - low) + low


def chance(n: int, p: float, g: Generator) -> Tensor:
    """Which of n are chosen, each with probability p: (n, 1, 1, 1)."""
    return torch.rand(n, 1, 1, 1, generator=g) < p


def places(n: int) -> tuple[Tensor, Tensor]:
    """x and y of the pixels in [-1, 1], each (n, s, s)."""
    axis = (torch.arange(SIDE) + 0.5) / SIDE * 2 - 1
    return axis[None, None].expand(n, SIDE, -1), axis[None, :, None].expand(n, -1, SIDE)


def coloured(x: Float[Tensor, "n 3 h w"], g: Generator) -> Float[Tensor, "n 3 h w"]:
    """Three channels of a process mixed to colours, within [0, 1]; most share one brightness."""
    n = len(x)
    x = (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True).clamp(min=1e-3)
    mixing = torch.randn(n, 3, 3, generator=g) * uniform((n, 1, 1), 0.02, 0.6, g)
    mixing[:, :, 0] += 0.8
    x = torch.einsum("nij,njhw->nihw", mixing, x) * uniform((n, 1, 1, 1), 0.05, 0.35, g)
    grey, colour = uniform((n, 1, 1, 1), 0.2, 0.8, g), uniform((n, 3, 1, 1), 0.2, 0.8, g)
    return (x + grey.lerp(colour, uniform((n, 1, 1, 1), 0, 1, g))).clamp(0, 1)


def spectra(n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Noise of a power law of frequency, stretched in a direction."""
    fy = torch.fft.fftfreq(SIDE)[None, :, None] * SIDE
    fx = torch.fft.rfftfreq(SIDE)[None, None] * SIDE
    angle = uniform((n, 1, 1), 0, math.pi, g)
    stretch = torch.exp2(uniform((n, 1, 1), 0, 2.5, g))
    u = fx * angle.cos() + fy * angle.sin()
    v = (fy * angle.cos() - fx * angle.sin()) * stretch
    power = -uniform((n, 1, 1), 0.4, 2.2, g)
    amplitude = (1 + (u**2 + v**2)).sqrt() ** power
    shape = (n, 3, SIDE, SIDE // 2 + 1)
    noise = torch.complex(torch.randn(shape, generator=g), torch.randn(shape, generator=g))
    return coloured(torch.fft.irfft2(noise * amplitude[:, None], s=(SIDE, SIDE)), g)


def shaders(n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Random networks of sines of a pixel's place."""
    x, y = places(n)
    h = torch.stack([x, y, (x**2 + y**2).sqrt(), torch.ones_like(x)], 1).flatten(2)
    scale = torch.exp2(uniform((n, 1, 1), 0.5, 3, g))
    for inputs, outputs, gain in ((4, HIDDEN, scale), (HIDDEN, HIDDEN, 1.5), (HIDDEN, 3, 1.0)):
        weight = torch.randn(n, outputs, inputs, generator=g) / math.sqrt(inputs) * gain
        h = torch.bmm(weight, h)
        h = (h + uniform((n, outputs, 1), 0, math.tau, g)).sin() if outputs == HIDDEN else h
    return coloured(h.view(n, 3, SIDE, SIDE), g)


def gratings(n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Two waves; some are cut to two tones."""
    x, y = places(n)
    channels = []
    for _ in range(3):
        angle, phase = uniform((n, 1, 1), 0, math.pi, g), uniform((n, 1, 1), 0, math.tau, g)
        frequency = torch.exp2(uniform((n, 1, 1), 1, 5, g))
        channels.append(((x * angle.cos() + y * angle.sin()) * frequency + phase).sin())
    waves = torch.stack(channels, 1)
    waves[:, 0] += waves[:, 1] * (torch.rand(n, 1, 1, generator=g) < 0.5)
    return coloured(torch.where(chance(n, 0.4, g), (waves * 8).tanh(), waves), g)


def flat(n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """One colour, of any saturation."""
    grey, colour = uniform((n, 1, 1, 1), 0, 1, g), uniform((n, 3, 1, 1), 0, 1, g)
    return grey.lerp(colour, uniform((n, 1, 1, 1), 0, 1, g)).repeat(1, 1, SIDE, SIDE)


def leaves(n: int, textures: Float[Tensor, "m 3 s s"], g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Ellipses and boxes that cover each other, each with a colour or a texture of its own.

    Args:
        n: how many.
        textures: that they are filled with.
        g: draws.
    """
    image = textures[torch.randint(len(textures), (n,), generator=g)].clone()
    scale = uniform((n, 1, 1), 0.4, 1.2, g)  # some pictures have small leaves alone
    boxes = uniform((n, 1, 1), 0, 1, g)
    for _ in range(LEAVES):
        radius = scale * torch.exp2(uniform((n, 1, 1), -3, 0, g))
        leaf = _shape(n, radius, 1.0, boxes, g)[:, None]
        fill = textures[torch.randint(len(textures), (n,), generator=g)]
        fill = torch.where(chance(n, 0.5, g), fill, fill.mean((2, 3), keepdim=True))
        image = image + leaf * (fill - image)
    return image


def _shape(
    n: int, radius: Tensor, spread: float, boxes: Tensor | float, g: Generator
) -> Float[Tensor, "n s s"]:
    """An ellipse or a box of some radius, its centre within `spread` of the middle."""
    x, y = places(n)
    angle = uniform((n, 1, 1), 0, math.pi, g)
    across, down = (p - uniform((n, 1, 1), -spread, spread, g) for p in (x, y))
    u = (across * angle.cos() + down * angle.sin()) / radius
    v = (down * angle.cos() - across * angle.sin()) / (radius * uniform((n, 1, 1), 0.25, 1, g))
    box = torch.rand(n, 1, 1, generator=g) < boxes
    distance = torch.where(box, torch.maximum(u.abs(), v.abs()), (u**2 + v**2).sqrt())
    return ((1 - distance) * radius / EDGE + 0.5).clamp(0, 1)


def strokes(n: int, g: Generator) -> Float[Tensor, "n 2 s s"]:
    """One to `CURVES` random curves of some width; their inside is the first one alone."""
    t = torch.linspace(0, 1, POINTS)
    powers = torch.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    control = uniform((n, CURVES, 2, 4), -0.85, 0.85, g)
    joined = torch.rand(n, generator=g) < 0.6  # a curve begins where the last one ended
    for i in range(1, CURVES):
        control[joined, i, :, 0] = control[joined, i - 1, :, 3]
    curve = control @ powers  # (n, curves, 2, points)
    x, y = (p.flatten(1) for p in places(n))
    nearest = []
    for i in range(CURVES):
        apart = (x[:, :, None] - curve[:, i, 0, None]) ** 2
        apart = apart + (y[:, :, None] - curve[:, i, 1, None]) ** 2
        nearest.append(apart.amin(2).sqrt().view(n, SIDE, SIDE))
    number = torch.randint(1, CURVES + 1, (n,), generator=g)
    for i in range(1, CURVES):
        nearest[i] = torch.where((number > i)[:, None, None], nearest[i], 9.0)
    width = uniform((n, 1, 1), 0.08, 0.22, g)
    whole = torch.stack(nearest).amin(0)
    return torch.stack([((width - d) / EDGE + 0.5).clamp(0, 1) for d in (whole, nearest[0])], 1)


def blobs(n: int, g: Generator) -> Float[Tensor, "n 2 s s"]:
    """Closed curves about a centre; some are symmetric. The inside is smaller, with its own."""
    x, y = places(n)
    angle, distance = torch.atan2(y, x), (x**2 + y**2).sqrt()
    symmetric = torch.rand(n, 1, 1, generator=g) < 0.5
    masks = []
    for low, high in ((0.4, 0.85), (0.1, 0.45)):
        radius = torch.ones_like(x)
        for k in range(1, WAVES + 1):
            phase = uniform((n, 1, 1), 0, math.tau, g)
            phase = torch.where(symmetric, (phase / math.pi).round() * math.pi, phase)
            size = torch.randn(n, 1, 1, generator=g) * 0.4 / k**0.7
            radius = radius + size * (k * (angle + math.pi / 2) + phase).cos()
        radius = radius * uniform((n, 1, 1), low, high, g)
        masks.append(((radius - distance) / EDGE + 0.5).clamp(0, 1))
    return torch.stack(masks, 1)


def parts(n: int, g: Generator) -> Float[Tensor, "n 2 s s"]:
    """Unions of ellipses and boxes, often symmetric; the inside is the last part."""
    whole = torch.zeros(n, SIDE, SIDE)
    symmetric = torch.rand(n, 1, 1, generator=g) < 0.7
    shape = whole
    for i in range(PARTS):
        radius = torch.exp2(uniform((n, 1, 1), -2.2, 0, g))
        shape = _shape(n, radius, 0.6, 0.5, g)
        shape = torch.where(symmetric, torch.maximum(shape, shape.flip(2)), shape)
        drawn = torch.rand(n, 1, 1, generator=g) < (1.0 if i < 2 else 0.6)
        whole = torch.maximum(whole, shape * drawn)
    return torch.stack([whole, torch.minimum(whole, shape)], 1)


def fields(n: int, g: Generator) -> Float[Tensor, "n 3 s s"]:
    """Of all processes that fill, leaves a half of them."""
    k = n // 6
    simple = torch.cat([spectra(n - 5 * k, g), shaders(k, g), gratings(k, g)])
    both = torch.cat([simple, leaves(3 * k, torch.cat([simple, flat(k, g)]), g)])
    return both[torch.randperm(n, generator=g)]


def moved(
    x: Float[Tensor, "n c s s"], most: tuple[float, float, float, float], g: Generator
) -> Float[Tensor, "n c s s"]:
    """Turned, scaled, shifted and bent at random.

    Args:
        x: pictures or masks.
        most: angle in radians, logarithm (base 2) of scales, shift and bend in half sides.
        g: draws.
    """
    n, (turn, zoom, shift, bend) = len(x), most
    angle = uniform((n,), -turn, turn, g)
    sx, sy = (torch.exp2(uniform((n,), -zoom, zoom, g)) for _ in range(2))
    theta = torch.stack(
        [
            torch.stack([angle.cos() * sx, angle.sin() * sy, uniform((n,), -shift, shift, g)], 1),
            torch.stack([-angle.sin() * sx, angle.cos() * sy, uniform((n,), -shift, shift, g)], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, [n, 1, SIDE, SIDE], align_corners=False)
    if bend:
        coarse = torch.randn(n, 2, 4, 4, generator=g) * bend
        smooth = F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic")
        grid = grid + smooth.permute(0, 2, 3, 1)
    beyond = "reflection" if x.shape[1] == 3 else "zeros"  # a mask ends
    return F.grid_sample(x, grid, padding_mode=beyond, align_corners=False)
