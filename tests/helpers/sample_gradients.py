"""Per-sample gradients by a loop, and networks and samples that repeat."""

import warnings

import torch
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import build_bottom
from panas.privacy.gradients.per_sample import PerSample, cross_entropy


def loop(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """The oracle: plain autograd, one sample at a time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(x)):
        loss = cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum()
        result = torch.autograd.grad(loss, parameters, allow_unused=True)
        pairs = zip(result, parameters, strict=True)
        rows.append([torch.zeros_like(p) if g is None else g for g, p in pairs])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def assert_equal(model: nn.Module, x: Tensor, y: Tensor, *, slow: bool = False) -> PerSample:
    """Equal to the loop to 1e-5; by the rules, unless `slow` says that `torch.func` has to help."""
    gradients = PerSample(model, cross_entropy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = [g.values.flatten(1) for g in gradients(x, y)]
    assert any("by torch.func" in str(w.message) for w in caught) == slow
    expected = [g.flatten(1) for g in loop(model, x, y)]
    whole = torch.cat(expected, 1).norm(dim=1)
    off = torch.cat(got, 1) - torch.cat(expected, 1)
    assert bool((off.norm(dim=1) <= 1e-5 * whole + 1e-9).all())
    return gradients


def seeded(model: nn.Module) -> nn.Module:
    g = torch.Generator().manual_seed(0)
    for p in model.parameters():
        nn.init.uniform_(p, -0.4, 0.4, generator=g)
    return model


def data(n: int, *shape: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, *shape, generator=g), torch.randint(3, (n,), generator=g)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


def genome_network(genome: Genome, shape: tuple[int, int, int], seed: int) -> nn.Module:
    g = torch.Generator().manual_seed(seed)
    bottom = build_bottom(genome, shape=shape, width=6, unit=bool(seed % 2), generator=g)
    return nn.Sequential(bottom, build_head(6, 3, init="random", generator=g)).train()
