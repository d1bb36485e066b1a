"""The DARTS space: mixed as its equation says, with the gradients of a loop, and discretised."""

import pytest
import torch
from sample_gradients import assert_equal, data
from torch import Tensor, nn

from baselines.networks.cnns import initialise
from baselines.networks.darts import (
    NONE,
    OPERATIONS,
    DartsSpace,
    Discrete,
    Genotype,
    SuperNetwork,
    discretised,
    operation,
)
from baselines.networks.searched import alphas_of, weights_but_alphas
from panas.architecture.mixture import Mixture
from panas.privacy.gradients.apart import strangers

SMALL = DartsSpace(shape=(1, 8, 8), classes=3, cells=3, channels=4, nodes=2, stem=1)


def network(space: DartsSpace = SMALL) -> SuperNetwork:
    g = torch.Generator().manual_seed(0)
    model = SuperNetwork(space)
    initialise(model, g)
    for p in alphas_of(model):
        nn.init.normal_(p, generator=g)
    return model.double()


def explicit(mixture: Mixture, outputs: list[list[Tensor]], none: bool) -> Tensor:
    """The softmax sum of one node, term by term; "none" gives a term of zeros."""
    total = torch.zeros_like(outputs[0][0])
    for alpha, edge in zip(mixture.weight, outputs, strict=True):
        terms = [*edge, torch.zeros_like(total)] if none else edge
        divisor = sum(a.exp() for a in alpha)
        for a, term in zip(alpha, terms, strict=True):
            total = total + a.exp() / divisor * term
    return total


@pytest.mark.parametrize("operations", [OPERATIONS, OPERATIONS[:4], (NONE, "skip_connect")])
def test_a_node_is_the_softmax_sum_over_its_edges(operations: tuple[str, ...]) -> None:
    space = DartsSpace(
        shape=(1, 8, 8), classes=3, cells=1, channels=4, nodes=2, operations=operations
    )
    model, x = network(space), torch.randn(2, 12, 8, 8, dtype=torch.float64)
    cell = model.cells[0]
    states = [cell.inputs[0](x), cell.inputs[1](x)]
    edges = iter(cell.operations)
    for mixture in model.normal:
        outputs = [[o(state) for o in next(edges)] for state in states]
        states.append(explicit(mixture, outputs, NONE in operations))
    result = cell(x, x, model.normal)
    assert torch.allclose(result, torch.cat(states[2:], 1), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["W", "A", "both"])
@pytest.mark.parametrize("side", [8, 7])
def test_gradients_of_samples_are_those_of_a_loop(which: str, side: int) -> None:
    model = network()
    assert len(alphas_of(model)) == 4  # a node's is shared by all cells of its kind
    for p in (
        alphas_of(model) if which == "W" else weights_but_alphas(model) if which == "A" else ()
    ):
        p.requires_grad_(False)
    x, y = data(5, 1, side, side)
    gradients = assert_equal(model, x.double(), y)
    assert gradients.by_rules
    assert not [*strangers(model)]


def test_a_mixture_alone_has_the_gradients_of_a_loop() -> None:
    """Its input needs no gradient here."""
    mixture = Mixture(2, 3)
    nn.init.normal_(mixture.weight, generator=torch.Generator().manual_seed(0))
    x, y = data(4, 2, 3, 3)
    assert_equal(nn.Sequential(mixture), x, y)
    assert_equal(nn.Sequential(mixture), x[:, :, :2], y)  # the last gives zeros


def naive(shares: list[list[float]], strongest: int) -> list[tuple[int, int]]:
    """(edge, operation) of the strongest edges, by sorting all of them; "none" is the last."""
    tops = []
    for edge, row in enumerate(shares):
        best = max(row[:-1])
        tops.append((-best, edge, row.index(best)))
    return sorted((edge, op) for _, edge, op in sorted(tops)[:strongest])


def test_discretisation_keeps_the_two_strongest_edges() -> None:
    space = DartsSpace(shape=(1, 8, 8), classes=3, cells=1, channels=2, nodes=4)
    model, g = SuperNetwork(space), torch.Generator().manual_seed(0)
    for _ in range(20):
        for p in alphas_of(model):
            nn.init.normal_(p, generator=g)
        genotype = discretised(model)
        for nodes, mixtures in (
            (genotype.normal, model.normal),
            (genotype.reduction, model.reduction),
        ):
            for node, mixture in zip(nodes, mixtures, strict=True):
                shares = mixture.weight.softmax(1).tolist()
                expected = [(OPERATIONS[op], edge) for edge, op in naive(shares, 2)]
                assert list(node) == expected
                assert all(o != NONE for o, _ in node)


def test_none_is_never_kept_and_weakens_its_edge() -> None:
    mixture = Mixture(3, 3)
    with torch.no_grad():
        mixture.weight.copy_(torch.tensor([[2.0, 0, 9], [1, 0, 0], [0, 0.5, 0]]))
    model = SuperNetwork(
        DartsSpace(shape=(1, 4, 4), classes=2, cells=1, channels=2, nodes=2,
                   operations=("skip_connect", "max_pool_3x3", NONE))
    )  # fmt: skip
    model.normal[1] = mixture
    # The first edge has the largest alpha but for "none", which takes nearly all of its share.
    assert discretised(model).normal[1] == (("skip_connect", 1), ("max_pool_3x3", 2))


@pytest.mark.parametrize("side", [1, 5, 8])
def test_a_chosen_network_takes_any_side_and_matches_a_mixture_of_one(side: int) -> None:
    """A mixture whose softmax is at one operation of each of two edges is the chosen cell."""
    model = network()
    genotype = discretised(model)
    assert Genotype.from_json(genotype.to_json()) == genotype
    chosen = Discrete(SMALL, genotype).double()
    for kind, nodes in ((model.normal, genotype.normal), (model.reduction, genotype.reduction)):
        for mixture, node in zip(kind, nodes, strict=True):
            with torch.no_grad():
                mixture.weight.fill_(-1e3)
                mixture.weight[:, -1] = 0.0  # "none"
                for name, edge in node:
                    mixture.weight[edge, OPERATIONS.index(name)] = 1e3
    _copy(model, chosen, genotype)
    x = torch.randn(2, 1, side, side, dtype=torch.float64)
    assert torch.allclose(model(x), chosen(x), rtol=1e-9, atol=1e-9)
    assert not [*strangers(chosen)]


def _copy(model: SuperNetwork, chosen: Discrete, genotype: Genotype) -> None:
    chosen.stem.load_state_dict(model.stem.state_dict())
    chosen.head.load_state_dict(model.head.state_dict())
    for index, (mixed, cell) in enumerate(zip(model.cells, chosen.cells, strict=True)):
        cell.inputs.load_state_dict(mixed.inputs.state_dict())
        nodes = genotype.reduction if index in SMALL.reductions else genotype.normal
        first = 0
        for n, node in enumerate(nodes):
            for i, (name, edge) in enumerate(node):
                own = mixed.operations[first + edge][OPERATIONS.index(name)]
                cell.nodes[n][i].load_state_dict(own.state_dict())
            first += 2 + n


def test_a_chosen_network_has_the_gradients_of_a_loop() -> None:
    chosen = Discrete(SMALL, discretised(network()))
    initialise(chosen, torch.Generator().manual_seed(1))
    x, y = data(4, 1, 8, 8)
    assert assert_equal(chosen.double(), x.double(), y).by_rules


@pytest.mark.parametrize("name", OPERATIONS[:-1])
@pytest.mark.parametrize("stride", [1, 2])
def test_operations_keep_channels_and_halve_by_stride(name: str, stride: int) -> None:
    for side in (1, 5, 8):
        out = operation(name, 4, stride)(torch.randn(2, 4, side, side))
        assert out.shape == (2, 4, -(-side // stride), -(-side // stride))


def test_reductions_stand_at_a_third_and_two_thirds() -> None:
    results = {n: DartsSpace(shape=(1, 8, 8), classes=2, cells=n).reductions for n in (1, 2, 3, 8)}
    assert results == {1: (), 2: (1,), 3: (1, 2), 8: (2, 5)}
