"""What each kind of layer gives going backward: per-sample gradients, beside that of its input.

A batch of B samples with C channels, folded into one sample with B C channels, turns the ordinary
weight gradient of a grouped layer into the gradients of all samples, in the same time.

| layer | gradients of its weights, one a sample |
|---|---|
| depthwise, 1 x 1 | the sum over the map of input times gradient of the output |
| depthwise, above 3 x 3 | the folded input, correlated with the folded gradient of the output |
| any other convolution | torch's backward pass on the folded batch, in B times the groups |
| convolution 1 x 1 | G_i X_i^T, a batched product over the map |
| group norm | torch's backward pass on the folded batch, in B times the groups |
| linear | g_i x_i^T, written out only for layers over positions; on a CPU by exact sums |
| mixture | the products of its inputs with g_i, through the softmax |
| any other | `torch.func`: the vector-Jacobian product of the layer, mapped over the samples |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from panas.architecture.mixture import Mixture
from panas.features.exact import product

AT_ONCE = 1 << 17  # numbers that a sum turns to float64 at once, so that they stay in the caches
ALIGNED = 16  # numbers of 32 bits in a line of a cache, and in the longest vector
Saved = tuple[Tensor, ...]
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Dense:
    """Gradients of a parameter, one a sample, as they are."""

    values: Float[Tensor, "b ..."]

    def norms(self) -> Float[Tensor, "b"]:
        """Their Euclidean norms."""
        return _lengths(self.values.flatten(1))

    def weighted_sum(self, weights: Float[Tensor, "b"]) -> Float[Tensor, "..."]:
        """The sum of all gradients, each times its weight, in float64."""
        rows, wide = self.values.flatten(1), weights.double()
        parts = rows.split(max(256, AT_ONCE // max(1, len(rows))), dim=1)
        return torch.cat([wide @ part.double() for part in parts]).view(self.values.shape[1:])

    def finite(self) -> "Dense":
        """The same with zeros for numbers that are not finite."""
        return Dense(self.values.nan_to_num(0.0, 0.0, 0.0))


@dataclass(frozen=True)
class Outer:
    """Gradients rows_i columns_i^T, never written out: a linear layer's on one vector a sample."""

    rows: Float[Tensor, "b o"]
    columns: Float[Tensor, "b i"]

    @property
    def values(self) -> Float[Tensor, "b o i"]:
        """The gradients, written out."""
        return self.rows[:, :, None] * self.columns[:, None, :]

    def norms(self) -> Float[Tensor, "b"]:
        """Their Euclidean norms."""
        # Squares of small numbers vanish in 32 bits, and the other factor can make much of those.
        rows, columns = _lengths(self.rows.double()), _lengths(self.columns.double())
        return (rows * columns).to(self.rows.dtype)

    def weighted_sum(self, weights: Float[Tensor, "b"]) -> Float[Tensor, "o i"]:
        """The sum of all gradients, each times its weight, in float64."""
        return (self.rows.double() * weights.double()[:, None]).T @ self.columns.double()

    def finite(self) -> "Outer":
        """The same with zeros for numbers that are not finite."""
        return Outer(*(t.nan_to_num(0.0, 0.0, 0.0) for t in (self.rows, self.columns)))


def _lengths(rows: Float[Tensor, "b k"]) -> Float[Tensor, "b"]:
    """Euclidean norms of rows, to 1e-6 relatively, whatever their width."""
    # Torch's norm, in few running sums, loses 1 % of 10^7 equal numbers; its sum goes pair by pair.
    if rows.shape[1] <= 2048:
        return torch.linalg.vector_norm(rows, dim=1)
    return rows.square().sum(1).sqrt()


Gradients = Dense | Outer
Grads = dict[str, Gradients]
Tensors = dict[str, Tensor]
Passed = tuple[Tensor | None, Grads]


class Rule(NamedTuple):
    """How a layer runs forward, and what it gives going backward.

    `forward(layer, x)` returns the output and what to keep. `backward(layer, x, kept, g, needed)`
    returns the gradient of x (None, if it is not needed) and each parameter's gradients by name.
    """

    forward: Callable[[nn.Module, Tensor], tuple[Tensor, Saved]]
    backward: Callable[[Any, Tensor, Saved, Tensor, bool], Passed]


def rule_for(layer: nn.Module) -> Rule | None:
    """The closed form for a layer; None for subclasses, which may compute otherwise."""
    if not layer._parameters.keys() <= {"weight", "bias"}:
        return None  # the weight is computed from others, as torch.nn.utils.weight_norm does
    if type(layer) not in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        rules = {nn.Linear: LINEAR, nn.GroupNorm: GROUP_NORM, Mixture: MIXTURE}
        return rules.get(type(layer))
    assert isinstance(layer, Convolution)
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    one = {*layer.kernel_size, *layer.stride} == {1} and not any(layer.padding)
    if one and layer.groups == 1:
        return POINTWISE
    return DEPTHWISE if layer.weight.shape[1] == 1 else CONVOLUTION


def _as_usual(layer: nn.Module, x: Tensor) -> tuple[Tensor, Saved]:
    return type(layer).forward(layer, x), ()


def _fold(t: Shaped[Tensor, "b c *map"]) -> Shaped[Tensor, "1 bc *map"]:
    return t.reshape(1, -1, *t.shape[2:])


def _backward(
    layer: Convolution, g: Tensor, x: Tensor, w: Tensor, groups: int, mask: list[bool]
) -> Any:
    geometry = layer.stride, layer.padding, layer.dilation, False, [0] * len(layer.kernel_size)
    return torch.ops.aten.convolution_backward(g, x, w, None, *geometry, groups, mask)


def _input_gradient(layer: Convolution, x: Tensor, g: Tensor) -> Tensor:
    return _backward(layer, g, x, layer.weight.detach(), layer.groups, [True, False, False])[0]


def _with_bias(layer: Convolution, weight: Tensor, g: Tensor) -> Grads:
    grads: Grads = {"weight": Dense(weight)}
    if layer.bias is not None:
        grads["bias"] = Dense(g.flatten(2).sum(2))
    return grads


def _aligned(t: Float[Tensor, "b c k"]) -> Float[Tensor, "b c m"]:
    """Filled up with zeros so that each sample starts alike in memory: some sums depend on it."""
    return F.pad(t, (0, -t.shape[2] % ALIGNED))


def _pointwise(layer: Convolution, x: Tensor, _: Saved, g: Tensor, needed: bool) -> Passed:
    rows, columns = (_aligned(t.flatten(2)) for t in (g, x))
    weight = torch.bmm(rows, columns.transpose(1, 2)).view(-1, *layer.weight.shape)
    return (_input_gradient(layer, x, g) if needed else None), _with_bias(layer, weight, g)


def _depthwise(layer: Convolution, x: Tensor, kept: Saved, g: Tensor, needed: bool) -> Passed:
    """A kernel's gradient: the input, correlated with the output's; stride and dilation swap.

    On a CPU up to 15 times as fast as torch's backward pass, which is fast up to 3 x 3 only.
    """
    inputs, outputs = x.shape[1], g.shape[1]
    repeated = x.repeat_interleave(outputs // inputs, 1) if outputs > inputs else x
    if {*layer.kernel_size, *layer.stride} == {1} and not any(layer.padding):
        # Torch's sum over the map depends on where in memory a sample lies; this one does not.
        weight = (repeated * g).flatten(2).sum(2).view(-1, *layer.weight.shape)
        return (_input_gradient(layer, x, g) if needed else None), _with_bias(layer, weight, g)
    if x.device.type != "cpu" or max(layer.kernel_size) <= 3:
        return _convolution(layer, x, kept, g, needed)
    correlate = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    weight = correlate(
        _fold(repeated),
        g.reshape(-1, 1, *g.shape[2:]),
        stride=layer.dilation,
        padding=layer.padding,
        dilation=layer.stride,
        groups=len(x) * outputs,
    )
    for axis, size in enumerate(layer.kernel_size, start=2):
        weight = weight.narrow(axis, 0, size)  # a stride can leave a border that nothing reaches
    grads = _with_bias(layer, weight.reshape(-1, *layer.weight.shape), g)
    return (_input_gradient(layer, x, g) if needed else None), grads


def _convolution(layer: Convolution, x: Tensor, _: Saved, g: Tensor, needed: bool) -> Passed:
    b, shape = len(x), layer.weight.shape
    w, mask = layer.weight.detach().expand(b, *shape).flatten(0, 1), [needed, True, False]
    gx, weight, _none = _backward(layer, _fold(g), _fold(x), w, b * layer.groups, mask)
    return (gx.view_as(x) if needed else None), _with_bias(layer, weight.view(b, *shape), g)


def _linear_forward(layer: nn.Module, x: Tensor) -> tuple[Tensor, Saved]:
    """The output by exact sums, so that no kernel's choice shows."""
    assert isinstance(layer, nn.Linear)
    if not _is_exact(layer, x):
        return _as_usual(layer, x)
    y = product(x.flatten(0, -2), layer.weight.detach().T)
    y = y if layer.bias is None else y + layer.bias.detach().double()
    return y.to(x.dtype).view(*x.shape[:-1], -1), ()


def _is_exact(layer: nn.Linear, x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == layer.weight.dtype == torch.float32


def _linear(layer: nn.Linear, x: Tensor, _: Saved, g: Tensor, needed: bool) -> Passed:
    grads: Grads
    if x.dim() == 2:
        grads = {"weight": Outer(rows=g, columns=x), "bias": Dense(g)}
    else:
        rows, columns = g.flatten(1, -2), x.flatten(1, -2)
        turned = (_aligned(t.transpose(1, 2)) for t in (rows, columns))
        weight = torch.bmm(next(turned), next(turned).transpose(1, 2))
        grads = {"weight": Dense(weight), "bias": Dense(rows.sum(1))}
    if not needed:
        return None, grads
    weight = layer.weight.detach()
    if not _is_exact(layer, x):
        return g @ weight, grads
    return product(g.flatten(0, -2), weight).to(g.dtype).view_as(x), grads


def _group_norm_forward(layer: nn.Module, x: Tensor) -> tuple[Tensor, Saved]:
    assert isinstance(layer, nn.GroupNorm)
    b, c, size = *x.shape[:2], x[0, 0].numel()
    y, *kept = torch.native_group_norm(
        x.contiguous(), layer.weight, layer.bias, b, c, size, layer.num_groups, layer.eps
    )
    return y, tuple(kept)


def _group_norm(layer: nn.GroupNorm, x: Tensor, kept: Saved, g: Tensor, needed: bool) -> Passed:
    b, c = x.shape[:2]
    folded = (_fold(g.contiguous()), _fold(x.contiguous()), *(t.reshape(1, -1) for t in kept))
    weights = layer.weight.detach().expand(b, c).reshape(-1)
    sizes = (1, b * c, x[0, 0].numel(), b * layer.num_groups)
    gx, gw, gb = torch.ops.aten.native_group_norm_backward(
        *folded, weights, *sizes, [needed, True, True]
    )
    grads: Grads = {"weight": Dense(gw.view(b, c)), "bias": Dense(gb.view(b, c))}
    return (gx.view_as(x) if needed else None), grads


def _mixture(layer: Mixture, x: Tensor, _: Saved, g: Tensor, needed: bool) -> Passed:
    """p_k (s_k - sum_l p_l s_l) for shares p, where s_k is the product of input k with g."""
    with torch.no_grad():
        p, (edges, inputs) = layer.shares(), x.shape[1:3]
        products = torch.bmm(x.flatten(1, 2).flatten(2), g.flatten(1)[:, :, None])
        weighted = x.new_zeros(len(x), *p.shape)
        weighted[:, :, :inputs] = p[:, :inputs] * products.view(-1, edges, inputs)
        grads: Grads = {"weight": Dense(weighted - p * weighted.sum(2, keepdim=True))}
        if not needed:
            return None, grads
        return p[:, :inputs].reshape(1, edges, inputs, *[1] * (x.dim() - 3)) * g[
            :, None, None
        ], grads


def _any_layer(layer: nn.Module, x: Tensor, _: Saved, g: Tensor, needed: bool) -> Passed:
    moving = {n: p.detach() for n, p in layer.named_parameters() if p.requires_grad}
    fixed = frozen(layer)

    def one(x_i: Tensor, g_i: Tensor) -> tuple[Tensor, Tensors]:
        def forward(parameters: Tensors, x_i: Tensor) -> Tensor:
            return functional_call(layer, (parameters, fixed), (x_i[None],))[0]

        if needed:
            grads, gx = vjp(forward, moving, x_i)[1](g_i)
            return gx, grads
        return x_i, vjp(lambda parameters: forward(parameters, x_i), moving)[1](g_i)[0]

    if not moving and not needed:
        return None, {}
    # Randomness is an error: a second forward pass would draw another dropout than the first.
    gx, grads = vmap(one, randomness="error")(x, g)
    return (gx if needed else None), {n: Dense(g) for n, g in grads.items()}


POINTWISE = Rule(_as_usual, _pointwise)
DEPTHWISE = Rule(_as_usual, _depthwise)
CONVOLUTION = Rule(_as_usual, _convolution)
LINEAR = Rule(_linear_forward, _linear)
GROUP_NORM = Rule(_group_norm_forward, _group_norm)
MIXTURE = Rule(_as_usual, _mixture)
ANY_LAYER = Rule(_as_usual, _any_layer)


def frozen(module: nn.Module) -> Tensors:
    """Parameters that do not move, and buffers, by name."""
    parameters = {n: p.detach() for n, p in module.named_parameters() if not p.requires_grad}
    return parameters | dict(module.named_buffers())
