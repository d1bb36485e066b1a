"""Whole training steps with and without privacy: ours, plain SGD, Opacus and `torch.func`."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from panas.architecture.blocks import ConvBlock
from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import build_bottom
from panas.architecture.space import SearchSpace
from panas.privacy.gradients.private import ClipAndNoise, PrivateGradient
from panas.privacy.noise import SystemNoise

Step = Callable[[], None]
CLIP, SIGMA, RATE = 1.0, 1.0, 0.1


def largest(shape: tuple[int, int, int]) -> Genome:
    """The genome with the most parameters of the whole space: only its widest blocks."""
    space = SearchSpace(shape=shape)
    return Genome((ConvBlock(max(space.widths), max(space.kernels)),) * space.max_blocks)


NETS: dict[str, tuple[Genome, tuple[int, int, int]]] = {
    "typical": (Genome.parse("c32k3-c64k3-max-c64k5-c64k3-avg-c128k3"), (3, 32, 32)),
    "digits": (Genome.parse("c16k3-c32k5-c32k5-c64k3"), (1, 8, 8)),  # found by `panas search`
    "largest": (largest((3, 32, 32)), (3, 32, 32)),
}


def network(net: str) -> nn.Module:
    """The network of a name, the same each time."""
    genome, shape = NETS[net]
    g = torch.Generator().manual_seed(0)
    bottom = build_bottom(genome, shape=shape, width=64, unit=True, generator=g)
    return nn.Sequential(bottom, build_head(64, 10, init="etf", generator=g)).train()


def nonprivate(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Plain SGD."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def nonprivate_chunked(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Plain SGD on the same chunks as ours."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    gradient = PrivateGradient(model)
    how = ClipAndNoise(clip=CLIP, noise_multiplier=SIGMA, batch_size=len(x))
    gradient.step(x, y, how, SystemNoise())
    chunks = -(-len(y) // gradient.chunk)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        for part in torch.arange(len(y)).tensor_split(chunks):
            (F.cross_entropy(model(x[part]), y[part], reduction="sum") / len(y)).backward()
        optimiser.step()

    return step


def ours(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """This library."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    gradient, noise = PrivateGradient(model), SystemNoise()
    how = ClipAndNoise(clip=CLIP, noise_multiplier=SIGMA, batch_size=len(x))

    def step() -> None:
        gradient.step(x, y, how, noise)
        optimiser.step()

    return step


def _opacus(kind: str) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    def make(model: nn.Module, x: Tensor, y: Tensor) -> Step:
        from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
        from opacus.optimizers import DPOptimizer

        wrap = {"hooks": GradSampleModule, "ew": GradSampleModuleExpandedWeights}[kind]
        wrapped = wrap(model, loss_reduction="mean")
        optimiser = DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=0.01),
            noise_multiplier=SIGMA,
            max_grad_norm=CLIP,
            expected_batch_size=len(x),
        )

        def step() -> None:
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(wrapped(x), y).backward()
            optimiser.step()

        return step

    return make


def opacus_ghost(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Opacus's ghost clipping: norms first, then a second backward pass."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
    )
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(wrapped.parameters(), lr=0.01),
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
        expected_batch_size=len(x),
    )
    criterion = DPLossFastGradientClipping(
        wrapped, optimiser, nn.CrossEntropyLoss(reduction="mean"), loss_reduction="mean"
    )

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        criterion(wrapped(x), y).backward()
        optimiser.step()

    return step


def functional(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """`torch.func`, 32 samples at a time."""
    parameters = dict(model.named_parameters())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(weights: dict[str, Tensor], x_i: Tensor, y_i: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (x_i[None],)), y_i[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        weights = {k: p.detach() for k, p in parameters.items()}
        total = {k: torch.zeros_like(p) for k, p in weights.items()}
        for xs, ys in zip(x.split(32), y.split(32), strict=True):
            grads = per_sample(weights, xs, ys)
            norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
            factor = (CLIP / norms.clamp(min=1e-12)).clamp(max=1.0)
            for k, g in grads.items():
                total[k] += torch.einsum("b,b...->...", factor, g)
        for k, p in parameters.items():
            p.grad = (total[k] + SIGMA * CLIP * torch.randn_like(p)) / len(x)
        optimiser.step()

    return step


STEPPERS: dict[str, Callable[[nn.Module, Tensor, Tensor], Step]] = {
    "nonprivate": nonprivate,
    "nonprivate_chunked": nonprivate_chunked,
    "ours": ours,
    "opacus_hooks": _opacus("hooks"),
    "opacus_expanded": _opacus("ew"),
    "opacus_ghost": opacus_ghost,
    "vmap": functional,
}
RIVALS = ("opacus_hooks", "opacus_expanded", "opacus_ghost", "vmap")
