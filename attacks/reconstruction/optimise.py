"""Inversion by optimisation: an image in [-1, 1] whose representation is the released one.

For each released representation z, minimise over the image x, by Adam from several starts,

    D(x) + variation TV(x) + prior |w|^2,    D(x) = |h(x) - z|^2 / (v + noise)
    x = x_c + w E + FREEDOM w',  clamped to [-1, 1]

E are the directions in which public images vary around the mean of their class, each as long as
its standard deviation; w' moves single values, so that nothing is out of reach. After a quarter of
the steps each image keeps the start with the lowest loss, and goes on from there. As noise grows D
counts for less, and the image stays near x_c, which is what a blind guess gives.

| symbol | name |
|---|---|
| h | the client's bottom, clipped to norm 1 where the release clips |
| x_c | mean public image of the class |
| v | mean squared distance of known representations from their mean |
| noise | expected squared norm of the noise on z: d s^2 for a row, over n_c^2 for a class's mean |
| TV(x) | mean absolute difference of neighbouring values (total variation, anisotropic) |

It seeks one image that fits, where an inverter that learns (`attacks.reconstruction.ridge`,
`attacks.reconstruction.decoder`) gives the mean of all that do, which has the lower squared error
as soon as many images share a representation. It is the stronger one where a representation holds
nearly all of its image, and where public images are few.

Source: Mahendran and Vedaldi 2015 (inverting representations by optimisation, TV prior); Geiping et
al. 2020 (restarts, boxed Adam).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.threats.knowledge import WhiteBox
from attacks.threats.observation import Observation, class_means
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator

Start = Literal["class mean", "nearest", "noise"]
"""Where a descent begins: x_c, the public image with the nearest features, or w at random."""

DIRECTIONS = 256
"""At most so many directions in E, those of the largest spread."""

FREEDOM = 0.03
"""Standard deviation of a single value besides, on the scale [-1, 1]."""


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """How images are sought.

    Attributes:
        steps: of Adam, at least 4; each start takes a quarter of them, the best one all.
        learning_rate: above 0, in standard deviations of images; lowered to 0 by a cosine.
        variation: weight of TV(x), 0 or more.
        prior: weight of |w|^2, 0 or more.
        starts: one descent each; "noise" may stand more than once.
        batch: images at a time, at least 1; it bounds memory, and moves only what noise is drawn.

    """

    steps: int = 60
    learning_rate: float = 0.1
    variation: float = 0.01
    prior: float = 3e-4
    starts: tuple[Start, ...] = ("nearest", "class mean", "noise")
    batch: int = 64


DEFAULT = Inversion()


def optimise(
    observation: Observation[WhiteBox],
    *,
    rng: np.random.Generator,
    config: Inversion = DEFAULT,
    on_progress: Callable[[int, int], None] | None = None,
) -> Float[Tensor, "m c h w"]:
    """Reconstruct what was released: one image a row, or one a class from sums or public rows.

    Args:
        observation: what the server sees; it must know the weights.
        rng: noise to start from.
        config: steps, starts and priors.
        on_progress: told (images done, images in all) after each batch.

    Returns:
        Images in the order of `observation.targets()`.

    Raises:
        BadInput: for settings out of range, or an observation that does not know the weights.

    """
    _check(config)
    if not isinstance(observation.knowledge, WhiteBox):
        raise BadInput(
            f"expected an observation that knows the weights, got {observation.knowledge.name}; "
            "attack it with a ridge inverter or a decoder"
        )
    observation.knowledge.bottom.eval()
    searches, generator = _searches(observation, config), torch_generator(rng)
    found: list[Tensor] = []
    for search in searches:
        best, lowest = torch.empty(0), torch.full((len(search.z),), math.inf)
        for start in config.starts:
            w, loss = search.descend(search.begin(start, generator), config.steps // 4)
            best = torch.where((loss < lowest)[:, None], w, best) if len(best) else w
            lowest = torch.minimum(loss, lowest)
        found.append(search.image(search.descend(best, config.steps)[0]))
        if on_progress:
            on_progress(sum(map(len, found)), sum(len(s.z) for s in searches))
    return torch.cat(found)


@dataclass(frozen=True)
class _Search:
    """What a batch of images must satisfy; each image's descent is its own."""

    observation: Observation[WhiteBox]
    z: Float[Tensor, "m d"]
    tolerance: Float[Tensor, "m"]
    x_c: Float[Tensor, "m c h w"]
    nearest: Float[Tensor, "m p"]
    """From the mean of its class to the public image with the nearest features."""
    directions: Float[Tensor, "k p"]
    config: Inversion

    def begin(self, start: Start, generator: torch.Generator) -> Float[Tensor, "m k_p"]:
        """Where a descent begins."""
        k, p = self.directions.shape
        if start == "noise":
            return torch.randn(len(self.z), k + p, generator=generator)
        w = torch.zeros(len(self.z), k + p)
        if start == "nearest":
            w[:, :k] = self.nearest @ self.directions.T / self.directions.square().sum(1)
        return w

    def image(self, w: Float[Tensor, "m k_p"]) -> Float[Tensor, "m c h w"]:
        k = len(self.directions)
        away = w[:, :k] @ self.directions + FREEDOM * w[:, k:]
        return (self.x_c + away.unflatten(1, self.x_c.shape[1:])).clamp(-1, 1)

    def losses(self, w: Float[Tensor, "m k_p"]) -> Float[Tensor, "m"]:
        x = self.image(w)
        h = self.observation.read(self.observation.knowledge.bottom(x))
        distance = (h - self.z).square().sum(1)
        smooth, near = (
            self.config.variation * total_variation(x),
            self.config.prior * w.square().sum(1),
        )
        return distance / self.tolerance + smooth + near

    def descend(
        self, w: Float[Tensor, "m k_p"], steps: int
    ) -> tuple[Float[Tensor, "m k_p"], Float[Tensor, "m"]]:
        """Where `steps` steps of Adam lead from w, and the losses there."""
        w = w.clone().requires_grad_(True)
        optimiser = torch.optim.Adam([w], lr=self.config.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            # Asked for w alone: the client's weights collect no gradient.
            (w.grad,) = torch.autograd.grad(self.losses(w).sum(), w)
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            return w.detach(), self.losses(w)


def _searches(observation: Observation[WhiteBox], config: Inversion) -> list[_Search]:
    """A search for each batch of what was released."""
    z, y = observation.targets()
    public, known = observation.public, observation.public.inputs()
    means = class_means(known, public)
    gaps = (known - means[public.y]).flatten(1)
    nearest = torch.cdist(
        observation.released(), observation.features(observation.known_z, public.y)
    ).argmin(1)
    directions, tolerance = _directions(gaps), _tolerance(observation, len(z))
    return [
        _Search(
            observation,
            z[rows],
            tolerance[rows],
            means[y[rows]],
            gaps[nearest[rows]],
            directions,
            config,
        )
        for rows in torch.arange(len(z)).split(config.batch)
    ]


def total_variation(x: Float[Tensor, "m c h w"]) -> Float[Tensor, "m"]:
    """Mean absolute difference of vertical, plus that of horizontal, neighbours; 0 without any."""
    zero = x.new_zeros(len(x))
    down = (x[:, :, 1:] - x[:, :, :-1]).abs().mean(dim=(1, 2, 3)) if x.shape[2] > 1 else zero
    across = (x[..., 1:] - x[..., :-1]).abs().mean(dim=(1, 2, 3)) if x.shape[3] > 1 else zero
    return down + across


def _directions(gaps: Float[Tensor, "n p"]) -> Float[Tensor, "k p"]:
    """E: principal directions of the gaps, each as long as their standard deviation along it."""
    # From the smaller of the two Gram matrices: many values, or many samples, are never both large.
    wide = gaps.shape[1] > len(gaps)
    values, vectors = torch.linalg.eigh((gaps @ gaps.T if wide else gaps.T @ gaps) / len(gaps))
    top = (values > 1e-6 * values[-1].clamp(min=1e-9)).nonzero().flatten()[-DIRECTIONS:]
    values, vectors = values[top], vectors[:, top]
    if wide:
        return vectors.T @ gaps / math.sqrt(len(gaps))
    return vectors.T * values.sqrt()[:, None]


def _tolerance(observation: Observation[WhiteBox], m: int) -> Float[Tensor, "m"]:
    """v + noise, for each representation that was released."""
    known = observation.known_z
    v = (known - known.mean(0)).square().sum(1).mean().clamp(min=1e-9)
    noise = torch.full((m,), observation.noise_scale)
    if observation.noised_sums:
        noise = noise / observation.counts()
    return v + known.shape[1] * noise.square()


def _check(config: Inversion) -> None:
    counts = config.steps >= 4 and config.batch >= 1 and len(config.starts) >= 1
    if not (counts and config.learning_rate > 0 and config.variation >= 0 and config.prior >= 0):
        raise BadInput(
            "expected at least four steps, one start and one image a batch, a learning rate above "
            f"0 and weights of 0 or more, got {config}; change the settings"
        )
