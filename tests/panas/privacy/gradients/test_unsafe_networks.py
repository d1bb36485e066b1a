"""Networks whose samples would mix, or that leak otherwise, are refused or made harmless."""

import math
from dataclasses import dataclass

import pytest
import torch
from sample_gradients import Mean, assert_equal, data, seeded
from torch import Tensor, nn

from panas.architecture.blocks import ConvBlock
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.privacy.gradients import private
from panas.privacy.gradients.per_sample import PerSample, cross_entropy
from panas.privacy.gradients.private import PrivateGradient
from panas.runtime.errors import BadInput
from panas.training.evaluate import represent


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0))


class Norm(nn.BatchNorm1d):
    """Not BatchNorm by name, BatchNorm all the same."""


@pytest.mark.parametrize("model", [Centred(), nn.Sequential(Norm(4), nn.Linear(4, 3))])
def test_a_network_that_mixes_samples_is_refused(model: nn.Module) -> None:
    x, y = data(6, 4)
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(model)).clipped_sum(x, y, 1.0)


class Turned(nn.Module):
    """Its inner layers see the batch backwards, so that a gradient has parts of two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.inner = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.outer(x)).flip(0)).flip(0)


def test_a_network_that_turns_its_batch_around_gives_everyone_their_own_gradient() -> None:
    for model in (Turned(), nn.Sequential(Turned(), nn.Tanh())):
        assert_equal(seeded(model), *data(6, 4))


class Scaled(nn.Module):
    """Divides by the largest number of the whole batch, if that has more than `above` samples."""

    def __init__(self, above: int = 0) -> None:
        super().__init__()
        self.above = above

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().amax() if len(x) > self.above else x


@dataclass(frozen=True)
class Scaling:
    """The same as a custom block."""

    above: int = 0

    def __str__(self) -> str:
        return f"scaling{self.above}"

    def build(self, in_channels: int) -> nn.Module:
        return Scaled(self.above)

    def out_channels(self, in_channels: int) -> int:
        return in_channels

    def out_side(self, side: int) -> int:
        return side


def moved(model: nn.Module, shape: tuple[int, ...], clip: float) -> float:
    """How far one sample moves the clipped sum at most, over all samples, up and down."""
    x, y = data(24, *shape)
    gradient, most = PrivateGradient(model), 0.0
    before = gradient.clipped_sum(x, y, clip)
    for i in range(24):
        for factor in (1e3, 1e-3):
            changed, rest = x.clone(), torch.arange(24) != i
            changed[i] *= factor
            for after in (
                gradient.clipped_sum(changed, y, clip),
                gradient.clipped_sum(x[rest], y[rest], clip),
            ):
                pairs = zip(before, after, strict=True)
                far = sum(float((a - b).square().sum()) for a, b in pairs)
                most = max(most, math.sqrt(far))
    return most


SHAPES = [(1, 4, 4), (3, 8, 8), (3, 32, 32), (1, 28, 28), (2, 5, 7)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("above", [0, 8])
def test_a_block_that_mixes_many_samples_is_refused(shape: tuple[int, ...], above: int) -> None:
    spec = NetworkSpec(shape=shape, classes=3, width=8)
    genome, g = Genome((Scaling(above), ConvBlock(4, 3))), torch.Generator().manual_seed(0)
    model = nn.Sequential(spec.bottom(genome, g), spec.head(g))
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(model).clipped_sum(*data(6, *shape), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHAPES[0], pytest.param(SHAPES[1], marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "above", [8, *(pytest.param(k, marks=pytest.mark.thorough) for k in (0, 20))]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_block_that_mixes_unseen_moves_the_sum_by_two_clips_at_most(
    shape: tuple[int, ...], above: int, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is tried on noise may be fooled; nothing rests on it.
    monkeypatch.setattr(private, "differs_in_company", lambda model, x: False)
    spec = NetworkSpec(shape=shape, classes=3, width=8)
    blocks = (Scaling(above), ConvBlock(4, 3)) if first else (ConvBlock(4, 3), Scaling(above))
    g = torch.Generator().manual_seed(0)
    bottom = spec.bottom(Genome(blocks), g)
    assert moved(nn.Sequential(bottom, spec.head(g)), shape, 0.01) <= 0.0201  # one out, one in
    own = nn.Sequential(Scaled(above), nn.Flatten(), nn.Linear(math.prod(shape), 3))
    assert moved(seeded(own), shape, 0.01) <= 0.0201

    samples = Samples(data(24, *shape)[0].clamp(-1, 1), torch.zeros(24).long(), 3)
    apart = represent(bottom, samples)
    changed = Samples(samples.x.clone(), samples.y, 3)
    changed.x[3] *= 1e-3
    rest = torch.arange(24) != 3
    assert torch.equal(represent(bottom, changed)[rest], apart[rest])


def test_a_loss_or_a_hook_that_mixes_is_computed_one_sample_at_a_time() -> None:
    def mixing(outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs - outputs.mean(0) * (len(y) > 1), y)

    model = seeded(nn.Sequential(nn.Linear(4, 3)))
    x, y = data(6, 4)
    results = [PerSample(model, loss)(x, y) for loss in (mixing, cross_entropy)]
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a.values, b.values)
    model = seeded(nn.Sequential(nn.Linear(4, 3), nn.Tanh()))
    model[0].register_forward_hook(lambda layer, inputs, y: y / y.abs().amax())
    assert_equal(model, *data(6, 4))


def test_a_layer_that_would_take_samples_for_channels_does_not() -> None:
    class Folded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, 0]

    model = seeded(nn.Sequential(Folded(), nn.Conv2d(6, 6, 3, padding=1), nn.Flatten()))
    with pytest.raises((BadInput, RuntimeError)):
        PrivateGradient(model).clipped_sum(*data(6, 1, 4, 4), 1.0)


def test_a_network_of_indices_or_of_positive_numbers_that_mixes_samples_is_refused() -> None:
    x, y = torch.randint(0, 5, (6, 1)), data(6, 4)[1]
    apart = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(4, 3))
    assert len(PrivateGradient(seeded(apart)).clipped_sum(x, y, 1.0)) == 3
    mixing = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), Centred())
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(mixing)).clipped_sum(x, y, 1.0)
    x, y = data(6, 4)
    total = PrivateGradient(seeded(Logarithm(False))).clipped_sum(x.abs() + 0.1, y, 1.0)
    assert all(bool(torch.isfinite(t).all()) for t in total)
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(seeded(Logarithm(True))).clipped_sum(x.abs() + 0.1, y, 1.0)


class Logarithm(nn.Module):
    """Takes positive numbers only; of a negative one nothing is left but NaN."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.inner, self.mixes = nn.Linear(4, 3), mixes

    def forward(self, x: Tensor) -> Tensor:
        z = torch.log(x)
        return self.inner(z - z.mean(0) if self.mixes else z)


class Infinite(nn.Module):
    """Weights are small, and gradients are no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x / 0.0)


@pytest.mark.parametrize("samples", [6, 1, 0])
def test_a_network_that_cannot_be_tried_is_refused_whatever_the_batch_has(samples: int) -> None:
    """Else whoever chooses the weights would read whether a batch is empty."""
    x, y = data(6, 4)
    with pytest.raises(BadInput, match="not finite"):
        PrivateGradient(seeded(Infinite())).clipped_sum(x[:samples], y[:samples], 1.0)


def test_diverged_weights_count_every_sample_as_nothing_and_half_precision_is_refused() -> None:
    """A refusal would come after the charge."""
    model = seeded(nn.Sequential(nn.Linear(4, 3)))
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    total = PrivateGradient(model).clipped_sum(*data(6, 4), 1.0)
    assert all(bool((t == 0).all()) for t in total)
    with pytest.raises(BadInput, match=r"model\.float\(\)"):
        PrivateGradient(nn.Linear(4, 3).bfloat16())


class Remembering(nn.Module):
    """Keeps a running mean of what it sees, which no noise covers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().mean(0)
        return self.inner(x)


def test_a_buffer_that_follows_the_data_is_refused() -> None:
    with pytest.raises(BadInput, match="'seen', which follows the data"):
        PrivateGradient(Remembering()).clipped_sum(*data(6, 4), 1.0)
    running = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.Conv1d(2, 3, 1))
    with pytest.raises(BadInput, match=r"do not mix|follows the data"):
        PrivateGradient(nn.Sequential(*running, Mean())).clipped_sum(*data(6, 2, 5), 1.0)
