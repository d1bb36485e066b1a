"""An encoder's first layers, as a `Trunk`, from its file.

Layers are read up to the first that `panas.features.encoders.trunk` does not know. The trunk ends
where one value holds all that comes after it, as deep as a number of bytes allows.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panas.data.encoder import EncoderFacts
from panas.features.encoders.files import encoder_path, exported
from panas.features.encoders.trunk import Step, Trunk

BYTES = 940_000
"""Of a trunk and of what a first block reads it with: a network of 1 MB has room for both."""

FIRST = 550  # bytes a channel of a first block: 64 outputs and a shortcut, in float32

LARGEST = 1 << 15  # numbers of a map: thousands of public pictures are kept as maps

LEAST = 3  # convolutions of a trunk: fewer have learnt edges alone


@dataclass
class Layers:
    """What is read of a file: steps, and the weights that some have."""

    steps: list[Step] = field(default_factory=list)
    weights: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    later: set[int] = field(default_factory=set)  # values that what is not read needs

    def add(self, step: Step, *weights: Tensor) -> int:
        """Append a step; returns the number of its value."""
        if weights:
            self.weights[len(self.steps)] = (weights[0], weights[1])
        self.steps.append(step)
        return len(self.steps)


def is_small(trunk: Trunk, most: int = BYTES) -> bool:
    """Whether trunk and first block have at most so many bytes."""
    return trunk.bytes + FIRST * trunk.shape[0] <= most


def trunk_of(
    given: str, facts: EncoderFacts, is_within: Callable[[Trunk], bool] = is_small
) -> Trunk | None:
    """The first layers of an encoder; None where none can be read, or too few fit.

    Args:
        given: its file, as for `load_encoder`, which has read it before.
        facts: of it.
        is_within: whether a trunk keeps the limits; the deepest of those is taken.
    """
    try:
        layers = _READERS[facts.kind](given, facts) if facts.kind in _READERS else Layers()
        shapes = list(_shapes(layers, facts))
    except Exception:  # of a graph as nobody has foreseen it: networks do without
        return None
    for k, shape in reversed([*enumerate(shapes)]):
        convolutions = sum(step.op == "conv" for step in layers.steps[: k + 1])
        if _is_map(shape) and convolutions >= LEAST and _ends(layers, k):
            trunk = _built(layers, facts, k, (shape[0], shape[1], shape[2]))
            if is_within(trunk):
                return trunk
    return None


def _is_map(shape: tuple[int, ...]) -> bool:
    """Whether a value has places that blocks can compare, and is small enough to be kept."""
    return len(shape) == 3 and min(shape[1:]) > 1 and math.prod(shape) <= LARGEST


def _ends(layers: Layers, k: int) -> bool:
    """Whether all that comes after step k needs its value alone."""
    needed = {i for step in layers.steps[k + 1 :] for i in step.of} | layers.later
    return all(i > k for i in needed)


def _built(layers: Layers, facts: EncoderFacts, k: int, shape: tuple[int, int, int]) -> Trunk:
    trunk = Trunk(facts, layers.steps[: k + 1], shape)
    for at, weights in layers.weights.items():
        if at <= k:
            trunk.hold(at, *weights)
    return trunk.eval()


@torch.no_grad()
def _shapes(layers: Layers, facts: EncoderFacts) -> Iterator[tuple[int, ...]]:
    """The shape of each step's value for one picture."""
    whole = _built(layers, facts, len(layers.steps) - 1, (1, 1, 1))
    yield from (tuple(value.shape[1:]) for value in whole.values(torch.zeros(1, *facts.shape)))


# ONNX


def _onnx(path: Path) -> Layers:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path, load_external_data=False).graph
    constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer if not i.data_location}
    names, layers = {graph.input[0].name: 0}, Layers()
    for at, node in enumerate(graph.node):
        about = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant" and "value" in about:
            constants[node.output[0]] = numpy_helper.to_array(about["value"])
        elif node.op_type == "Identity" and node.input[0] in names:
            names[node.output[0]] = names[node.input[0]]
        else:
            values = [names[name] for name in node.input if name in names]
            given = [constants[name] for name in node.input if name in constants]
            step = _step_of_onnx(node.op_type, about, values, given)
            if step is None or len(values) + len(given) < sum(map(bool, node.input)):
                left = graph.node[at:]
                layers.later = {names[n] for other in left for n in other.input if n in names}
                break
            names[node.output[0]] = layers.add(*step)
    return layers


Read = tuple[Any, ...]
"""A step, and its weights where it has some."""


def _step_of_onnx(
    kind: str, about: Mapping[str, Any], values: Sequence[int], given: Sequence[np.ndarray]
) -> Read | None:
    """A node as a step; None where it is none.

    Args:
        kind: of the node.
        about: its attributes, by name.
        values: what it reads.
        given: constants that it reads.
    """
    of, plain = tuple(values), about.get("auto_pad", b"NOTSET") == b"NOTSET"
    top, left, bottom, right = about.get("pads", (0, 0, 0, 0)) or (0, 0, 0, 0)
    stride, padding = tuple(about.get("strides", (1, 1))), (left, right, top, bottom)
    dilation = tuple(about.get("dilations", (1, 1)))
    match kind, len(of), len(given):
        case "Conv", 1, 1 | 2 if plain and given[0].ndim == 4:
            weight = torch.tensor(given[0])
            bias = torch.tensor(given[1]) if len(given) > 1 else torch.zeros(len(weight))
            groups = about.get("group", 1)
            return Step("conv", of, stride, padding, dilation, groups), weight, bias
        case "BatchNormalization", 1, 4:
            scale, shift, mean, variance = map(torch.tensor, given)
            return _at_rest(of, (scale, shift, mean, variance), about.get("epsilon", 1e-5))
        case "Clip", 1, 2:
            low, high = (float(v) for v in given)
            return (Step("clip", of, bounds=(low, high)),)
        case "MaxPool", 1, 0 if plain and not about.get("ceil_mode") and set(dilation) == {1}:
            return (Step("max_pool", of, stride, padding, size=tuple(about["kernel_shape"])),)
        case "GlobalAveragePool", 1, 0:
            return (Step("mean", of),)
        case "ReduceMean", 1, 1 if sorted(given[0] % 4) == [2, 3] and about.get("keepdims", 1):
            return (Step("mean", of),)
    op = {"Relu": "relu", "Sigmoid": "sigmoid", "HardSwish": "hard_swish"}.get(kind)
    two = {"Add": "add", "Mul": "mul"}.get(kind)
    if op and len(of) == 1 and not given:
        return (Step(op, of),)
    return (Step(two, of),) if two and len(of) == 2 and not given else None


def _at_rest(of: tuple[int, ...], norm: tuple[Tensor, ...], epsilon: float) -> Read:
    """A batch norm as an affine."""
    scale, shift, mean, variance = (t.double() for t in norm)
    weight = scale / (variance + epsilon).sqrt()
    return Step("affine", of), weight.float(), (shift - mean * weight).float()


# Programs of torch


def _program(given: str, facts: EncoderFacts) -> Layers:
    program = exported(given, facts)
    signature, state = program.graph_signature, program.state_dict
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    tensors = {node: state[name].detach() for node, name in named.items() if name in state}
    nodes = list(program.graph.nodes)
    names = {n.name: 0 for n in nodes if n.name in signature.user_inputs}
    layers = Layers()
    for at, node in enumerate(nodes):
        if node.op != "call_function":
            continue
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        step = _step_of_torch(name, _arguments(node, names, tensors))
        if step is None:
            layers.later = {
                names[i.name] for n in nodes[at:] for i in n.all_input_nodes if i.name in names
            }
            break
        names[node.name] = layers.add(*step)
        if name.endswith("_"):  # it has written over what it has read
            names[node.args[0].name] = names[node.name]
    return layers


def _arguments(node: Any, names: Mapping[str, int], tensors: Mapping[str, Tensor]) -> list[Any]:
    """What a node is given, in order: `Value`s, tensors, numbers; nodes that are neither stay."""

    def of(given: Any) -> Any:
        name = str(getattr(given, "name", ""))
        return Value(names[name]) if name in names else tensors.get(name, given)

    return [of(each) for each in (*node.args, *node.kwargs.values())]


@dataclass(frozen=True)
class Value:
    """A value of the trunk, as an argument."""

    number: int


def _step_of_torch(name: str, given: Sequence[Any]) -> Read | None:
    """A call as a step; None where it is none.

    Args:
        name: of the function, without its overload.
        given: its arguments.
    """
    match name.removesuffix("_"), given:
        case "conv2d", [Value(i), Tensor() as weight, *rest]:
            bias, stride, (h, w), dilation, groups = _defaults(
                rest, (None, (1, 1), (0, 0), (1, 1), 1)
            )
            bias = torch.zeros(len(weight)) if bias is None else bias
            step = Step("conv", (i,), tuple(stride), (w, w, h, h), tuple(dilation), groups)
            return step, weight, bias
        case "batch_norm", [
            Value(i),
            Tensor() as scale,
            Tensor() as shift,
            Tensor() as mean,
            Tensor() as variance,
            False,
            _,
            float(epsilon),
            *_,
        ]:
            return _at_rest((i,), (scale, shift, mean, variance), epsilon)
        case "hardtanh", [Value(i), *rest]:
            low, high = _defaults(rest, (-1.0, 1.0))
            return (Step("clip", (i,), bounds=(float(low), float(high))),)
        case "max_pool2d", [Value(i), [_, _] as size, [_, _] as stride, *rest]:
            (h, w), dilation, ceil = _defaults(rest, ((0, 0), (1, 1), False))
            if ceil or tuple(dilation) != (1, 1):
                return None
            padding = (w, w, h, h)
            return (Step("max_pool", (i,), tuple(stride), padding, size=tuple(size)),)
        case "adaptive_avg_pool2d", [Value(i), [1, 1]]:
            return (Step("mean", (i,)),)
        case "relu" | "sigmoid" | "silu" as op, [Value(i)]:
            return (Step(op, (i,)),)
        case "hardswish" | "hardsigmoid" as op, [Value(i)]:
            return (Step(f"hard_{op.removeprefix('hard')}", (i,)),)
        case "add" | "mul" as op, [Value(i), Value(j)]:
            return (Step(op, (i, j)),)
    return None


def _defaults(given: Sequence[Any], usual: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*given, *usual[len(given) :])


def _by_onnx(given: str, facts: EncoderFacts) -> Layers:
    return _onnx(encoder_path(given))


_READERS: Mapping[str, Callable[[str, EncoderFacts], Layers]] = {
    "onnx": _by_onnx,
    "program": _program,
    "torchvision": _program,
}
