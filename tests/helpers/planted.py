"""Planted leaks and non-leaks: what every attack must catch, and what it must be silent on.

| planted | what it is |
|---|---|
| image in clear | z is the image, rotated (`raw_rows`) or of norm 1 and hardly noised (others) |
| independent | z is noise, of the mean and spread of known representations |

An attack reconstructs every sample by its true class, so that on a non-leak it is as good as the
same-class mean at best.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from attacks.audit.verdict import judge
from attacks.reconstruction.metrics import score
from attacks.threats import controls
from attacks.threats.observation import Observation, WhiteBox
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.noise import NoiseSource, ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import kind_named, noise_scale
from panas.privacy.release.rows import clip_rows
from panas.training.evaluate import represent

HARDLY = 1e-3
"""Noise multiplier under which nothing is hidden."""


@cache
def pictures(n: int, seed: int, side: int = 6) -> Samples:
    """Class c has row c bright, and each image is mostly its own: a smooth random field."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    small = torch.rand(n, 1, 3, 3, generator=g) * 1.4 - 0.7
    x = nn.functional.interpolate(small, size=side, mode="bilinear", align_corners=True)
    x[torch.arange(n), 0, y] += 0.3
    return Samples(x, y, 3)


def rotation(values: int) -> Bottom:
    """Identity extractor: z is the image, rotated and moved away from the kink of the ReLU."""
    g = torch.Generator().manual_seed(0)
    bottom = _affine(values, torch.linalg.qr(torch.randn(values, values, generator=g)).Q, 10.0)
    return bottom.eval()


def unit_image(values: int) -> Bottom:
    """Identity extractor for noised kinds: z is the image, from 0 to 1, scaled to norm 1."""
    bottom = _affine(values, torch.eye(values) / 2, 0.5)
    bottom.unit = True
    return bottom.eval()


def _affine(values: int, weight: Tensor, bias: float) -> Bottom:
    reshape: list[nn.Module] = [nn.Flatten(), nn.Unflatten(1, (values, 1, 1))]
    bottom = Bottom(reshape, values, values, unit=False)
    with torch.no_grad():
        bottom.adapt.weight.copy_(weight)
        bottom.adapt.bias.fill_(bias)
    return bottom


def extractor(kind: str, public: Samples) -> Bottom:
    return (rotation if kind == "raw_rows" else unit_image)(public.x[0].numel())


def released(
    kind: str, z: Tensor, y: Tensor, m: float | None, noise: NoiseSource
) -> dict[str, Tensor]:
    """What the product's own mechanism makes of representations of three classes."""
    what = kind_named(kind)
    return what.run(Rows(z, y), 3, noise_scale(what, m), noise)


def image_in_clear(kind: str, private: Samples, public: Samples) -> Observation[WhiteBox]:
    """A leak of images: for sums, `private` should hold one sample a class."""
    bottom, m = extractor(kind, public), None if kind == "raw_rows" else HARDLY
    arrays = released(kind, represent(bottom, private), private.y, m, seeded(0))
    return Observation("north", kind, arrays, m, WhiteBox(bottom), public)


def independent(kind: str, private: Samples, public: Samples, seed: int) -> Observation[WhiteBox]:
    """No leak of images: whatever z is, no private image was looked at. Classes are true."""
    bottom, m = extractor(kind, public), None if kind == "raw_rows" else 1.0
    values = represent(bottom, public)
    noise = seeded(seed)
    z = values.mean(0) + values.std(0) * noise.normal(len(private), values.shape[1]).float()
    z = z if kind == "raw_rows" else clip_rows(z)
    arrays = released(kind, z, private.y, m, noise)
    return Observation("north", kind, arrays, m, WhiteBox(bottom), public)


def seeded(seed: int) -> NoiseSource:
    return ReproducibleNoise(np.random.default_rng(seed))


def verdict(seen: Observation[WhiteBox], private: Samples, images: Tensor, seed: int = 0) -> str:
    """What the audit would say of these reconstructions alone: one a row, or one a class."""
    rng, public, y = np.random.default_rng(seed), seen.public, private.y
    mean, truth = controls.mean_image(public), private.inputs()

    def scored(name: str, x: Tensor) -> object:
        return score(name, truth, x, mean, rng=rng)

    mine = scored("attack", images[y] if seen.by_class else images)
    beside = [
        scored("mean image", mean.expand_as(truth)),
        scored("same-class mean", controls.same_class_mean(public, y)),
    ]
    return judge([mine], beside, rng=rng)[0]  # type: ignore[list-item]
