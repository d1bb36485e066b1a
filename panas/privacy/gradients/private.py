"""The private gradient of a Poisson batch: per-sample gradients, clipped, summed, noised.

    g = (sum_i clip(g_i, C) + sigma C N(0, I)) / (q n)

i goes over the privacy units of the batch. A unit of several samples (a group) has their *mean*
gradient, clipped once: the clip and the learning rate that were tuned for samples keep their
meaning, and no unit weighs more than another, however many samples it has.

The divisor is the public expected batch size, never the realised one, and an empty batch is noise
alone: both are needed for the accounting to hold. Opacus's optimiser is not used, because it draws
from torch's CPU generator, whose 32-bit seed can be guessed (`panas.privacy.noise`).

**No unit changes another's gradient, also not its last bits.** Libraries choose a kernel by the
size of a batch, and a network of cancelling weights makes much of a last bit. So samples are worked
off in chunks of one size, which follows from the network and the public expected batch size; the
last is filled up with copies of weight 0. On a CPU a sample then has the same gradient in every
place of its chunk, whatever is in the others: linear layers by exact sums (`panas.features.exact`),
all others as tests find it for each kind of layer. Of custom blocks, which `vmap` maps, last bits
may follow the place, and on a GPU all of this is untested: there the clip alone holds.

Clipped gradients are added in float64: of b units the rounding is at most b^2 2^-53 C in norm, less
than what `SLACK` leaves below C, for b up to 50,000.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from panas.privacy.gradients.apart import Batch, differs_in_company, forked_random
from panas.privacy.gradients.layer_rules import Dense, Gradients
from panas.privacy.gradients.per_sample import Loss, PerSample, cross_entropy
from panas.privacy.noise import NoiseSource
from panas.privacy.unit import number_units
from panas.runtime.errors import BadInput
from panas.runtime.memory import keep_freed_memory
from panas.runtime.typed import checked

# Chunks have one size, a multiple of STEP: torch keeps a kernel for each shape.
STEP, MOST = 16, 512
USUAL = 64  # samples of a chunk where nothing public says how large batches are
CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}  # inputs and gradients near the caches
WILD = 100.0  # larger weights are no network's that trains
SLACK = 3e-6  # added to a norm, relatively: rounding lets no gradient or sum exceed the clip


@dataclass(frozen=True, kw_only=True)
class ClipAndNoise:
    """What makes the gradient of one batch private."""

    clip: float  # C, above 0
    noise_multiplier: float  # sigma, 0 or more
    batch_size: float  # q n, the public expected number of units of a batch


Units = Int64[Tensor, "b"] | None
"""The group of each sample of a batch; None: every sample is a unit of its own."""


class PrivateGradient:
    """Sets the `.grad` of a model's trainable parameters to the private gradient of a batch.

    Args:
        model: any network that maps (b, ...) to (b, ...), or to several such, in a tuple, list or
            dictionary; what might mix samples in it runs on each alone, so that no clip is passed
            by (`panas.privacy.gradients.apart`).
        loss: one loss a sample, from outputs and targets.

    Raises:
        BadInput: at once for BatchNorm, and at the first batch for what is seen to mix noise: it
            would train as another network than the one that is used.

    >>> import torch
    >>> import panas
    >>> plan = panas.Plan(
    ...     samples=5, batch_size=5, clip=1.0, noise_multiplier=1.1, epochs=1, rounds=1
    ... )
    >>> model, noise = torch.nn.Linear(3, 2), panas.SystemNoise()
    >>> x, y = torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64)
    >>> gradient = panas.PrivateGradient(model)
    >>> for batch in plan.batches(noise, samples=5):
    ...     gradient.step(x[batch], y[batch], plan.clip_and_noise, noise)
    >>> tuple(model.weight.grad.shape)
    (2, 3)
    """

    @checked
    def __init__(self, model: nn.Module, loss: Loss = cross_entropy) -> None:
        for name, module in model.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                raise BadInput(
                    f"expected samples that do not mix, got BatchNorm at {name!r}; put "
                    'nn.GroupNorm in its place (norm="group" of a NetworkSpec)'
                )
        keep_freed_memory()
        self._model = model
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise BadInput("expected a network with parameters to train, got none; thaw some")
        for kind in {p.dtype for p in self._parameters} - {torch.float32, torch.float64}:
            raise BadInput(f"expected weights of 32 or 64 bits, got {kind}; use model.float()")
        self._gradients = PerSample(model, loss)
        self.chunk = 0  # samples worked off at once; known after the first batch
        self._expected: float | None = None  # samples of a batch, where that is public

    def clipped_sum(self, x: Batch, y: Batch, clip: float, groups: Units = None) -> list[Tensor]:
        """The sum of the units' gradients, each clipped to `clip`; one not finite counts as 0.

        Args:
            x: inputs (b, ...); b may be 0.
            y: targets, b of them, as the loss takes them.
            clip: C, largest norm of one unit's gradient over all parameters, above 0.
            groups: unit of each sample (b,), whose mean gradient is clipped; None: a sample is a
                unit.
        """
        return self._shaped(self._clipped_sum(x, y, clip, groups))

    def step(
        self,
        x: Batch,
        y: Batch,
        mechanism: ClipAndNoise,
        noise: NoiseSource,
        groups: Units = None,
    ) -> None:
        """Set every trainable parameter's `.grad` to the private gradient of one Poisson batch.

        Args:
            x: inputs (b, ...) of a batch that `Plan.batches` drew; b may be 0.
            y: targets, b of them, as the loss takes them.
            mechanism: clip, sigma and divisor, from `Plan.clip_and_noise`.
            noise: draws one number a weight; `SystemNoise()`, unless for a test.
            groups: unit of each sample (b,), all of whose samples are in the batch; None: a sample
                is a unit.
        """
        self._expected = mechanism.batch_size if groups is None else None
        total = self._clipped_sum(x, y, mechanism.clip, groups)
        scale = mechanism.noise_multiplier * mechanism.clip
        draw = scale * noise.normal(len(total)).to(total.device)
        private = (total + draw) / mechanism.batch_size
        for p, g in zip(self._parameters, self._shaped(private), strict=True):
            p.grad = g

    def _clipped_sum(self, x: Tensor, y: Tensor, clip: float, groups: Units) -> Float[Tensor, "p"]:
        for named, given in (("target", y), ("group", groups)):
            if given is not None and len(given) != len(x):
                raise BadInput(
                    f"expected a {named} for each sample of the batch, got {len(given)} for "
                    f"{len(x)}; give as many"
                )
        total = torch.zeros(sum(p.numel() for p in self._parameters), dtype=torch.float64)
        total = total.to(self._parameters[0].device)
        if not self.chunk:  # also for an empty batch: a refusal tells of the network alone
            most = self._most_at_once(x, y)
            if not most:
                return total
            self.chunk = chunk_of(most, self._expected)
        if not len(y):
            return total
        if groups is not None and len(groups.unique()) < len(groups):
            return self._clipped_means(x, y, clip, number_units(groups.cpu()).to(x.device))
        for part in torch.arange(len(y), device=x.device).split(self.chunk):
            padded = self._filled(part)
            grads = self._gradients(x[padded], y[padded])
            norms = _joint_norms(grads) * (1 + SLACK)
            factor = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
            factor[len(part) :] = 0.0
            if not bool(torch.isfinite(norms).all()):
                factor = torch.where(torch.isfinite(norms), factor, 0.0)
                grads = [g.finite() for g in grads]
            total += torch.cat([g.weighted_sum(factor).flatten() for g in grads])
        return total

    def _filled(self, part: Int64[Tensor, "k"]) -> Int64[Tensor, "chunk"]:
        """The places of a whole chunk: what is missing is the first sample again."""
        return torch.cat([part, part.new_zeros(self.chunk - len(part))])

    def _clipped_means(
        self, x: Tensor, y: Tensor, clip: float, units: Int64[Tensor, "b"]
    ) -> Float[Tensor, "p"]:
        """The sum of one clipped mean gradient a unit; a unit may reach over many chunks."""
        order, sizes = units.argsort(stable=True), units.bincount()
        width = sum(p.numel() for p in self._parameters)
        open_unit, rest = 0, torch.zeros(1, width, dtype=torch.float64).to(x.device)
        total = torch.zeros_like(rest[0])
        for part in order.split(self.chunk):
            padded = self._filled(part)
            grads = self._gradients(x[padded], y[padded])
            rows = torch.cat([g.values.flatten(1)[: len(part)] for g in grads], 1).double()
            rows[~rows.isfinite().all(1)] = 0.0
            first, last = int(units[part[0]]), int(units[part[-1]])
            if first > open_unit:
                total += _clipped(rest / sizes[open_unit], clip)
                rest = torch.zeros_like(rest)
            sums = rows.new_zeros(1 + last - first, rows.shape[1])
            sums.index_add_(0, units[part] - first, rows)
            sums[0] += rest[0]
            total += _clipped(sums[:-1] / sizes[first:last, None], clip)
            open_unit, rest = last, sums[-1:]
        return total + _clipped(rest / sizes[open_unit], clip)

    def _shaped(self, flat: Float[Tensor, "p"]) -> list[Tensor]:
        parts = flat.split([p.numel() for p in self._parameters])
        return [part.view_as(p).to(p) for part, p in zip(parts, self._parameters, strict=True)]

    def _most_at_once(self, x: Tensor, y: Tensor) -> int:
        """Samples at once, measured on noise; refuses networks that make no sense under DP.

        By the shapes of x and y alone, which may be of no sample. 0 where weights are so large, or
        not numbers, that noise overflows: every sample then counts as one whose gradient is not
        finite. A refusal would come after the charge.
        """
        targets = torch.zeros(STEP, *y.shape[1:], dtype=y.dtype, device=y.device)
        noise = torch.randn(STEP, *x.shape[1:], generator=torch.Generator().manual_seed(0))
        # Some networks take positive numbers only; of indices there are surely 0 and 1.
        tries = [noise, noise.abs() / (1 + noise.abs())] if x.is_floating_point() else [noise > 0]
        probes = [probe.to(x) for probe in tries]
        before = {name: b.clone() for name, b in self._model.named_buffers()}
        probe = next((p for p in probes if self._finite(p, targets)), None)
        if probe is None and self._is_wild():
            return 0
        if probe is None:
            raise BadInput(
                "expected a network that can be tried on noise, got gradients that are not finite; "
                "scale its inputs to about norm 1 an entry"
            )
        if not self._gradients.by_rules and differs_in_company(self._model, probe):
            raise BadInput(
                "expected samples that do not mix, got a network whose outputs depend on the rest "
                "of the batch; find the layer that does it"
            )
        for name, b in self._model.named_buffers():
            if not torch.equal(b, before[name]):
                raise BadInput(
                    f"expected fixed buffers, got {name!r}, which follows the data; switch it off"
                )
        size = sum(p.numel() * p.element_size() for p in self._parameters)
        size += self._gradients.bytes // STEP
        most = CHUNK_BYTES.get(x.device.type, CHUNK_BYTES["cpu"]) // max(1, size)
        return max(STEP, min(MOST, most // STEP * STEP))

    def _is_wild(self) -> bool:
        """Whether weights are as only divergence, or a server that lies, makes them."""
        return not all(bool((p.abs() <= WILD).all()) for p in self._model.parameters())

    def _finite(self, x: Batch, y: Batch) -> bool:
        with forked_random(x):
            return all(bool(g.values.isfinite().all()) for g in self._gradients(x, y))


def chunk_of(most: int, expected: float | None) -> int:
    """Samples of a chunk of at most `most`, at least 16: as few chunks as most Poisson batches of
    this expected size need, and as even ones. None: nothing public says how large batches are."""
    if expected is None:
        return min(most, USUAL)
    usual = expected + 2 * math.sqrt(expected)
    chunks = math.ceil(usual / most)
    return min(most, STEP * math.ceil(usual / (chunks * STEP)))


def _joint_norms(grads: list[Gradients]) -> Float[Tensor, "b"]:
    """The Euclidean norm of all parameters' gradients together, one a sample; float64."""
    squares = grads[0].norms().double().square()
    for g in grads[1:]:
        squares = squares + g.norms().double().square()
    return squares.sqrt()


def _clipped(rows: Float[Tensor, "u p"], clip: float) -> Float[Tensor, "p"]:
    """The sum of the rows, each clipped; one that is not finite counts as 0."""
    norms = Dense(rows).norms() * (1 + SLACK)
    factor = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
    factor = torch.where(torch.isfinite(norms), factor, 0.0)
    return factor @ rows.nan_to_num(0.0, 0.0, 0.0)
