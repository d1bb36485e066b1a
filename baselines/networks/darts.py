"""The space of DARTS: cells whose nodes sum operations on earlier nodes, mixed or chosen.

A cell has two inputs, the outputs of the two cells before it, and `nodes` nodes; each takes every
input and every node before it, and their outputs are joined along the channels. Cells are of two
kinds, normal and reduction (stride 2, twice the channels); those of a kind share one architecture.

| network | its nodes | what moves |
|---|---|---|
| `SuperNetwork` | all operations on each edge, mixed (`Mixture`) | weights W and alphas A |
| `Discrete` | two chosen edges a node, one operation each | weights |

Without DARTS's auxiliary head, cutout and drop path; the operations: `darts_space`.

Source: DARTS (Liu et al. 2018), section 2 and appendix A; DP-FNAS, section 4.1.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from baselines.networks.darts_space import (
    DartsSpace,
    Genotype,
    Map,
    Node,
    Place,
    norm_of,
    operation,
    places,
)
from panas.architecture.mixture import Mixture
from panas.privacy.gradients.apart import keeps_samples_apart

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
        """The nodes, joined."""
        states = [self.inputs[0](first), self.inputs[1](second)]
        edges = each(self.operations, nn.ModuleList)
        for mixture in mixtures:
            found = [[o(x) for o in next(edges)] for x in states]
            stacked = torch.stack([torch.stack(edge, 1) for edge in found], 1)
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
        found, sizes = places(space), [2 + node for node in range(space.nodes)]
        self.space, self.stem = space, _stem(space)
        self.cells = nn.ModuleList(MixedCell(p, space.nodes, space.given) for p in found)
        self.normal = nn.ModuleList(Mixture(e, len(space.operations)) for e in sizes)
        self.reduction = nn.ModuleList(Mixture(e, len(space.operations)) for e in sizes)
        self.head = nn.Linear(space.nodes * found[-1].channels, space.classes)

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
        found, self.stem = places(space), _stem(space)
        self.cells = nn.ModuleList(
            ChosenCell(p, genotype.reduction if p.reduction else genotype.normal) for p in found
        )
        nodes = len(genotype.normal)
        self.head = nn.Linear(nodes * found[-1].channels, space.classes)

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


def alphas(network: nn.Module) -> list[nn.Parameter]:
    """The parameters A of a super-network, in their order."""
    return [p for name, p in network.named_parameters() if is_alpha(name)]


def weights(network: nn.Module) -> list[nn.Parameter]:
    """The parameters W of a super-network, in their order."""
    return [p for name, p in network.named_parameters() if not is_alpha(name)]


def discretised(network: SuperNetwork, strongest: int = 2) -> Genotype:
    """Keep each node's `strongest` edges, by their largest share but that of "none".

    On an edge the operation of that share is kept; among equals, the first.
    """
    given = network.space.given

    def chosen(mixtures: nn.ModuleList) -> tuple[Node, ...]:
        return tuple(strongest_edges(m, given, strongest) for m in each(mixtures, Mixture))

    return Genotype(chosen(network.normal), chosen(network.reduction))


def strongest_edges(mixture: Mixture, given: Sequence[str], strongest: int) -> Node:
    """The edges of one node that are kept, in the order of their inputs."""
    most = mixture.shares().detach()[:, : len(given)].max(1)
    order = sorted(range(len(most.values)), key=lambda edge: (-float(most.values[edge]), edge))
    return tuple((given[int(most.indices[edge])], edge) for edge in sorted(order[:strongest]))
