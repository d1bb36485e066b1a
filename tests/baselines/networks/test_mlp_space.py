"""The space for tables: mixed, chosen, and with the gradients of a loop."""

import torch
from sample_gradients import assert_equal, data
from torch import nn

from baselines.networks.mlp_space import MixedMLP, MLPSpace, chosen_mlp, discretised_mlp
from panas.privacy.gradients.apart import strangers

OPERATIONS = ("relu_4", "tanh_3", "skip", "none")
SPACE = MLPSpace(inputs=9, classes=3, blocks=2, width=5, operations=OPERATIONS)


def network() -> MixedMLP:
    torch.manual_seed(0)
    model = MixedMLP(SPACE)
    for mixture in model.mixtures:
        nn.init.normal_(mixture.weight)
    return model.double()


def test_gradients_of_samples_are_those_of_a_loop() -> None:
    x, y = data(5, 1, 3, 3)
    model = network()
    assert assert_equal(model, x.double(), y).by_rules
    assert not [*strangers(model)]


def test_a_mixture_of_one_operation_is_the_chosen_network() -> None:
    model, x = network(), torch.randn(4, 1, 3, 3, dtype=torch.float64)
    with torch.no_grad():
        for mixture, at in zip(model.mixtures, (1, 2), strict=True):
            mixture.weight.fill_(-1e3)
            mixture.weight[0, at] = 1e3
    assert discretised_mlp(model) == ("tanh_3", "skip")
    chosen = chosen_mlp(SPACE, {"blocks": ["tanh_3", "skip"]}).double()
    chosen[1].load_state_dict(model.stem.state_dict())
    chosen[2].load_state_dict(model.blocks[0][1].state_dict())
    chosen[-1].load_state_dict(model.head.state_dict())
    assert torch.allclose(model(x), chosen(x), rtol=1e-9)


def test_none_is_never_chosen() -> None:
    model = network()
    with torch.no_grad():
        for mixture in model.mixtures:
            mixture.weight[0, -1] = 50.0
    assert "none" not in discretised_mlp(model)
