"""Filter pruning: against the whole network with those filters at zero, and MACs by hand."""

import pytest
import torch
from torch import nn

from baselines.networks.cnns import initialise, macs_of
from baselines.networks.pruning import (
    Kind,
    candidates,
    kept,
    layer_times,
    macs_by_layer,
    plain_network,
    prunable,
    reduced,
    resource_of,
    strongest,
    uniform,
    uniform_within,
    unit_of,
    widths_of,
    with_widths,
)
from panas.architecture.network import Norm
from panas.runtime.errors import BadInput

SHAPE = (1, 8, 8)


def net(norm: Norm = "group") -> nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    model = plain_network(SHAPE, 3, (4, 6), (5,), norm)
    initialise(model, generator)
    for layer in model:  # running statistics, scales and shifts that differ by channel
        if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            for array in layer.state_dict().values():
                if array.is_floating_point():
                    array.uniform_(0.5, 1.5, generator=generator)
    return model.eval()


def mobile() -> nn.Sequential:
    """A block with a depthwise convolution."""
    layers = [nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()]
    layers += [nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.BatchNorm2d(6), nn.ReLU()]
    layers += [nn.Conv2d(6, 4, 1), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(4, 3)]
    return nn.Sequential(*layers).eval()


@torch.no_grad()
def zeroed(model: nn.Sequential, at: int, filters: list[int]) -> nn.Sequential:
    """The whole network, with all filters but these at zero, also behind their norms."""
    width, inside = len(model[at].weight), False
    gone = [i for i in range(width) if i not in filters]
    for i, layer in enumerate(model):
        if i > at and isinstance(layer, nn.Linear | nn.Conv2d) and len(layer.weight) != width:
            break
        inside = inside or i == at
        if inside and hasattr(layer, "weight"):
            layer.weight[gone], layer.bias[gone] = 0, 0
    return model


CASES = [(norm, at, [0, 1]) for norm in ("group", "batch") for at in (0, 4, 9)]


@pytest.mark.parametrize(("norm", "at", "filters"), CASES)
def test_a_pruned_network_is_the_whole_one_with_filters_at_zero(
    norm: Norm, at: int, filters: list[int]
):
    x = torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(1))
    smaller = kept(net(norm), at, filters).eval()
    assert len(smaller[at].weight) == 2
    assert torch.allclose(smaller(x), zeroed(net(norm), at, filters)(x), atol=1e-6)


def test_a_depthwise_convolution_goes_with_its_channels():
    model, x = mobile(), torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert prunable(model) == [0, 6]
    smaller = kept(model, 0, [1, 4, 5]).eval()
    assert smaller[3].groups == 3
    with torch.no_grad():
        for i in (0, 1, 3, 4):
            model[i].weight[[0, 2, 3]], model[i].bias[[0, 2, 3]] = 0, 0
    assert torch.allclose(smaller(x), model(x), atol=1e-6)
    smaller(x).sum().backward()


def test_the_strongest_filters_stay():
    model = net("batch")
    norms = [float(f.norm()) for f in model[4].weight.detach()]
    best = sorted(sorted(range(6), key=lambda i: -norms[i])[:3])
    assert strongest(model, 4, 3) == best
    grouped = net("group")
    assert unit_of(grouped, 4) == 2
    weight = grouped[4].weight.detach()
    pairs = [float(weight[2 * u : 2 * u + 2].norm()) for u in range(3)]
    weakest = pairs.index(min(pairs))
    assert strongest(grouped, 4, 4) == [i for i in range(6) if i // 2 != weakest]


def test_macs_by_hand():
    model = net()
    # 8x8 maps of 4 filters of 3x3x1, 4x4 maps of 6 of 3x3x4, then 6x2x2 to 5 to 3.
    by_hand = {0: 64 * 4 * 9, 4: 16 * 6 * 36, 9: 24 * 5, 11: 5 * 3}
    result = macs_by_layer(model, SHAPE)
    assert {i: n for i, n in enumerate(result) if n} == by_hand
    assert sum(result) == macs_of(model, SHAPE)
    smaller = kept(model, 0, [0, 1])
    assert sum(macs_by_layer(smaller, SHAPE)) == 64 * 2 * 9 + 16 * 6 * 18 + 24 * 5 + 5 * 3


@pytest.mark.parametrize("kind", ["macs", "bytes", "latency"])
def test_each_layer_gives_one_candidate_within_the_budget(kind: Kind):
    model = net()
    times = [1.0] * len(model)
    resource = resource_of(kind, SHAPE, times, model)
    budget = 0.8 * resource(model)
    result = candidates(model, budget, resource)
    assert result
    for at, smaller in result:
        changed = [a for a, b in zip(widths_of(model), widths_of(smaller), strict=True) if a != b]
        assert len(changed) == 1
        assert resource(smaller) <= budget
        # The largest that fits: one unit more does not.
        more = len(smaller[at].weight) + unit_of(model, at)
        larger = kept(model, at, strongest(model, at, more))
        assert more >= len(model[at].weight) or resource(larger) > budget


def test_a_layer_that_cannot_meet_the_budget_gives_none():
    model = net()
    resource = resource_of("macs", SHAPE, (), model)
    assert reduced(model, 9, 0.5 * resource(model), resource) is None


def test_latency_is_in_proportion_to_macs():
    model = net()
    latency = resource_of("latency", SHAPE, [1.0] * len(model), model)
    assert latency(model) == len(model)
    # Its own layer, its activation and the layer behind it.
    assert latency(kept(model, 9, [0])) == pytest.approx(len(model) - 3 * 4 / 5)
    assert len(layer_times(model, SHAPE)) == len(model)


def test_uniform_multipliers_shrink_every_layer_alike():
    model = net("batch")
    assert widths_of(uniform(model, 0.5)) == (2, 3, 2)
    resource = resource_of("macs", SHAPE, (), model)
    result = uniform_within(model, 0.5 * resource(model), resource)
    assert result is not None
    assert resource(result) <= 0.5 * resource(model)
    assert uniform_within(model, 1, resource) is None


def test_widths_say_all_of_a_pruned_network():
    smaller = kept(kept(net(), 4, [0, 1, 4, 5]), 9, [1, 2])
    again = with_widths(net(), widths_of(smaller)).eval()
    again.load_state_dict(smaller.state_dict())
    x = torch.ones(1, *SHAPE)
    assert torch.equal(again(x), smaller.eval()(x))
    with pytest.raises(BadInput, match="expected widths within"):
        with_widths(net(), (4, 8, 5))


def test_nothing_to_prune_is_refused_in_one_line():
    with pytest.raises(BadInput, match="nothing to prune") as refused:
        prunable(plain_network(SHAPE, 3, (), (), "group"))
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="got Sigmoid"):
        prunable(nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Sigmoid(), nn.Linear(4, 3)))
