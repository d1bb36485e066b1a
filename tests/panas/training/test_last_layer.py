"""The last layer alone learns what a teacher answers, on maps that are computed once."""

import numpy as np
import pytest
import torch
from tiny_networks import data, flat, networks
from torch.nn import functional as F

from panas.training.last_layer import averaged_maps, teach_last_layer
from panas.training.sgd import OptimizerConfig

WHOLE = OptimizerConfig(learning_rate=0.3, batch_size=15, epochs=1)


def answers(n: int = 15) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(4)).softmax(1)


def test_maps_are_what_the_layer_is_given() -> None:
    (bottom, head), samples = networks(), data(300)
    z = F.relu(bottom.adapt(averaged_maps(bottom, samples)))
    z = F.normalize(z, dim=1) if bottom.unit else z
    torch.testing.assert_close(head(z), head(bottom(samples.inputs())))


@pytest.mark.parametrize("unit", [False, True])
def test_a_step_is_torch_s_own_on_the_whole_network(unit: bool) -> None:
    (bottom, head), (b, h), samples = networks(), networks(), data(15)
    bottom.unit = b.unit = unit
    maps = averaged_maps(bottom, samples)
    rng = np.random.default_rng(0)
    teach_last_layer(bottom, head, maps, answers(), config=WHOLE, rng=rng)
    F.cross_entropy(h(b(samples.inputs())), answers()).backward()
    with torch.no_grad():
        for p in b.adapt.parameters():
            assert p.grad is not None
            p -= 0.3 * p.grad
    torch.testing.assert_close(flat(bottom, head), flat(b, h), rtol=1e-4, atol=1e-6)


def test_nothing_else_moves_and_the_answers_are_learnt() -> None:
    (bottom, head), samples = networks(), data(60)
    before = {n: p.clone() for n, p in bottom.named_parameters()}
    fixed = head.linear.weight.clone()
    maps, wanted = averaged_maps(bottom, samples), answers(60)
    config = OptimizerConfig(optimiser="adam", learning_rate=0.05, batch_size=20, epochs=30)

    def loss() -> float:
        return float(F.cross_entropy(head(bottom(samples.inputs())), wanted))

    first = loss()
    teach_last_layer(bottom, head, maps, wanted, config=config, rng=np.random.default_rng(0))
    assert loss() < first
    moved = {n for n, p in bottom.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"adapt.weight", "adapt.bias"}
    assert torch.equal(head.linear.weight, fixed)
