"""Per-sample gradients of a network in one backward pass, at about the price of plain ones.

A batch of B samples with C channels, folded into one sample with B C channels, turns the ordinary
weight gradient of a grouped layer into the gradients of all samples, computed by the same kernel
in the same time. So each layer with a rule runs as usual going forward, and going backward gives
the gradient of its input and, in place of the summed gradient of its weights, one a sample:

| layer | gradients of its weights, one a sample |
|---|---|
| convolution, depthwise or grouped | the k x k correlations of the folded batch, B C groups |
| convolution 1 x 1 | G_i X_i^T, a batched product over the map |
| group norm | the closed form, from the folded batch of B C channels in B times the groups |
| linear | g_i x_i^T |
| any other | `torch.func`: the vector-Jacobian product of the layer, mapped over the samples |

Autograd does what lies between (activations, pools, shortcuts). A layer whose parameters are used
in a way that no rule sees, or that does not map one tensor to one tensor, moves the whole network
to `torch.func`, and where that fails to one sample at a time: slower, never wrong.

Privacy: a gradient belongs to one sample only if the network never mixes samples.
`mixes_samples` asks the network itself.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs (b, ...) and targets (b, ...) to one loss a sample, (b,)."""

Saved = tuple[Tensor, ...]
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Dense:
    """Gradients of a parameter, one a sample, as they are: (b, *shape)."""

    values: Float[Tensor, "b ..."]

    def norms(self) -> Float[Tensor, "b"]:
        """Their Euclidean norms."""
        return torch.linalg.vector_norm(self.values.flatten(1), dim=1)

    def weighted_sum(self, weights: Float[Tensor, "b"]) -> Float[Tensor, "..."]:
        """The sum of all gradients, each times its weight."""
        return (weights @ self.values.flatten(1)).view(self.values.shape[1:])


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
        return torch.linalg.vector_norm(self.rows, dim=1) * torch.linalg.vector_norm(
            self.columns, dim=1
        )

    def weighted_sum(self, weights: Float[Tensor, "b"]) -> Float[Tensor, "o i"]:
        """The sum of all gradients, each times its weight."""
        return (self.rows * weights[:, None]).T @ self.columns


Gradients = Dense | Outer

Grads = dict[str, Gradients]
Tensors = dict[str, Tensor]


class Rule(NamedTuple):
    """How a layer runs forward, and what it gives going backward.

    `forward(layer, x)` returns the output and what to keep. `backward(layer, x, kept, g, needed)`
    returns the gradient of x (or None, if it is not needed) and each parameter's gradients, by
    name, one a sample: (b, *shape of the parameter).
    """

    forward: Callable[[nn.Module, Tensor], tuple[Tensor, Saved]]
    backward: Callable[[Any, Tensor, Saved, Tensor, bool], tuple[Tensor | None, Grads]]


class Unsupported(Exception):
    """A layer was used in a way that its rule does not know."""


def rule_for(layer: nn.Module) -> Rule | None:
    """The closed form for a layer, or None. Subclasses have none: they may compute otherwise."""
    kind = type(layer)
    if isinstance(layer, Convolution) and kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return CONVOLUTION if plain else None
    return {nn.Linear: LINEAR, nn.GroupNorm: GROUP_NORM}.get(kind)


def _as_usual(layer: nn.Module, x: Tensor) -> tuple[Tensor, Saved]:
    return type(layer).forward(layer, x), ()


def _fold(t: Shaped[Tensor, "b c *map"]) -> Shaped[Tensor, "1 bc *map"]:
    """A batch as one sample: its channels are those of all samples, one after the other."""
    return t.reshape(1, -1, *t.shape[2:])


def _convolution(
    layer: Convolution, x: Tensor, _: Saved, g: Tensor, needed: bool
) -> tuple[Tensor | None, Grads]:
    b, w = len(x), layer.weight.detach()
    geometry = (layer.stride, layer.padding, layer.dilation, False, [0] * (x.dim() - 2))
    backward = torch.ops.aten.convolution_backward
    one = set(layer.kernel_size) == {1} and set(layer.stride) == {1} and not any(layer.padding)
    if one and layer.groups == 1:
        per_sample = torch.bmm(g.flatten(2), x.flatten(2).transpose(1, 2)).view(b, *w.shape)
        grads: Grads = {"weight": Dense(per_sample)}
        gx = backward(g, x, w, None, *geometry, 1, [True, False, False])[0] if needed else None
    else:
        weights = w.expand(b, *w.shape).flatten(0, 1)
        folded = (_fold(g), _fold(x), weights, None, *geometry, b * layer.groups)
        gx, per_sample, _none = backward(*folded, [needed, True, False])
        grads = {"weight": Dense(per_sample.view(b, *w.shape))}
        gx = gx.view_as(x) if needed else None
    if layer.bias is not None:
        grads["bias"] = Dense(g.flatten(2).sum(2))
    return gx, grads


def _linear(
    layer: nn.Linear, x: Tensor, _: Saved, g: Tensor, needed: bool
) -> tuple[Tensor | None, Grads]:
    grads: Grads
    if x.dim() == 2:
        grads = {"weight": Outer(rows=g, columns=x), "bias": Dense(g)}
    else:
        rows, columns = g.flatten(1, -2), x.flatten(1, -2)
        weight = torch.bmm(rows.transpose(1, 2), columns)
        grads = {"weight": Dense(weight), "bias": Dense(rows.sum(1))}
    return (g @ layer.weight.detach() if needed else None), grads


def _group_norm_forward(layer: nn.Module, x: Tensor) -> tuple[Tensor, Saved]:
    assert isinstance(layer, nn.GroupNorm)
    b, c = x.shape[:2]
    size = x[0, 0].numel()
    y, mean, rstd = torch.native_group_norm(
        x.contiguous(), layer.weight, layer.bias, b, c, size, layer.num_groups, layer.eps
    )
    return y, (mean, rstd)


def _group_norm(
    layer: nn.GroupNorm, x: Tensor, kept: Saved, g: Tensor, needed: bool
) -> tuple[Tensor | None, Grads]:
    b, c = x.shape[:2]
    mean, rstd = (t.reshape(1, -1) for t in kept)
    mask = [needed, True, True]
    weights = layer.weight.detach().repeat(b)
    gx, gw, gb = torch.ops.aten.native_group_norm_backward(
        _fold(g.contiguous()),
        _fold(x.contiguous()),
        mean,
        rstd,
        weights,
        1,
        b * c,
        x[0, 0].numel(),
        b * layer.num_groups,
        mask,
    )
    return (gx.view_as(x) if needed else None), {
        "weight": Dense(gw.view(b, c)),
        "bias": Dense(gb.view(b, c)),
    }


def _any_layer(
    layer: nn.Module, x: Tensor, _: Saved, g: Tensor, needed: bool
) -> tuple[Tensor | None, Grads]:
    moving = {n: p.detach() for n, p in layer.named_parameters() if p.requires_grad}
    fixed = _fixed(layer)

    def one(x_i: Tensor, g_i: Tensor) -> tuple[Tensor, Tensors]:
        def forward(parameters: Tensors, x_i: Tensor) -> Tensor:
            return functional_call(layer, (parameters, fixed), (x_i[None],))[0]

        if needed:
            grads, gx = vjp(forward, moving, x_i)[1](g_i)
            return gx, grads
        return x_i, vjp(lambda parameters: forward(parameters, x_i), moving)[1](g_i)[0]

    # Randomness is an error: a second forward pass would draw another dropout than the first.
    gx, grads = vmap(one, randomness="error")(x, g)
    return (gx if needed else None), {n: Dense(g) for n, g in grads.items()}


CONVOLUTION = Rule(_as_usual, _convolution)
LINEAR = Rule(_as_usual, _linear)
GROUP_NORM = Rule(_group_norm_forward, _group_norm)
ANY_LAYER = Rule(_as_usual, _any_layer)


class PerSample:
    """The gradients of a network's trainable parameters, one a sample; see the module's text."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._layers: list[_Unit] | None = list(_units(model))
        self.bytes = 0
        """Bytes that the last call kept between its forward and its backward pass."""

    def __call__(self, x: Shaped[Tensor, "b ..."], y: Shaped[Tensor, "b ..."]) -> list[Gradients]:
        """Each trainable parameter's gradients, in the order of `model.parameters()`."""
        if self._layers is not None:
            try:
                return self._by_rules(self._layers, x, y)
            except (Unsupported, RuntimeError, TypeError, ValueError, IndexError) as e:
                self._layers = None
                warnings.warn(
                    f"per-sample gradients by torch.func, which is slower: {type(e).__name__}: {e}",
                    stacklevel=2,
                )
        return [Dense(g) for g in functional_gradients(self._model, self._loss, x, y)]

    def _by_rules(self, units: "list[_Unit]", x: Tensor, y: Tensor) -> list[Gradients]:
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        tape = _Tape(len(x))
        for p in parameters:
            p.grad = None
        try:
            with _recorded(units, tape):
                loss = self._loss(self._model(x), y).sum()
            if loss.requires_grad:
                loss.backward()
            if any(p.grad is not None for p in parameters):
                raise Unsupported("a parameter is used outside of its layer")
        finally:
            for p in parameters:
                p.grad = None
        self.bytes = tape.bytes
        return [
            tape.grads[p] if p in tape.grads else Dense(p.new_zeros(len(x), *p.shape))
            for p in parameters
        ]


class _Unit(NamedTuple):
    """A layer that records, and its trainable parameters by name."""

    layer: nn.Module
    rule: Rule
    parameters: dict[str, nn.Parameter]


class _Tape:
    """What the layers of one pass record."""

    def __init__(self, batch: int) -> None:
        self.batch, self.bytes = batch, 0
        self.grads: dict[nn.Parameter, Gradients] = {}
        # Something for autograd to follow where neither the input nor any weight asks for it.
        self.token = torch.zeros((), requires_grad=True)

    def add(self, unit: _Unit, grads: Grads) -> None:
        for name, p in unit.parameters.items():
            new, known = grads[name], self.grads.get(p)
            self.grads[p] = Dense(known.values + new.values) if known else new


class _Recorded(torch.autograd.Function):
    """One layer in one pass, by its rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, unit: _Unit, tape: _Tape) -> Tensor:
        y, kept = unit.rule.forward(unit.layer, x)
        if not isinstance(y, Tensor) or not len(x) == len(y) == tape.batch:
            raise Unsupported(f"{type(unit.layer).__name__} gives no tensor of one entry a sample")
        ctx.save_for_backward(x, *kept)
        ctx.unit, ctx.tape = unit, tape
        tape.bytes += x.numel() * x.element_size()
        return y

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, *kept = (t.detach() for t in ctx.saved_tensors)
        unit, needed = ctx.unit, bool(ctx.needs_input_grad[0])
        gx, grads = unit.rule.backward(unit.layer, x, tuple(kept), g[0], needed)
        ctx.tape.add(unit, grads)
        return gx, None, None, None


def _units(module: nn.Module) -> Iterator[_Unit]:
    """The layers that record: those with a rule, and whole modules that hold other parameters."""
    trainable = {n: p for n, p in module.named_parameters() if p.requires_grad}
    rule = rule_for(module)
    if rule is None and any(p.requires_grad for p in module.parameters(recurse=False)):
        rule = ANY_LAYER
    if trainable and rule is not None:
        yield _Unit(module, rule, trainable)
    elif trainable:
        for child in module.children():
            yield from _units(child)


@contextmanager
def _recorded(units: list[_Unit], tape: _Tape) -> Iterator[None]:
    """Let the layers run by their rules within the block."""

    def run(unit: _Unit, *inputs: Any, **named: Any) -> Any:
        if named or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            raise Unsupported(f"{type(unit.layer).__name__} takes more than one tensor")
        return _Recorded.apply(inputs[0], tape.token, unit, tape)

    if any("forward" in unit.layer.__dict__ for unit in units):
        raise Unsupported("a layer has a forward pass of its own")
    try:
        for unit in units:
            unit.layer.__dict__["forward"] = partial(run, unit)
        yield
    finally:
        for unit in units:
            unit.layer.__dict__.pop("forward", None)


def functional_gradients(
    model: nn.Module, loss: Loss, x: Shaped[Tensor, "b ..."], y: Shaped[Tensor, "b ..."]
) -> list[Float[Tensor, "b ..."]]:
    """The same by `torch.func` over the whole network, or one sample at a time if that fails."""
    moving = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    fixed = _fixed(model)

    def one(parameters: Tensors, x_i: Tensor, y_i: Tensor) -> Tensor:
        return loss(functional_call(model, (parameters, fixed), (x_i[None],)), y_i[None]).sum()

    try:
        grads = vmap(grad(one), in_dims=(None, 0, 0), randomness="different")(moving, x, y)
        return [grads[n] for n in moving]
    except RuntimeError:
        parameters = [p for p in model.parameters() if p.requires_grad]
        rows = []
        for i in range(len(x)):
            single = loss(model(x[i : i + 1]), y[i : i + 1]).sum()
            found = torch.autograd.grad(single, parameters, allow_unused=True)
            rows.append(
                [
                    torch.zeros_like(p) if g is None else g
                    for g, p in zip(found, parameters, strict=True)
                ]
            )
        return [torch.stack(column) for column in zip(*rows, strict=True)]


def _fixed(module: nn.Module) -> Tensors:
    frozen = {n: p.detach() for n, p in module.named_parameters() if not p.requires_grad}
    return frozen | dict(module.named_buffers())


def mixes_samples(
    gradients: PerSample, x: Float[Tensor, "3 ..."], y: Shaped[Tensor, "3 ..."]
) -> bool:
    """Whether one sample's gradients change when another sample does, tried on three samples.

    Args:
        gradients: of the network.
        x: three samples, best of noise.
        y: their targets.

    """
    other = x.clone()
    other[1] = -2 * other[1] + 1
    found = []
    for batch in (x, other):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            found.append([g.values[[0, 2]].flatten(1) for g in gradients(batch, y)])
    return any(
        bool(((a - b).norm(dim=1) > 1e-4 * (a.norm(dim=1) + b.norm(dim=1))).any())
        for a, b in zip(*found, strict=True)
    )
