"""Inversion by optimisation: an image in [-1, 1] whose representation is the released one.

For each released representation z, minimise over the image x, by Adam from several starts,

    D(x) + variation TV(x) + prior |w|^2,    D(x) = |h(x) - z|^2 / (v + noise)
    x = x_c + w E + FREEDOM w',  clamped to [-1, 1]

E are the directions in which public images vary around the mean of their class, each as long as
its standard deviation; w' moves single values. After a quarter of the steps each image goes on from
the start with the lowest loss. As noise grows the image stays near x_c, a blind guess.

| symbol | name |
|---|---|
| h | the site's bottom or the common map, clipped to norm 1 where the release clips |
| x_c | mean public image of the class |
| v | mean squared distance of known representations from their mean |
| noise | expected squared norm of the noise on z: d s^2 for a row, over n_c^2 for a class's mean |
| TV(x) | mean absolute difference of neighbouring values (total variation, anisotropic) |

Source: Mahendran and Vedaldi 2015 (inverting representations by optimisation, TV prior); Geiping et
al. 2020 (restarts, boxed Adam).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.threats.observation import Observation, WhiteBox, class_means, gradient_path
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
    """How images are sought."""

    steps: int = 60
    """Of Adam, at least 4; each start takes a quarter of them, the best one all."""
    learning_rate: float = 0.1
    """Above 0, in standard deviations of images; lowered to 0 by a cosine."""
    variation: float = 0.01
    """Weight of TV(x), 0 or more."""
    prior: float = 3e-4
    """Weight of |w|^2, 0 or more."""
    starts: tuple[Start, ...] = ("nearest", "class mean", "noise")
    """One descent each; "noise" may stand more than once."""
    batch: int = 64
    """Images at a time, at least 1; it bounds memory, and changes only what noise is drawn."""

    def __post_init__(self) -> None:
        counts = self.steps >= 4 and self.batch >= 1 and len(self.starts) >= 1
        if not (counts and self.learning_rate > 0 and self.variation >= 0 and self.prior >= 0):
            raise BadInput(
                "expected at least four steps, one start and one image a batch, a learning rate "
                f"above 0 and weights of 0 or more, got {self}; change the settings"
            )


def optimise(
    observation: Observation[WhiteBox],
    *,
    rng: np.random.Generator,
    config: Inversion,
) -> Float[Tensor, "m c h w"]:
    """Images of `observation.targets()`, one a row or one a class, by the weights it knows.

    BadInput without them, or where they pass no gradient.

    Args:
        observation: rows or class means, with the weights that made them.
        rng: of the random starts.
        config: starts, steps and priors.
    """
    if not isinstance(observation.knowledge, WhiteBox):
        raise BadInput(
            f"expected an observation that knows the weights, got {observation.knowledge.name}; "
            "attack it with a ridge inverter or a decoder"
        )
    h = gradient_path(observation.knowledge.representation)
    if h is None:
        raise BadInput(
            "expected a representation that passes gradients, got one with trees; attack it with "
            "a ridge inverter or a decoder"
        )
    everything, generator = _search(observation, h, config), torch_generator(rng)
    values: list[Tensor] = []
    for rows in torch.arange(len(everything.z)).split(config.batch):
        search = everything.take(rows)
        best, lowest = torch.empty(0), torch.full((len(rows),), math.inf)
        for start in config.starts:
            w, loss = search.descend(search.begin(start, generator), config.steps // 4)
            best = torch.where((loss < lowest)[:, None], w, best) if len(best) else w
            lowest = torch.minimum(loss, lowest)
        values.append(search.image(search.descend(best, config.steps)[0]))
    return torch.cat(values)


@dataclass(frozen=True)
class _Search:
    """What images must satisfy; each image's descent is its own."""

    observation: Observation[WhiteBox]
    h: Callable[[Tensor], Tensor]
    z: Float[Tensor, "m d"]
    tolerance: Float[Tensor, "m"]
    x_c: Float[Tensor, "m c h w"]
    nearest: Float[Tensor, "m p"]
    """From the mean of its class to the public image with the nearest features."""
    directions: Float[Tensor, "k p"]
    config: Inversion

    def take(self, rows: Tensor) -> "_Search":
        names = ("z", "tolerance", "x_c", "nearest")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def begin(self, start: Start, generator: torch.Generator) -> Float[Tensor, "m k_p"]:
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
        h = self.observation.read(self.h(x))
        distance = (h - self.z).square().sum(1)
        smooth = self.config.variation * total_variation(x)
        return distance / self.tolerance + smooth + self.config.prior * w.square().sum(1)

    def descend(
        self, w: Float[Tensor, "m k_p"], steps: int
    ) -> tuple[Float[Tensor, "m k_p"], Float[Tensor, "m"]]:
        """Where `steps` steps of Adam lead from w, and the losses there."""
        w = w.clone().requires_grad_(True)
        optimiser = torch.optim.Adam([w], lr=self.config.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            # Asked for w alone: the site's weights collect no gradient.
            (w.grad,) = torch.autograd.grad(self.losses(w).sum(), w)
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            return w.detach(), self.losses(w)


def _search(
    observation: Observation[WhiteBox], h: Callable[[Tensor], Tensor], config: Inversion
) -> _Search:
    z, y = observation.targets()
    public, x, known = observation.public, observation.public.inputs(), observation.known_z
    means = class_means(x, public)
    gaps = (x - means[public.y]).flatten(1)
    nearest = torch.cdist(observation.released(), observation.features(known, public.y)).argmin(1)
    v = (known - known.mean(0)).square().sum(1).mean().clamp(min=1e-9)
    noise = torch.full((len(z),), observation.noise_scale)
    if observation.noised_sums:
        noise = noise / observation.counts()
    tolerance = v + known.shape[1] * noise.square()
    return _Search(observation, h, z, tolerance, means[y], gaps[nearest], _directions(gaps), config)


def total_variation(x: Float[Tensor, "m c h w"]) -> Float[Tensor, "m"]:
    """TV(x); 0 where there are no neighbours."""
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
