"""Per-sample gradients: what a loop over samples gives, for every layer, and nobody else's."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sample_gradients import Mean, assert_equal, data, genome_network, loop, seeded
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.blocks import ConvBlock, PoolBlock
from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.privacy.gradients.layer_rules import Dense, Outer, rule_for
from panas.privacy.gradients.per_sample import PerSample, cross_entropy, functional_gradients
from panas.privacy.gradients.private import PrivateGradient

QUICK = settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def ends(*layers: nn.Module) -> nn.Module:
    """Layers, then a mean over what is left of the map, for three classes."""
    return seeded(nn.Sequential(*layers))


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "1 x 1": (nn.Conv2d(4, 3, 1, bias=False), (4, 5, 7)),
    "1 x 1 with bias": (nn.Conv2d(4, 3, 1), (4, 5, 7)),
    "1 x 1 with stride": (nn.Conv2d(4, 3, 1, stride=2), (4, 5, 7)),
    "1 x 1 with padding": (nn.Conv2d(4, 3, 1, padding=1), (4, 5, 7)),
    "depthwise 3 x 3": (nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False), (3, 6, 5)),
    "depthwise 5 x 5 with bias": (nn.Conv2d(3, 3, 5, padding=2, groups=3), (3, 6, 5)),
    "depthwise, two filters a channel": (nn.Conv2d(3, 6, 3, groups=3), (3, 6, 5)),
    "depthwise, stride and dilation": (
        nn.Conv2d(3, 6, (3, 5), stride=(2, 3), dilation=(2, 1), padding=(2, 1), groups=3),
        (3, 10, 11),
    ),
    "depthwise, one dimension": (nn.Conv1d(4, 4, 5, stride=2, groups=4), (4, 10)),
    "depthwise, three dimensions": (nn.Conv3d(3, 3, 5, padding=2, groups=3), (3, 3, 4, 5)),
    "depthwise 3 x 3 with stride": (nn.Conv2d(3, 6, 3, stride=2, groups=3), (3, 8, 7)),
    "depthwise, larger than the map": (nn.Conv2d(3, 3, 7, padding=3, groups=3), (3, 2, 2)),
    "dense 3 x 3": (nn.Conv2d(4, 3, 3), (4, 6, 5)),
    "grouped, stride and dilation": (
        nn.Conv2d(4, 6, 3, stride=2, dilation=2, padding=2, groups=2),
        (4, 9, 8),
    ),
    "reflecting padding": (nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"), (3, 5, 5)),
    "padding by name": (nn.Conv2d(3, 3, 3, padding="same"), (3, 5, 5)),
    "one dimension": (nn.Conv1d(4, 3, 3, padding=1), (4, 9)),
    "three dimensions": (nn.Conv3d(2, 3, 3, padding=1), (2, 3, 4, 5)),
    "group norm": (nn.GroupNorm(3, 6), (6, 5, 4)),
    "group norm on a vector": (nn.GroupNorm(3, 6), (6, 1)),
    "transposed convolution": (nn.ConvTranspose2d(3, 3, 2, stride=2), (3, 4, 4)),
    "layer norm": (nn.LayerNorm([4, 6]), (3, 4, 6)),
    "prelu": (nn.PReLU(3), (3, 4, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_gives_the_gradients_of_a_loop(name: str) -> None:
    layer, shape = LAYERS[name]
    x, y = data(5, *shape)
    assert_equal(ends(layer, Mean()), x, y)  # the input needs no gradient
    channels = nn.Conv1d if len(shape) == 2 else nn.Conv3d if len(shape) == 4 else nn.Conv2d
    model = ends(channels(shape[0], shape[0], 1), layer, nn.Tanh(), Mean())
    assert_equal(model, x, y)  # the layer's input does


def test_a_linear_layer_is_never_written_out_and_equal() -> None:
    model = seeded(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))
    x, y = data(7, 6)
    gradients = assert_equal(model, x, y)
    values = gradients(x, y)
    assert [type(g) for g in values] == [Outer, Dense, Outer, Dense]
    weights = torch.rand(7)
    for g in values:
        assert torch.allclose(g.norms(), g.values.flatten(1).norm(dim=1), rtol=1e-5)
        direct = torch.einsum("b,b...->...", weights, g.values)
        assert torch.allclose(g.weighted_sum(weights).float(), direct, rtol=1e-5, atol=1e-7)


def test_a_linear_layer_over_positions() -> None:
    model = seeded(nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 3, bias=False)))

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).mean(1)

    assert_equal(Pooled(), *data(4, 5, 6))


class Scaled(nn.Module):
    """A user's module with a parameter of its own beside layers that have rules."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.scale) + x


class Tied(nn.Module):
    """A layer used twice, and its weight once more by hand."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.a, self.by_hand = nn.Linear(3, 3), by_hand

    def forward(self, x: Tensor) -> Tensor:
        z = self.a(torch.tanh(self.a(x)))
        return F.linear(z, self.a.weight) if self.by_hand else z


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Bilinear(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x, torch.tanh(x))


class Recurrent(nn.Module):
    """Outputs are a tuple, and the state's batch is not its first dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x)[0][:, -1]


class Attention(nn.Module):
    """Uses its children's weights without calling them."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attend(x, x, x)[0].mean(1))


class Branching(nn.Module):
    """Decides by the data, which `torch.func` cannot map over."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale if bool(x.sum() > 0) else x * self.scale**2


OWN: dict[str, tuple[nn.Module, tuple[int, ...], bool]] = {
    "own parameter": (nn.Sequential(Scaled(), nn.Linear(4, 3)), (4,), False),
    "a layer used twice": (Tied(by_hand=False), (3,), False),
    "a weight used by hand": (Tied(by_hand=True), (3,), False),
    "two inputs": (TwoInputs(), (4,), False),
    "recurrent": (Recurrent(), (5, 4), True),
    "attention": (Attention(), (5, 4), False),
    "branching": (Branching(), (3,), True),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (4,), False),
}


@pytest.mark.parametrize("name", OWN)
def test_a_users_own_module(name: str) -> None:
    model, shape, slow = OWN[name]
    x, y = data(4, *shape)
    assert_equal(seeded(model), x, y)  # as a whole it goes through `torch.func` at once
    assert_equal(nn.Sequential(model, nn.Identity()), x, y, slow=slow)
    assert not any("forward" in m.__dict__ for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_words_are_embedded() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x).mean(1))

    x = torch.randint(9, (5, 6), generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 1, 0])
    assert_equal(seeded(Words()), x, y)
    total = PrivateGradient(seeded(Words())).clipped_sum(x, y, 0.1)
    assert all(bool(torch.isfinite(t).all()) for t in total)


def test_frozen_and_unused_parameters() -> None:
    model = seeded(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)))
    model[0].weight.requires_grad_(False)
    model.spare = nn.Linear(2, 2)  # named in the network, never called
    x, y = data(4, 4)
    model.forward = lambda x: model[1](model[0](x))  # type: ignore[method-assign]
    assert_equal(model, x, y)
    assert len(PerSample(model, cross_entropy)(x, y)) == 5


def test_dropout_is_drawn_once() -> None:
    model = seeded(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3))).train()
    x, y = data(6, 4)
    for p in model.parameters():
        p.grad = None
    torch.manual_seed(3)
    cross_entropy(model(x), y).sum().backward()
    plain = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    torch.manual_seed(3)
    for g, p in zip(PerSample(model, cross_entropy)(x, y), plain, strict=True):
        assert torch.allclose(g.values.sum(0), p, atol=1e-6)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("widths", [(1, 1), (3, 8), (16, 16)])
@pytest.mark.parametrize("pool", ["avg", "max", None])
@pytest.mark.parametrize("side", [(5, 9), (8, 8)])
def test_every_block(kernel: int, widths: tuple[int, int], pool: str | None, side: tuple[int, int]):
    convs = [ConvBlock(w, kernel) for w in widths]
    blocks = (convs[0], PoolBlock(pool), convs[1]) if pool else tuple(convs)  # type: ignore[arg-type]
    model = genome_network(Genome(blocks), (3, *side), seed=1)
    assert_equal(model, *data(3, 3, *side))


genomes = st.builds(
    lambda seed, side, channels: (
        random_genome(
            SearchSpace(shape=(channels, *side), widths=(4, 16, 24), max_blocks=6),
            np.random.default_rng(seed),
        ),
        (channels, *side),
        seed,
    ),
    st.integers(0, 10**6),
    st.tuples(st.integers(4, 13), st.integers(4, 13)),
    st.sampled_from([1, 3]),
)


@pytest.mark.slow
@QUICK
@given(genomes, st.integers(0, 6))
def test_a_sample_never_moves_the_gradient_of_another(
    drawn: tuple[Genome, tuple[int, int, int], int], j: int
) -> None:
    genome, shape, seed = drawn
    model = genome_network(genome, shape, seed)
    x, y = data(7, *shape)
    gradients = PerSample(model, cross_entropy)
    before = gradients(x, y)
    x2, y2 = x.clone(), y.clone()
    x2[j], y2[j] = 1e3 * torch.randn(shape) + 5, (y[j] + 1) % 3
    after = gradients(x2, y2)
    others = torch.arange(7) != j
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a.values[others], b.values[others])
    pairs = zip(before, after, strict=True)
    assert not all(torch.equal(a.values[j], b.values[j]) for a, b in pairs)


@pytest.mark.slow
@QUICK
@given(genomes)
def test_every_genome_gives_the_gradients_of_a_loop(
    drawn: tuple[Genome, tuple[int, int, int], int],
) -> None:
    genome, shape, seed = drawn
    assert_equal(genome_network(genome, shape, seed), *data(3, *shape))


@pytest.mark.filterwarnings("ignore")
def test_a_weight_that_is_computed_from_other_parameters_has_no_closed_form() -> None:
    layer = nn.utils.weight_norm(nn.Linear(4, 3))
    assert rule_for(layer) is None
    model = seeded(nn.Sequential(layer))
    x, y = data(6, 4)
    result = PerSample(model, cross_entropy)(x, y)
    for p, g in zip(model.parameters(), result, strict=True):
        rows = [torch.autograd.grad(cross_entropy(model(x), y)[i], p)[0] for i in range(6)]
        assert torch.allclose(g.values, torch.stack(rows), atol=1e-6)


@pytest.mark.parametrize("size", [100, 20_000, 3_000_000])
def test_norms_of_wide_gradients_are_not_underestimated(size: int) -> None:
    # The sum of equal numbers, one after the other, loses most.
    for values in (torch.full((1, size), 0.1), torch.rand(1, size)):
        exact = values.double().norm()
        assert abs(float(Dense(values).norms()) / exact - 1) < 1e-6
        outer = Outer(values, torch.ones(1, 1))
        assert abs(float(outer.norms()) / exact - 1) < 1e-6


def test_subclasses_are_not_trusted_to_compute_the_same() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    assert rule_for(Doubled(3, 3)) is None
    assert_equal(seeded(Doubled(4, 3)), *data(4, 4))


@pytest.mark.parametrize("swapped", [False, True])
def test_norms_of_factors_of_unlike_size_are_not_lost(swapped: bool) -> None:
    """A server may send weights under which one factor is tiny, and the other huge."""
    tiny, huge = torch.full((2, 900), 1e-24), torch.full((2, 4), 5e18)
    huge[1] = 0.0
    outer = Outer(huge, tiny) if swapped else Outer(tiny, huge)
    norms = outer.values.double().flatten(1).norm(dim=1)
    assert float(norms[0]) > 1e-4
    assert torch.allclose(outer.norms().double(), norms, rtol=1e-6, atol=0)


def test_the_functional_path_and_opacus_have_our_gradients() -> None:
    from opacus import GradSampleModule

    from panas.privacy.gradients.opacus import register

    model = genome_network(Genome.parse("c8k3-max-c4k5"), (3, 9, 7), 1)
    x, y = data(5, 3, 9, 7)
    expected = loop(model, x, y)
    for a, b in zip(functional_gradients(model, cross_entropy, x, y), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    before = dict(GradSampleModule.GRAD_SAMPLERS)
    try:
        register()
        register()
        sampler = GradSampleModule.GRAD_SAMPLERS[nn.Conv2d]
        assert sampler is not before[nn.Conv2d]
        wrapped = GradSampleModule(model, loss_reduction="sum")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            cross_entropy(wrapped(x), y).sum().backward()
        for p, g in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(p.grad_sample, g, atol=1e-6)
        reflecting = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
        assert rule_for(reflecting) is None  # left to Opacus's own sampler
        result = sampler(reflecting, [torch.rand(2, 3, 5, 5)], torch.rand(2, 3, 5, 5))
        assert result[reflecting.weight].shape == (2, 3, 3, 3, 3)
    finally:
        GradSampleModule.GRAD_SAMPLERS.update(before)
