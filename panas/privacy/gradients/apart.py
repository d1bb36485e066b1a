"""Which modules keep the samples of a batch apart, and how the others are made to.

A clip bounds what one sample can do only if it has a gradient, and a representation, that depend on
no other sample. This is known by construction, not by trial:

| module | why it cannot mix |
|---|---|
| a layer with a rule (`layer_rules`), activation, pool or reshaping | torch computes it by sample |
| `Sequential`, `Bottom`, `Head`, built-in blocks | they are built of such, in this repository |
| `ModuleList` | it computes nothing: whoever holds it is asked |
| a container vouched for by `keeps_samples_apart` | the same: sums and channels of its parts |
| any other: a "stranger" | it never sees two samples: it runs on batches of one |

Strangers are custom blocks, subclasses, and all of a network that has hooks. They run under `vmap`,
or in a loop where that fails.

Taken on trust is what no batch of one prevents: a module that keeps something of one call for the
next outside its buffers, or an operator with a `vmap` rule of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.module import _has_any_global_hook

from panas.architecture.dense import Dense, Gated, Residual
from panas.architecture.head import Head
from panas.architecture.network import Bottom, SeparableBlock
from panas.privacy.gradients.layer_rules import LINEAR, frozen, rule_for
from panas.runtime.errors import BadInput

Batch = Shaped[Tensor, "b ..."]
M = TypeVar("M", bound=nn.Module)

CONTAINERS = (
    *(nn.Sequential, nn.ModuleList, Bottom, Head),
    *(SeparableBlock, Dense, Gated, Residual),
)
VOUCHED: set[type[nn.Module]] = set()
SIMPLE = (
    *(nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.Dropout),
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def keeps_samples_apart(kind: type[M]) -> type[M]:
    """Vouch for a container: its own `forward` only joins what its layers make of each sample.

    For code of this repository, read and tested for it; a subclass is not covered.
    """
    VOUCHED.add(kind)
    return kind


def hooked(model: nn.Module) -> bool:
    """Whether anything beside the modules' own code runs when the model does."""
    return _has_any_global_hook() or any(
        "forward" in module.__dict__ or any(getattr(module, hooks) for hooks in HOOKS)
        for module in model.modules()
    )


def is_stranger(module: nn.Module) -> bool:
    """Whether a module may mix samples, whatever its children do."""
    if type(module) is nn.Flatten:
        return module.start_dim < 1
    if type(module) is nn.Unflatten:
        return not (isinstance(module.dim, int) and module.dim >= 1)
    if type(module) is nn.BatchNorm2d:
        return module.training or module.running_mean is None
    known = type(module) in (*CONTAINERS, *SIMPLE) or type(module) in VOUCHED
    return not known and rule_for(module) is None


def strangers(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules that may mix samples."""
    if is_stranger(module):
        yield module
    else:
        for child in module.children():
            yield from strangers(child)


def alone(module: nn.Module, x: Batch, randomness: str = "error") -> Batch:
    """What a module makes of each sample as a batch of one, without gradients.

    Args:
        module: a layer that might mix the samples of a batch.
        x: its inputs (b, ...).
        randomness: "error", "same" or "different": what `torch.func.vmap` does with random layers.
    """
    tensors = {n: p.detach() for n, p in module.named_parameters()} | frozen(module)

    def one(x_i: Tensor) -> Tensor:
        return functional_call(module, tensors, (x_i[None],))[0]

    return vmap(one, randomness=randomness)(x)


@contextmanager
def samples_apart(model: nn.Module) -> Iterator[None]:
    """Within it, strangers in the model run on batches of one, and linear layers by exact sums;
    without gradients.

    BadInput for hooks, and for a block that does not keep the dimensions of its input.
    """
    if hooked(model):
        raise BadInput("expected a network without hooks, got some; remove them")
    mixing, linear = list(strangers(model)), list(_linear_layers(model))
    try:
        for module in mixing:
            module.__dict__["forward"] = partial(_apart, module, module is not model)
        for layer in linear:
            layer.__dict__["forward"] = partial(_exactly, layer)
        yield
    finally:
        for module in [*mixing, *linear]:
            module.__dict__.pop("forward", None)


def _linear_layers(module: nn.Module) -> Iterator[nn.Linear]:
    """All linear layers that are in no stranger."""
    if type(module) is nn.Linear:
        yield module
    elif not is_stranger(module):
        for child in module.children():
            yield from _linear_layers(child)


def _exactly(layer: nn.Linear, x: Batch) -> Batch:
    return LINEAR.forward(layer, x)[0]


def _apart(module: nn.Module, within: bool, x: Batch) -> Batch:
    patched = module.__dict__.pop("forward")
    try:
        y = _one_by_one(module, x) if len(x) else module(x)
    finally:
        module.__dict__["forward"] = patched
    if within and y.dim() != x.dim():  # a convolution would take a lone map for a batch
        raise BadInput(
            f"expected block {type(module).__name__} to keep the {x.dim()} dimensions of its "
            f"input, got {y.dim()}; mend its forward"
        )
    return y


def _one_by_one(module: nn.Module, x: Batch) -> Batch:
    try:
        return alone(module, x, "different")
    except RuntimeError:  # it decides by its input, which vmap cannot follow
        return torch.cat([module(x_i)[:1] for x_i in x.split(1)])


@contextmanager
def forked_random(x: Batch) -> Iterator[None]:
    """Within it, torch's random numbers are drawn apart from all others, and repeat."""
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.default_generator.manual_seed(0)
        if x.is_cuda:
            torch.cuda.manual_seed(0)
        yield


def _joined(outputs: Any, samples: int) -> Batch:
    """All outputs of a network for so many samples, of which there may be several, as one."""
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    if isinstance(outputs, tuple | list) and outputs:
        parts = [_joined(part, samples) for part in outputs]
        return torch.cat([part.reshape(samples, -1) for part in parts], dim=1)
    if not isinstance(outputs, Tensor) or not outputs.dim() or len(outputs) != samples:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise BadInput(
            f"expected outputs of a network with samples first, {samples} here, got {got}; mend "
            "its forward"
        )
    return outputs


@torch.no_grad()
def differs_in_company(model: nn.Module, x: Batch) -> bool:
    """Whether samples have other outputs together than alone, on `x`: a hint for the user.

    No privacy rests on it: it cannot see what happens at other sizes or on other samples.
    """
    with forked_random(x):
        together, again = _joined(model(x), len(x)), _joined(model(x), len(x))
        if not torch.equal(together.nan_to_num(), again.nan_to_num()):
            return False  # it draws at random
        one_by_one = torch.cat([_joined(model(x_i), 1) for x_i in x.split(1)])
    near = 1e-4 * float(together.nan_to_num().abs().max())
    return not torch.allclose(together, one_by_one, rtol=1e-3, atol=near, equal_nan=True)
