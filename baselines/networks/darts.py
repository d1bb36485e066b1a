"""The space of DARTS: cells whose nodes sum operations on earlier nodes, mixed or chosen.

A cell has two inputs, the outputs of the two cells before it, and `nodes` nodes; each takes every
input and every node before it, and their outputs are joined along the channels. Cells are of two
kinds, normal and reduction (stride 2, twice the channels); those of a kind share one architecture.

| network | its nodes | what moves |
|---|---|---|
| `SuperNetwork` | all operations on each edge, mixed (`Mixture`) | weights W and alphas A |
| `Discrete` | two chosen edges a node, one operation each | weights |

Without DARTS's auxiliary head, cutout and drop path; the operations: `DartsSpace`.

Source: DARTS (Liu et al. 2018), section 2 and appendix A; DP-FNAS, section 4.1.

The space of DARTS: the operations of an edge, where cells stand, and what an architecture is.

Group norm without scale and shift stands in the place of batch norm, which mixes samples; maps of
an odd side are padded by one before a reduction.

Source: DARTS (Liu et al. 2018), section 2.1 and appendix A; DP-FNAS, section 4.1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.mixture import Mixture
from panas.privacy.gradients.apart import keeps_samples_apart
from panas.runtime.errors import BadInput

NONE = "none"
OPERATIONS = (
    *("max_pool_3x3", "avg_pool_3x3", "skip_connect"),
    *("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5", NONE),
)
"""The eight operations of an edge."""

Map = Float[Tensor, "b _ _ _"]
"""A feature map, (samples, channels, height, width)."""


@dataclass(frozen=True, kw_only=True)
class DartsSpace:
    """The size of a network, and what its edges may choose from."""

    shape: tuple[int, int, int]  # (channels, height, width) of an input
    classes: int  # number of logits
    cells: int = 8  # one of which, from 2 on, or two, from 3 on, are reductions
    channels: int = 16  # of the first cell's nodes
    nodes: int = 4  # of a cell, besides its inputs
    operations: tuple[str, ...] = OPERATIONS
    stem: int = 3  # channels of the first convolution, as a multiple of `channels`

    @property
    def given(self) -> tuple[str, ...]:
        """The operations that compute something; "none" comes after them."""
        return tuple(name for name in self.operations if name != NONE)

    @property
    def reductions(self) -> tuple[int, ...]:
        """Which cells halve the map: at a third and two thirds; the last of two; none of one."""
        if self.cells < 3:
            return tuple(range(1, self.cells))
        return (self.cells // 3, 2 * self.cells // 3)


Node = tuple[tuple[str, int], ...]
"""A node's chosen edges: an operation, and which input of the node it is on."""


@dataclass(frozen=True)
class Genotype:
    """The architecture of both kinds of cells."""

    normal: tuple[Node, ...]
    reduction: tuple[Node, ...]

    def to_json(self) -> dict[str, Any]:
        """The choices as plain JSON."""
        return asdict(self)

    @staticmethod
    def checked(record: Mapping[str, Any], space: DartsSpace, strongest: int = 2) -> "Genotype":
        """Read `to_json` back from a message; BadInput if it is no architecture of the space.

        Args:
            record: from a message, untrusted.
            space: nodes and operations that it may have.
            strongest: edges that each node keeps.
        """
        try:
            genotype = Genotype.from_json(record)
            fits = set(record) == {"normal", "reduction"} and all(
                len(kind) == space.nodes
                and all(_fits(node, 2 + at, space, strongest) for at, node in enumerate(kind))
                for kind in (genotype.normal, genotype.reduction)
            )
        except (KeyError, TypeError, ValueError):
            fits = False
        if not fits:
            raise BadInput(f"expected an architecture of {space.nodes} nodes a cell, got another")
        return genotype

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Genotype":
        """Read back `to_json`."""
        kinds = (record["normal"], record["reduction"])
        return Genotype(*(tuple(tuple((o, j) for o, j in n) for n in kind) for kind in kinds))


def _fits(node: Node, inputs: int, space: DartsSpace, strongest: int) -> bool:
    """Whether a node has as many edges as are kept, each an operation on another input."""
    places = [at for _, at in node]
    known = all(name in space.given for name, _ in node)
    at = all(type(place) is int and 0 <= place < inputs for place in places)
    return known and at and len(set(places)) == len(places) == min(strongest, inputs)


def norm_of(channels: int) -> nn.GroupNorm:
    """Group norm, with at least two channels a group, without scale and shift."""
    # A group of one channel would be constant on a map of 1 x 1.
    return nn.GroupNorm(math.gcd(channels, 8) if 8 % channels else 1, channels, affine=False)


@keeps_samples_apart
class Halved(nn.Module):
    """Two 1 x 1 convolutions of stride 2, the second on the map moved by one, side by side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        first = outputs // 2
        self.a = nn.Conv2d(inputs, first, 1, stride=2, bias=False)
        self.b = nn.Conv2d(inputs, outputs - first, 1, stride=2, bias=False)
        self.norm = norm_of(outputs)

    def forward(self, x: Map) -> Map:
        """A map of half the side, rounded up."""
        x = F.pad(F.relu(x), (0, x.shape[3] % 2, 0, x.shape[2] % 2))
        out: Tensor = self.norm(torch.cat([self.a(x), self.b(x[:, :, 1:, 1:])], 1))
        return out


def _adapted(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 1, bias=False)
    return nn.Sequential(nn.ReLU(), convolution, norm_of(outputs))


def _separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    padding = dilation * (kernel // 2)
    depthwise = nn.Conv2d(
        channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False
    )
    return [nn.ReLU(), depthwise, nn.Conv2d(channels, channels, 1, bias=False), norm_of(channels)]


def operation(name: str, channels: int, stride: int) -> nn.Module:
    """One operation of `OPERATIONS` but "none", on a map of so many channels.

    Args:
        name: one of `OPERATIONS` but "none".
        channels: of its input and output.
        stride: 1, or 2 where it halves the map.
    """
    kind, side = name.rsplit("_", 1)[0], int(name[-1]) if name[-1].isdigit() else 0
    if kind == "max_pool":
        return nn.Sequential(nn.MaxPool2d(3, stride, padding=1), norm_of(channels))
    if kind == "avg_pool":
        pool = nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
        return nn.Sequential(pool, norm_of(channels))
    if kind == "sep_conv":
        once = _separable(channels, side, stride)
        return nn.Sequential(*once, *_separable(channels, side, 1))
    if kind == "dil_conv":
        return nn.Sequential(*_separable(channels, side, stride, dilation=2))
    return nn.Identity() if stride == 1 else Halved(channels, channels)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cell stands."""

    before: tuple[int, int]  # channels of its two inputs
    halved_before: bool  # whether the cell before it was a reduction
    channels: int  # of its nodes
    reduction: bool

    def inputs(self) -> nn.ModuleList:
        """What brings both inputs to its channels and to one size."""
        wide = Halved if self.halved_before else _adapted
        pair = (wide(self.before[0], self.channels), _adapted(self.before[1], self.channels))
        return nn.ModuleList(pair)

    def stride(self, edge: int) -> int:
        """Of the edge from an input or a node."""
        return 2 if self.reduction and edge < 2 else 1


def places(space: DartsSpace) -> list[Place]:
    """All cells of a network, first to last."""
    result, channels, halved = list[Place](), space.channels, False
    before = (space.stem * channels,) * 2
    for cell in range(space.cells):
        reduction = cell in space.reductions
        channels *= 1 + reduction
        place = Place(before=before, halved_before=halved, channels=channels, reduction=reduction)
        result.append(place)
        before, halved = (before[1], space.nodes * channels), reduction
    return result


M = TypeVar("M", bound=nn.Module)


def each(modules: nn.ModuleList, kind: type[M]) -> Iterator[M]:
    """The modules of a list, which are all of one kind."""
    for module in modules:
        assert isinstance(module, kind)
        yield module


@keeps_samples_apart
class MixedCell(nn.Module):
    """A cell whose edges have all operations; the mixtures come from outside, as they are shared.

    The operations of all edges, node by node, are in `operations`, one list an edge.

    Args:
        place: where the cell stands.
        nodes: of the cell, at least 1.
        given: operations of an edge, but for "none".
    """

    def __init__(self, place: Place, nodes: int, given: Sequence[str]) -> None:
        super().__init__()
        self.inputs, self.nodes = place.inputs(), nodes
        edges = [edge for node in range(nodes) for edge in range(2 + node)]
        self.operations = nn.ModuleList(
            nn.ModuleList(operation(name, place.channels, place.stride(edge)) for name in given)
            for edge in edges
        )

    def forward(self, first: Map, second: Map, mixtures: nn.ModuleList) -> Map:
        """The nodes, joined.

        Args:
            first: output of the cell before the last, or of the stem.
            second: output of the last cell, or of the stem.
            mixtures: one a node, in order.
        """
        states = [self.inputs[0](first), self.inputs[1](second)]
        edges = each(self.operations, nn.ModuleList)
        for mixture in mixtures:
            results = [[o(x) for o in next(edges)] for x in states]
            stacked = torch.stack([torch.stack(edge, 1) for edge in results], 1)
            states.append(mixture(stacked))
        return torch.cat(states[2:], 1)


@keeps_samples_apart
class ChosenCell(nn.Module):
    """A cell whose nodes have their chosen edges alone."""

    def __init__(self, place: Place, nodes: Sequence[Node]) -> None:
        super().__init__()
        self.inputs, self.chosen = place.inputs(), tuple(nodes)
        self.nodes = nn.ModuleList(
            nn.ModuleList(operation(o, place.channels, place.stride(j)) for o, j in node)
            for node in nodes
        )

    def forward(self, first: Map, second: Map) -> Map:
        """The nodes, joined."""
        states = [self.inputs[0](first), self.inputs[1](second)]
        for node, operations in zip(self.chosen, each(self.nodes, nn.ModuleList), strict=True):
            pairs = zip(node, operations, strict=True)
            states.append(torch.stack([o(states[j]) for (_, j), o in pairs]).sum(0))
        return torch.cat(states[2:], 1)


def _stem(space: DartsSpace) -> nn.Sequential:
    wide = space.stem * space.channels
    convolution = nn.Conv2d(space.shape[0], wide, 3, padding=1, bias=False)
    return nn.Sequential(convolution, norm_of(wide))


@keeps_samples_apart
class SuperNetwork(nn.Module):
    """All architectures of a space at once: weights W, and alphas A in its mixtures."""

    def __init__(self, space: DartsSpace) -> None:
        super().__init__()
        result, sizes = places(space), [2 + node for node in range(space.nodes)]
        self.space, self.stem = space, _stem(space)
        self.cells = nn.ModuleList(MixedCell(p, space.nodes, space.given) for p in result)
        self.normal = nn.ModuleList(Mixture(e, len(space.operations)) for e in sizes)
        self.reduction = nn.ModuleList(Mixture(e, len(space.operations)) for e in sizes)
        self.head = nn.Linear(space.nodes * result[-1].channels, space.classes)

    def forward(self, x: Map) -> Float[Tensor, "b classes"]:
        """Logits."""
        first = second = self.stem(x)
        for index, cell in enumerate(self.cells):
            mixtures = self.reduction if index in self.space.reductions else self.normal
            first, second = second, cell(first, second, mixtures)
        out: Tensor = self.head(second.mean((2, 3)))
        return out


@keeps_samples_apart
class Discrete(nn.Module):
    """The network of one architecture; a space of more cells or channels makes it larger."""

    def __init__(self, space: DartsSpace, genotype: Genotype) -> None:
        super().__init__()
        result, self.stem = places(space), _stem(space)
        self.cells = nn.ModuleList(
            ChosenCell(p, genotype.reduction if p.reduction else genotype.normal) for p in result
        )
        nodes = len(genotype.normal)
        self.head = nn.Linear(nodes * result[-1].channels, space.classes)

    def forward(self, x: Map) -> Float[Tensor, "b classes"]:
        """Logits."""
        first = second = self.stem(x)
        for cell in self.cells:
            first, second = second, cell(first, second)
        out: Tensor = self.head(second.mean((2, 3)))
        return out


@keeps_samples_apart
class Pair(nn.Module):
    """Two super-networks side by side, for DARTS's finite difference; the alphas of both become
    those of the first."""

    def __init__(self, plus: SuperNetwork, minus: SuperNetwork) -> None:
        super().__init__()
        minus.normal, minus.reduction = plus.normal, plus.reduction
        self.plus, self.minus = plus, minus

    def forward(self, x: Map) -> Float[Tensor, "b 2 classes"]:
        """Both logits."""
        return torch.stack([self.plus(x), self.minus(x)], 1)


def is_alpha(name: str) -> bool:
    """Whether a parameter of a super-network is of A, by its name; all others are of W."""
    return name.startswith(("normal.", "reduction."))


def discretised(network: SuperNetwork, strongest: int = 2) -> Genotype:
    """Keep each node's `strongest` edges, by their largest share but that of "none".

    On an edge the operation of that share is kept; among equals, the first.
    """
    given = network.space.given

    def chosen(mixtures: nn.ModuleList) -> tuple[Node, ...]:
        return tuple(_strongest_edges(m, given, strongest) for m in each(mixtures, Mixture))

    return Genotype(chosen(network.normal), chosen(network.reduction))


def _strongest_edges(mixture: Mixture, given: Sequence[str], strongest: int) -> Node:
    """The edges of one node that are kept, in the order of their inputs."""
    most = mixture.shares().detach()[:, : len(given)].max(1)
    order = sorted(range(len(most.values)), key=lambda edge: (-float(most.values[edge]), edge))
    return tuple((given[int(most.indices[edge])], edge) for edge in sorted(order[:strongest]))
