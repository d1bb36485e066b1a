"""Per-sample gradients of a network in one backward pass, at about the price of plain ones.

Each layer with trainable parameters gives, going backward, one gradient of its weights a sample by
its rule (`panas.privacy.gradients.layer_rules`). A module that might mix samples runs on each alone
(`panas.privacy.gradients.apart`). Where no rule fits, or the network as a whole is such a module,
all of it goes through `torch.func`, and where that fails one sample at a time: slower, never wrong.

Privacy: a gradient depends on its own sample alone, by construction. Its last bits do not depend on
the sample's place in a batch of one size either, on a CPU, for layers with a rule and those of
`panas.privacy.gradients.apart.SIMPLE`; for strangers, which `vmap` maps, they may.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from panas.privacy.gradients.apart import Batch, alone, hooked, is_stranger, strangers
from panas.privacy.gradients.layer_rules import (
    ANY_LAYER,
    LINEAR,
    Convolution,
    Dense,
    Gradients,
    Rule,
    frozen,
    rule_for,
)

Loss = Callable[[Tensor, Tensor], Tensor]  # of outputs and targets, to one loss a sample
cross_entropy: Loss = partial(F.cross_entropy, reduction="none")


class Unsupported(Exception):
    """A layer was used in a way that its rule does not know."""


class PerSample:
    """The gradients of a network's trainable parameters, one a sample."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        whole = hooked(model) or is_stranger(model)
        self._layers: list[_Unit] | None = None if whole else list(_units(model))
        # Whether every module is known to keep samples apart.
        self.by_rules = not (hooked(model) or any(strangers(model)))
        self.bytes = 0  # kept by the last call between its forward and its backward pass

    def __call__(self, x: Batch, y: Batch) -> list[Gradients]:
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
        parameters = self._parameters
        tape = _Tape(len(x))
        for p in parameters:
            p.grad = None
        try:
            with _recorded(units, tape):
                outputs = self._model(x)
            loss = _losses(self._loss, outputs, y).sum()
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
    layer: nn.Module
    rule: Rule
    parameters: dict[str, nn.Parameter]


class _Tape:
    def __init__(self, batch: int) -> None:
        self.batch, self.bytes = batch, 0
        self.grads: dict[nn.Parameter, Gradients] = {}
        # Something for autograd to follow where neither the input nor any weight asks for it.
        self.token = torch.zeros((), requires_grad=True)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, unit: _Unit, tape: _Tape) -> Tensor:
        by_vmap = unit.rule is ANY_LAYER
        y, kept = (alone(unit.layer, x), ()) if by_vmap else unit.rule.forward(unit.layer, x)
        if not isinstance(y, Tensor) or not len(x) == len(y) == tape.batch:
            raise Unsupported(f"{type(unit.layer).__name__} gives no tensor of one entry a sample")
        ctx.save_for_backward(x, *kept)
        ctx.unit, ctx.tape = unit, tape
        tape.bytes += x.numel() * x.element_size()
        return y

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, *kept = ctx.saved_tensors
        unit, needed = ctx.unit, bool(ctx.needs_input_grad[0])
        gx, grads = unit.rule.backward(unit.layer, x.detach(), tuple(kept), g[0], needed)
        for name, p in unit.parameters.items():
            new, known = grads[name], ctx.tape.grads.get(p)
            ctx.tape.grads[p] = Dense(known.values + new.values) if known else new
        return gx, None, None, None


def _units(module: nn.Module) -> Iterator[_Unit]:
    """The outermost layers that have a rule, and the outermost modules that might mix samples."""
    trainable = {n: p for n, p in module.named_parameters() if p.requires_grad}
    rule = rule_for(module)
    if rule is not None or is_stranger(module):
        yield _Unit(module, rule or ANY_LAYER, trainable)
    else:
        for child in module.children():
            yield from _units(child)


@contextmanager
def _recorded(units: list[_Unit], tape: _Tape) -> Iterator[None]:
    def run(unit: _Unit, *inputs: Any, **named: Any) -> Any:
        if named or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            raise Unsupported(f"{type(unit.layer).__name__} takes more than one tensor")
        layer = unit.layer
        if inputs[0].dim() < 2 + (isinstance(layer, Convolution) and len(layer.kernel_size)):
            # Torch would take the batch for something else: channels, or inputs.
            raise Unsupported(f"{type(unit.layer).__name__} gets no batch")
        patched = unit.layer.__dict__.pop("forward")
        try:
            if unit.parameters or unit.rule in (ANY_LAYER, LINEAR):
                return _Recorded.apply(inputs[0], tape.token, unit, tape)
            return unit.layer(inputs[0])
        finally:
            unit.layer.__dict__["forward"] = patched

    try:
        for unit in units:
            unit.layer.__dict__["forward"] = partial(run, unit)
        yield
    finally:
        for unit in units:
            unit.layer.__dict__.pop("forward", None)


def _losses(loss: Loss, outputs: Batch, y: Batch) -> Batch:
    """One loss a sample, of its own output and target alone."""
    if loss is cross_entropy:
        return loss(outputs, y)
    return vmap(lambda output, target: loss(output[None], target[None])[0])(outputs, y)


def functional_gradients(model: nn.Module, loss: Loss, x: Batch, y: Batch) -> list[Batch]:
    """The same by `torch.func` over the whole network, or one sample at a time if that fails.

    Args:
        model: any network; its parameters that train.
        loss: one loss a sample, from outputs and targets.
        x: inputs (b, ...).
        y: targets, b of them.
    """
    moving = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    fixed = frozen(model)

    def one(parameters: dict[str, Tensor], x_i: Tensor, y_i: Tensor) -> Tensor:
        return loss(functional_call(model, (parameters, fixed), (x_i[None],)), y_i[None]).sum()

    try:
        grads = vmap(grad(one), in_dims=(None, 0, 0), randomness="different")(moving, x, y)
        return [grads[n] for n in moving]
    except RuntimeError:
        parameters = [p for p in model.parameters() if p.requires_grad]
        rows = []
        for x_i, y_i in zip(x.split(1), y.split(1), strict=True):
            # Buffers of its own: nothing that one sample leaves there reaches the next.
            buffers = {n: b.clone() for n, b in model.named_buffers()}
            single = loss(functional_call(model, buffers, (x_i,)), y_i).sum()
            rows.append(torch.autograd.grad(single, parameters, materialize_grads=True))
        return [torch.stack(column) for column in zip(*rows, strict=True)]
