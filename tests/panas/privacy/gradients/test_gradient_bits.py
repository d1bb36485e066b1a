"""A sample's gradient has its bits in every place of a chunk, whatever is in the others.

At commit 4a98628 chunks followed the size of the batch, and sums over samples were float32.
"""

import itertools
import math

import pytest
import torch
from sample_gradients import genome_network
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.data.samples import Samples
from panas.privacy.gradients.per_sample import PerSample, cross_entropy
from panas.privacy.gradients.private import STEP, ClipAndNoise, PrivateGradient, chunk_of
from panas.privacy.noise import SystemNoise
from panas.training.evaluate import represent
from panas.training.linear.predictor import BATCH

GENOMES = ["c8k3-max-c12k5", "c8k1-avg-c16k7", "c5k5-avg-c7k3-max-c7k3"]
NETWORKS = [*GENOMES, "c16k3-c16k3-avg-c8k5", "layers"]
SHAPE, CHUNK = (3, 11, 9), 32


def layers() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, stride=2),
        nn.GroupNorm(3, 6),
        nn.GELU(),
        nn.Conv2d(6, 8, 3, groups=2),
        nn.Sigmoid(),
        nn.Flatten(2),
        nn.Linear(12, 5),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(40, 3),
    )


def network(genome: str, hostile: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model = layers() if genome == "layers" else genome_network(Genome.parse(genome), SHAPE, 1)
    if hostile:  # pairs of numbers that cancel but for rounding
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() > 1:
                    flat = p.view(len(p), -1)
                    half = flat.shape[1] // 2
                    flat[:, :half].mul_(1e4)
                    flat[:, half : 2 * half] = -flat[:, :half]
    return model


def samples(n: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, *SHAPE, generator=g), torch.randint(3, (n,), generator=g)


def one(model: nn.Module, x: Tensor, y: Tensor, at: int) -> list[Tensor]:
    return [g.values[at].detach().clone() for g in PerSample(model, cross_entropy)(x, y)]


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("genome", NETWORKS)
def test_a_gradient_has_its_bits_in_every_place_and_beside_any_sample(genome: str, hostile: bool):
    model = network(genome, hostile)
    x, y = samples(CHUNK)
    expected = one(model, x, y, 0)
    places = (1, 3, 7, 8, 15, 16, 30, CHUNK - 1)
    for place, value in [
        *zip(places, itertools.cycle((0.0, math.nan, 1e30))),
        *((p, None) for p in places),
    ]:
        others, labels = samples(CHUNK, seed=place)
        if value is not None:
            others.fill_(value)
        others[place], labels[place] = x[0], y[0]
        values = one(model, others, labels, place)
        assert all(torch.equal(a, b) for a, b in zip(values, expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("genome", NETWORKS)
@pytest.mark.parametrize("chunk", [STEP, 48, 272])
def test_chunks_of_other_sizes_keep_a_place_s_bits_too(genome: str, chunk: int) -> None:
    model = network(genome)
    x, y = samples(chunk)
    expected = one(model, x, y, 0)
    for place in {1, chunk // 2 + 1, chunk - 1}:
        others, labels = samples(chunk, seed=place)
        others[place], labels[place] = x[0], y[0]
        values = one(model, others, labels, place)
        assert all(torch.equal(a, b) for a, b in zip(values, expected, strict=True))


def summed(model: nn.Module, x: Tensor, y: Tensor, clip: float) -> Tensor:
    gradient = PrivateGradient(model)
    return gradient._clipped_sum(x, y, clip, None)


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("genome", [GENOMES[-1], "layers"])
def test_a_sum_is_that_of_each_sample_alone_up_to_float64(genome: str, hostile: bool) -> None:
    """Whatever the size, the order and what is beside; 1e-10 of a clip is 10^5 times less than
    what the clip is cut by."""
    model, clip = network(genome, hostile), 0.7
    x, y = samples(70)
    alone = torch.stack([summed(model, x[i : i + 1], y[i : i + 1], clip) for i in range(70)])
    assert (alone.norm(dim=1) <= clip * (1 - 1e-6)).all()
    order = torch.randperm(70, generator=torch.Generator().manual_seed(0))
    for rows in (torch.arange(1), torch.arange(17), torch.arange(65), order):
        values = summed(model, x[rows], y[rows], clip)
        assert (values - alone[rows].sum(0)).norm() <= 1e-10 * clip
    beside = torch.cat([x, torch.full_like(x[:1], math.nan), torch.full_like(x[:1], 1e30)])
    labels = torch.cat([y, y[:2]])
    moved = summed(model, beside, labels, clip) - alone.sum(0)
    assert moved.norm() <= clip


def test_chunks_follow_the_public_size_alone() -> None:
    assert chunk_of(512, 64.0) == 80
    assert chunk_of(512, 256.0) == 288
    assert chunk_of(48, 256.0) == 48
    assert chunk_of(16, 1e6) == 16
    assert chunk_of(512, None) == 64
    model = network(GENOMES[0])
    for n in (1, 30, 90):
        gradient = PrivateGradient(model)
        how = ClipAndNoise(clip=1.0, noise_multiplier=1.0, batch_size=40.0)
        gradient.step(*samples(n), how, SystemNoise())
        assert gradient.chunk == chunk_of(10**6, 40.0)


@pytest.mark.parametrize("genome", GENOMES)
def test_representations_have_their_bits_at_every_size(genome: str) -> None:
    bottom = network(genome)[0]
    x, y = samples(2 * BATCH + 3)
    whole = represent(bottom, Samples(x, y, 3))
    for n in (1, 2, 3, 127, 128, 129, 257):
        assert torch.equal(represent(bottom, Samples(x[:n], y[:n], 3)), whole[:n])
    assert torch.equal(represent(bottom, Samples(x.flip(0), y.flip(0), 3)), whole.flip(0))
