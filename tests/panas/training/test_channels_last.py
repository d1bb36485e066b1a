"""Channels last in a training: the same numbers, and all as it was afterwards."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import stream
from panas.training.channels_last import LAST, channels_last, group_norm


@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
@pytest.mark.parametrize(
    ("groups", "shape"), [(8, (3, 16, 5, 4)), (2, (2, 6, 7, 7)), (1, (4, 3, 2, 2))]
)
def test_the_norm_and_its_gradients_are_those_of_torch(
    groups: int, shape: tuple[int, ...], layout: torch.memory_format
) -> None:
    generator = torch.Generator().manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    x = (drawn(*shape) * 3 + 20).contiguous(memory_format=layout).requires_grad_()
    weight, bias, g = (
        drawn(shape[1]).requires_grad_(),
        drawn(shape[1]).requires_grad_(),
        drawn(*shape),
    )
    ours = group_norm(x, groups, weight, bias, 1e-5)
    theirs = F.group_norm(x, groups, weight, bias, 1e-5)
    torch.testing.assert_close(ours, theirs)
    for mine, wanted in zip(
        torch.autograd.grad(ours, (x, weight, bias), g),
        torch.autograd.grad(theirs, (x, weight, bias), g),
        strict=True,
    ):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_step_with_channels_last_is_the_same_step_and_leaves_nothing_behind(
    channels: int,
) -> None:
    spec = NetworkSpec(shape=(channels, 12, 12), classes=4, width=16)
    bottom, head = spec.network(Genome.parse("c16k3-avg-c32k5"), stream(0, "network"), "cpu")
    model = nn.Sequential(bottom, head)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, channels, 12, 12))).float()
    y = torch.arange(6) % 4
    before = {name: (t.clone(), t.stride()) for name, t in model.state_dict().items()}
    F.cross_entropy(model(x), y).backward()
    wanted = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    layouts = list[bool]()

    def look(block: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        layouts.append(out.is_contiguous(memory_format=LAST))
        out.register_hook(lambda g: layouts.append(g.is_contiguous(memory_format=LAST)))

    with channels_last(model, bottom.blocks):
        seen = [block.register_forward_hook(look) for block in bottom.blocks]
        F.cross_entropy(model(x.clone(memory_format=LAST)), y).backward()
    for hook in seen:
        hook.remove()
    assert layouts == [True] * 6
    for p, gradient in zip(
        [p for p in model.parameters() if p.grad is not None], wanted, strict=True
    ):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-4, atol=1e-6)
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name][0])
        assert t.stride() == before[name][1]
    assert not [m for m in model.modules() if "forward" in vars(m) or m._forward_hooks]
