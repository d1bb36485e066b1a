"""Filter pruning of a plain sequential network by the norm of its filters, down to a budget.

A filter is an output of a convolution or of a linear layer. Removing it removes its entries of the
norms and depthwise convolutions after it, and its inputs of the next layer. The last layer's
outputs are the classes: they stay. Filters that a group norm normalises together go together, so
that the pruned network computes what the whole one does with those filters at zero.

Source: DecNAS (Yuan et al.), section 4.1; NetAdapt (Yang et al. 2018).
"""

import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from baselines.networks.cnns import SMALLEST
from panas.architecture.network import Norm
from panas.runtime.errors import BadInput

Shape = tuple[int, int, int]
Resource = Callable[[nn.Sequential], float]
"""What a network needs of the resource that is limited."""

Kind = Literal["macs", "bytes", "latency"]
PASSING = (nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.Flatten, nn.Identity, nn.Dropout)
NORMS = (nn.BatchNorm2d, nn.GroupNorm)
REPEATS = 9  # of a measurement, whose median counts


def plain_network(
    shape: Shape,
    classes: int,
    widths: Sequence[int],
    hidden: Sequence[int],
    norm: Norm,
    together: int = 2,
) -> nn.Sequential:
    """Convolutions 3x3 with norm, ReLU and a pool each, then hidden layers and the logits.

    Args:
        shape: (channels, height, width) of an image.
        classes: width of the logits.
        widths: channels of the convolutions, each rounded up to a multiple of `together`.
        hidden: widths of the hidden layers.
        norm: "group" (allowed under DP) or "batch".
        together: channels that a group norm normalises together, and so the step of pruning.
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for least in widths:
        wide = together * math.ceil(least / together)
        normed = nn.BatchNorm2d(wide) if norm == "batch" else nn.GroupNorm(wide // together, wide)
        layers += [nn.Conv2d(channels, wide, 3, padding=1), normed, nn.ReLU()]
        channels = wide
        if min(height, width) >= SMALLEST:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    layers.append(nn.Flatten())
    features = channels * height * width
    for wide in hidden:
        layers += [nn.Linear(features, wide), nn.ReLU()]
        features = wide
    return nn.Sequential(*layers, nn.Linear(features, classes))


def prunable(model: nn.Sequential) -> list[int]:
    """Where the layers stand whose filters can go; BadInput if there are none."""
    for layer in model:
        known = isinstance(layer, (*PASSING, *NORMS, nn.Linear, nn.Conv2d))
        if not known or (isinstance(layer, nn.Conv2d) and layer.groups > 1 and not _deep(layer)):
            raise BadInput(
                "expected a sequence of convolutions, linear layers, norms, activations and "
                f"pools, got {type(layer).__name__}; give another network"
            )
    result = [i for i, layer in enumerate(model) if _weighted(layer)][:-1]
    if not result:
        raise BadInput(
            "expected a network with a convolution or linear layer before its last, got nothing to "
            "prune; give it wider or hidden layers"
        )
    return result


def widths_of(model: nn.Sequential) -> tuple[int, ...]:
    """Filters of each prunable layer: with the network that it came of, all of its form."""
    return tuple(len(_weight(model[at])) for at in prunable(model))


def unit_of(model: nn.Sequential, at: int) -> int:
    """How many filters of a layer go together: those that a group norm normalises together."""
    for layer in model[at + 1 :]:
        if isinstance(layer, nn.GroupNorm):
            return layer.num_channels // layer.num_groups
        if _weighted(layer):
            break
    return 1


def check_prunable(model: nn.Sequential) -> None:
    """BadInput if no filter of any layer can go."""
    if all(len(_weight(model[at])) <= unit_of(model, at) for at in prunable(model)):
        raise BadInput(
            "expected a layer with more filters than go together, got nothing to prune; make it "
            "wider"
        )


def strongest(model: nn.Sequential, at: int, count: int) -> list[int]:
    """The filters of largest l2 norm, in their order.

    Args:
        model: of `plain_network`.
        at: place of the layer in it.
        count: how many, a multiple of `unit_of`.
    """
    unit = unit_of(model, at)
    power = _weight(model[at]).detach().flatten(1).square().sum(1).reshape(-1, unit).sum(1)
    units = power.argsort(descending=True, stable=True)[: count // unit].sort().values
    return [int(u) * unit + i for u in units for i in range(unit)]


def kept(model: nn.Sequential, at: int, filters: Sequence[int]) -> nn.Sequential:
    """A copy of the network with these filters of one layer; whole units, in order.

    Args:
        model: of `plain_network`; it stays as it is.
        at: place of the layer in it.
        filters: numbers of those to keep, ascending, in whole units.
    """
    old, index = len(_weight(model[at])), torch.tensor(list(filters))
    layers = [deepcopy(layer) for layer in model]
    layers[at] = _sliced(layers[at], outputs=index)
    for i, layer in enumerate(layers[at + 1 :], start=at + 1):
        if _weighted(layer):
            area = _weight(layer).shape[1] // old  # above 1 behind a flattened map
            inputs = (index[:, None] * area + torch.arange(area)).flatten()
            layers[i] = _sliced(layer, inputs=inputs)
            break
        if isinstance(layer, (*NORMS, nn.Conv2d)):
            layers[i] = _sliced(layer, outputs=index)
    return nn.Sequential(*layers)


def with_widths(model: nn.Sequential, widths: Sequence[int]) -> nn.Sequential:
    """A network of the same form with so many filters a layer, to load weights into."""
    places = prunable(model)
    if len(widths) != len(places) or any(
        not 1 <= wide <= most for wide, most in zip(widths, widths_of(model), strict=True)
    ):
        raise BadInput(f"expected widths within {widths_of(model)}, got {tuple(widths)}")
    for at, wide in zip(places, widths, strict=True):
        model = kept(model, at, range(wide))
    return model


def reduced(
    model: nn.Sequential, at: int, budget: float, resource: Resource
) -> nn.Sequential | None:
    """The network with as many of a layer's strongest filters as the budget allows, and fewer than
    before; None if even the last unit is too much.

    Args:
        model: of `plain_network`; it stays as it is.
        at: place of the layer in it.
        budget: the most that the result may cost, in the resource's unit.
        resource: cost of a network.
    """
    unit = unit_of(model, at)
    low, high, result = 1, len(_weight(model[at])) // unit - 1, None
    while low <= high:
        middle = (low + high) // 2
        smaller = kept(model, at, strongest(model, at, middle * unit))
        if resource(smaller) <= budget:
            low, result = middle + 1, smaller
        else:
            high = middle - 1
    return result


def candidates(
    model: nn.Sequential, budget: float, resource: Resource
) -> list[tuple[int, nn.Sequential]]:
    """One pruned network a layer that can meet the budget, with the place of the layer.

    Args:
        model: of `plain_network`; it stays as it is.
        budget: the most that a candidate may cost, in the resource's unit.
        resource: cost of a network.
    """
    results = ((at, reduced(model, at, budget, resource)) for at in prunable(model))
    return [(at, smaller) for at, smaller in results if smaller is not None]


def uniform(model: nn.Sequential, multiplier: float) -> nn.Sequential:
    """The rival: every layer keeps the same share of its filters, at least one unit."""
    for at in prunable(model):
        unit, filters = unit_of(model, at), len(_weight(model[at]))
        count = unit * max(1, round(multiplier * filters / unit))
        model = kept(model, at, strongest(model, at, min(count, filters)))
    return model


def uniform_within(model: nn.Sequential, budget: float, resource: Resource) -> nn.Sequential | None:
    """The rival at the largest width multiplier that the budget allows; None if none does.

    Args:
        model: of `plain_network`; it stays as it is.
        budget: the most that the result may cost, in the resource's unit.
        resource: cost of a network.
    """
    low, high, result = 0.0, 1.0, None
    for _ in range(12):
        middle = (low + high) / 2
        smaller = uniform(model, middle)
        if resource(smaller) <= budget:
            low, result = middle, smaller
        else:
            high = middle
    return result


def macs_by_layer(model: nn.Sequential, shape: Shape) -> list[int]:
    """Multiply-accumulates of each layer for one sample; only convolutions and linear layers."""
    outputs = _outputs(model, shape)
    return [
        _weight(layer).numel() * (math.prod(out[1:]) if isinstance(layer, nn.Conv2d) else 1)
        if isinstance(layer, nn.Conv2d | nn.Linear)
        else 0
        for layer, out in zip(model, outputs, strict=True)
    ]


@torch.no_grad()
def layer_times(model: nn.Sequential, shape: Shape) -> list[float]:
    """Milliseconds that each layer takes here for one sample: medians, never twice the same."""
    x, result = torch.zeros(1, *shape), []
    for layer in deepcopy(model).cpu().eval():
        taken = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            y = layer(x)
            taken.append(1e3 * (time.perf_counter() - began))
        result.append(sorted(taken)[REPEATS // 2])
        x = y
    return result


def resource_of(kind: Kind, shape: Shape, times: Sequence[float], whole: nn.Sequential) -> Resource:
    """How a resource is counted, for one sample.

    Latency is estimated from the layers' times, each in proportion to the layer's MACs, or to its
    outputs where it has none.

    Args:
        kind: what is counted.
        shape: (channels, height, width) of an image.
        times: of the layers of `whole`, in ms; of other kinds not read.
        whole: the network before any pruning.
    """
    if kind == "macs":
        return lambda model: float(sum(macs_by_layer(model, shape)))
    if kind == "bytes":
        return lambda model: float(
            sum(t.numel() * t.element_size() for t in model.state_dict().values())
        )
    full = _work(whole, shape)

    def latency(model: nn.Sequential) -> float:
        work = _work(model, shape)
        return sum(t * m / n for t, m, n in zip(times, work, full, strict=True))

    return latency


def _work(model: nn.Sequential, shape: Shape) -> list[int]:
    pairs = zip(macs_by_layer(model, shape), _outputs(model, shape), strict=True)
    return [macs or math.prod(out) for macs, out in pairs]


@torch.no_grad()
def _outputs(model: nn.Sequential, shape: Shape) -> list[tuple[int, ...]]:
    x, result = torch.zeros(1, *shape), []
    for layer in deepcopy(model).cpu().eval():
        x = layer(x)
        result.append(tuple(x.shape[1:]))
    return result


def _deep(layer: nn.Module) -> bool:
    """Whether it is a depthwise convolution: one filter a channel, which goes with its channel."""
    return isinstance(layer, nn.Conv2d) and (
        1 < layer.groups == layer.in_channels == layer.out_channels
    )


def _weighted(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d | nn.Linear) and not _deep(layer)


def _weight(layer: nn.Module) -> Tensor:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight


@torch.no_grad()
def _sliced(
    layer: nn.Module, *, outputs: Tensor | None = None, inputs: Tensor | None = None
) -> nn.Module:
    """The layer with these of its outputs or inputs; it changes what it is given."""
    state = layer.state_dict()
    for name, array in state.items():
        if outputs is not None and array.dim():
            state[name] = array[outputs]
        elif inputs is not None and name == "weight":
            state[name] = array[:, inputs]
    ins, outs = inputs if inputs is not None else (), outputs if outputs is not None else ()
    if isinstance(layer, nn.Conv2d):
        if _deep(layer):
            layer.groups = layer.in_channels = len(outs)
        layer.in_channels = len(ins) or layer.in_channels
        layer.out_channels = len(outs) or layer.out_channels
    elif isinstance(layer, nn.Linear):
        layer.in_features = len(ins) or layer.in_features
        layer.out_features = len(outs) or layer.out_features
    elif isinstance(layer, nn.BatchNorm2d):
        layer.num_features = len(outs)
    elif isinstance(layer, nn.GroupNorm):
        unit = layer.num_channels // layer.num_groups
        layer.num_channels, layer.num_groups = len(outs), len(outs) // unit
    for name, parameter in layer.named_parameters(recurse=False):
        setattr(layer, name, nn.Parameter(state[name].clone(), parameter.requires_grad))
    for name, _ in list(layer.named_buffers(recurse=False)):
        setattr(layer, name, state[name].clone())
    return layer
