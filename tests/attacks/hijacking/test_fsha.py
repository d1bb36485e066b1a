import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_samples import one_at_a_time
from noises import NoNoise
from torch import nn

from attacks.hijacking.fsha import (
    FSHAConfig,
    Hijacker,
    Server,
    SplitClient,
    exchange,
    gradient_penalty,
    noise_for,
)
from attacks.hijacking.networks import draw
from attacks.hijacking.simulation import Hijacked, Trial
from attacks.reconstruction.metrics import score
from panas.data.samples import Samples
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.gradients.private import ClipAndNoise
from panas.privacy.noise import NoiseSource, ReproducibleNoise
from panas.runtime.errors import BadInput

CPU = torch.device("cpu")
TINY = FSHAConfig(
    width=0.0625,
    critic_width=0.0625,
    critic_blocks=1,
    critic_steps=1,
    batch_size=16,
    iterations=6,
    scored=20,
    score_every=2,
    save_every=2,
)


def _samples(n: int, seed: int, shape: tuple[int, int, int] = (1, 14, 14)) -> Samples:
    """Bright and dark bars of random place and height: images of a few numbers each."""
    g = torch.Generator().manual_seed(seed)
    c, h, w = shape
    coarse = torch.rand(n, c, 3, 2, generator=g) * 1.8 - 0.9
    x = nn.functional.interpolate(coarse, size=(h, w), mode="bilinear")
    return Samples(x, torch.zeros(n, dtype=torch.int64), 2)


MINE, OTHERS = _samples(60, 1), _samples(80, 2)


class Repeating:
    """Noise without a state: every draw of a shape is the same."""

    def normal(self, *shape: int) -> torch.Tensor:
        return ReproducibleNoise(np.random.default_rng(0)).normal(*shape)

    def uniform(self, size: int) -> torch.Tensor:
        return ReproducibleNoise(np.random.default_rng(1)).uniform(size)


class Silent(Repeating):
    """Noise of size zero; Poisson batches are as ever."""

    normal = NoNoise.normal


def _client(
    private: Samples, defence: ClipAndNoise | None = None, noise: NoiseSource | None = None
) -> SplitClient:
    return SplitClient(
        private,
        FSHAConfig(width=0.0625, batch_size=16, client_rate=1e-3),
        defence=defence,
        rng=np.random.default_rng(3),
        noise=noise or Repeating(),
        device=CPU,
    )


def _attack(
    optimizer: FSHAConfig,
    state: Path | None = None,
    on_progress: Callable[[int, float], None] = lambda iteration, mse: None,
) -> Hijacked:
    rng = np.random.default_rng(0)
    trial = Trial(MINE, OTHERS, optimizer, rng=rng, noise=Repeating())
    return trial.run(state, on_progress)


class Recording:
    """A server that keeps what it is given, and answers with ones."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def answer(self, z: torch.Tensor) -> torch.Tensor:
        self.seen.append(z)
        return torch.ones_like(z)


# The protocol.


@pytest.mark.parametrize(
    "defence", [None, ClipAndNoise(clip=1.0, noise_multiplier=1.0, batch_size=16.0)]
)
def test_a_client_hands_over_smashed_features_and_nothing_else(defence: ClipAndNoise | None):
    client, server = _client(MINE, defence), Recording()
    assert isinstance(server, Server)
    before = [p.clone() for p in client.network.parameters()]
    for _ in range(3):
        exchange(client, server)
    after = client.network.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    for z in server.seen:
        assert type(z) is torch.Tensor
        assert z.shape[1:] == (16, 2, 2)
        # No graph leads back to the weights or the samples, and no memory is shared with them.
        assert z.grad_fn is None
        assert not z.requires_grad
    z = client.send()
    z.fill_(7.0)
    client.receive(torch.zeros_like(z))
    public = {name for name in vars(client) if not name.startswith("_")}
    assert public == {"network", "optimiser"}


def test_a_hijacker_is_built_without_a_client_and_each_batch_is_answered_once() -> None:
    hints = {**Hijacker.__init__.__annotations__, **Hijacker.answer.__annotations__}
    assert SplitClient not in hints.values()
    assert isinstance(Hijacker(OTHERS, TINY, rng=np.random.default_rng(0), device=CPU), Server)
    client = _client(MINE)
    z = client.send()
    with pytest.raises(BadInput, match="gradients at the features sent last"):
        client.receive(z[:3])
    client.receive(z)
    with pytest.raises(BadInput, match="answer each batch once"):
        client.receive(z)


def test_the_private_gradient_equals_a_naive_loop_at_zero_noise() -> None:
    private, clip = MINE, 11.0
    client = _client(
        private, ClipAndNoise(clip=clip, noise_multiplier=1.0, batch_size=16.0), Silent()
    )
    g = torch.Generator().manual_seed(0)
    z = client.send()
    gradient = torch.randn(z.shape, generator=g) * torch.rand(len(z), 1, 1, 1, generator=g)
    chosen = torch.nonzero(Silent().uniform(60) < 16 / 60).flatten()
    x, parameters = private.inputs(chosen), list(client.network.parameters())
    total, norms = [torch.zeros_like(p) for p in parameters], []
    for x_i, g_i in zip(x, gradient, strict=True):
        grads = torch.autograd.grad(client.network(x_i[None]), parameters, g_i[None])
        norms.append(float(torch.cat([v.flatten() for v in grads]).norm()))
        for t, v in zip(total, grads, strict=True):
            t += v * min(1.0, clip / norms[-1])
    assert min(norms) < clip < max(norms)
    client.receive(gradient)
    for p, t in zip(parameters, total, strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p.grad, t / 16, rtol=1e-3, atol=1e-6)


def test_without_a_defence_the_client_descends_the_mean_over_its_batch() -> None:
    client = _client(MINE)
    parameters = list(client.network.parameters())
    z = client.send()
    assert client._pending is not None
    x = client._pending[0]
    expected = torch.autograd.grad(client.network(x), parameters, torch.ones_like(z) / 16)
    client.receive(torch.ones_like(z))
    for p, e in zip(parameters, expected, strict=True):
        torch.testing.assert_close(p.grad, e)


@pytest.mark.slow
def test_noise_for_a_budget_is_the_least_that_fits() -> None:
    budget = Budget(8.0, 1e-5)
    sigma = noise_for(budget, 0.05, 200)
    spent = epsilon([SampledGaussian(0.05, sigma, 200)], 1e-5)
    assert 0.97 * 8 < spent <= 8
    with pytest.raises(BadInput, match="raise epsilon"):
        noise_for(Budget(1e-4, 1e-5), 1.0, 100_000)


# The hijacker.


@pytest.mark.parametrize("slopes", ["channel", "sample"])
def test_the_gradient_penalty_equals_a_naive_one(slopes: str) -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)).double()
    draw(network, torch.Generator().manual_seed(0))
    z = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1)).double()
    terms, step = [], 1e-6
    for z_i in z:
        slope = torch.zeros_like(z_i)
        for at in np.ndindex(*z_i.shape):
            moved = torch.stack([z_i, z_i])
            moved[0][at] += step
            moved[1][at] -= step
            up, down = network(moved).flatten()
            slope[at] = (up - down).item() / (2 * step)
        parts = slope.flatten(1) if slopes == "channel" else slope.flatten()[None]
        terms += [(float(part.norm()) - 1) ** 2 for part in parts]
    penalty = gradient_penalty(network, z, slopes)
    assert float(penalty.detach()) == pytest.approx(sum(terms) / len(terms), rel=1e-5)
    penalty.backward()
    weight = network[0].weight
    assert isinstance(weight, nn.Parameter)
    assert weight.grad is not None
    assert float(weight.grad.abs().sum()) > 0


def test_the_client_is_sent_the_gradient_of_the_critic_at_each_of_its_features() -> None:
    server = Hijacker(OTHERS, TINY, rng=np.random.default_rng(0), device=CPU)
    z = torch.randn(5, 16, 2, 2, generator=torch.Generator().manual_seed(0))
    at = z.clone().requires_grad_()
    server.networks["critic"](at).sum().backward()
    answer = server.answer(z)
    assert at.grad is not None
    torch.testing.assert_close(answer, at.grad)
    assert torch.equal(server.answer(z[:0]), z[:0])


@pytest.mark.parametrize("shape", [(1, 14, 14), (1, 28, 28), (3, 32, 32), (2, 9, 17)])
def test_any_image_shape(shape: tuple[int, int, int]) -> None:
    private, public = _samples(20, 1, shape), _samples(20, 2, shape)
    optimizer = replace(TINY, iterations=1, scored=3)
    result = Trial(private, public, optimizer, rng=np.random.default_rng(0)).run()
    assert result.reconstructions.shape == (3, *shape)
    assert float(result.reconstructions.abs().max()) <= 1


def _lights(n: int, seed: int) -> Samples:
    """A corner that is lit more or less, mostly less: one number an image."""
    t = torch.rand(n, 1, 1, 1, generator=torch.Generator().manual_seed(seed)) ** 1.5
    i = torch.arange(14)
    corner = ((i[:, None] > 3) & (i[None] > 6)).float()
    return Samples(1.8 * t * corner - 0.9, torch.zeros(n, dtype=torch.int64), 2)


LEARNS = replace(
    TINY,
    width=0.125,
    critic_width=0.125,
    critic_steps=3,
    batch_size=32,
    iterations=100,
    client_rate=2e-4,
    pilot_rate=5e-3,
    critic_rate=2e-3,
    scored=200,
    score_every=20,
)


@pytest.mark.slow
def test_the_attack_inverts_a_client_that_obeys() -> None:
    rng = np.random.default_rng(0)
    result = Trial(_lights(600, 1), _lights(600, 2), LEARNS, rng=rng).run()
    mse = result.score.mse
    assert (result.epsilon, result.noise_multiplier) == (np.inf, 0.0)
    assert result.curve[-1] == (100, pytest.approx(mse))
    assert mse < 0.5 * result.curve[0][1]
    assert result.score.intervals["r2"][0] > 0
    assert result.autoencoder_mse < mse < result.mean_image_mse
    assert result.score.r2 == pytest.approx(1 - mse / result.mean_image_mse, abs=1e-5)


@pytest.mark.slow
def test_it_learns_nothing_from_a_client_that_sends_independent_noise() -> None:
    truth, public = _lights(200, 1).inputs(), _lights(600, 2)
    server = Hijacker(public, LEARNS, rng=np.random.default_rng(0), device=CPU)
    g = torch.Generator().manual_seed(0)
    for _ in range(60):
        server.answer(torch.randn(32, 32, 2, 2, generator=g))
    images = server.reconstruct(torch.randn(200, 32, 2, 2, generator=g))
    mean_image = public.inputs().mean(0)
    result = score("noise", truth, images, mean_image, rng=np.random.default_rng(0))
    assert result.intervals["r2"][1] < 0


# The trial.


@pytest.mark.thorough
@pytest.mark.parametrize("target", [np.inf, 8.0])
def test_a_trial_that_was_killed_goes_on_as_if_nothing_had_happened(target: float, tmp_path: Path):
    optimizer = replace(TINY, epsilon=float(target), delta=1e-3)
    state = tmp_path / "state.safetensors"

    def die(iteration: int, mse: float) -> None:
        if iteration == 4:
            raise KeyboardInterrupt

    whole = _attack(optimizer)
    with pytest.raises(KeyboardInterrupt):
        _attack(optimizer, state, die)
    resumed = _attack(optimizer, state)
    assert torch.equal(whole.reconstructions, resumed.reconstructions)
    assert whole.curve == resumed.curve
    assert whole.score.intervals == resumed.score.intervals
    again = _attack(optimizer, state)
    assert torch.equal(again.reconstructions, resumed.reconstructions)
    assert again.seconds == resumed.seconds
    with pytest.raises(BadInput, match="other settings"):
        _attack(replace(optimizer, penalty=1.0), state)


@pytest.mark.slow
def test_the_result_names_the_price_of_the_weights() -> None:
    optimizer = replace(TINY, epsilon=8.0, delta=1e-3)
    hijacked = _attack(optimizer)
    assert hijacked.noise_multiplier > 0
    assert 7 < hijacked.epsilon <= 8
    event = SampledGaussian(16 / 60, hijacked.noise_multiplier, 6)
    assert hijacked.epsilon == epsilon([event], 1e-3)


@pytest.mark.parametrize(
    ("private", "public", "match"),
    [
        (_samples(9, 1), OTHERS, "a batch of 16 private samples, got 9"),
        (MINE, _samples(9, 2), "a batch of 16 public samples, got 9"),
        (MINE, _samples(80, 2, (1, 28, 28)), "private ones' shape"),
        (replace(MINE, x=torch.full_like(MINE.x, torch.nan)), OTHERS, "NaN"),
        (MINE, replace(OTHERS, x=torch.full_like(OTHERS.x, 9.0)), r"\[-1, 1\]"),
    ],
)
def test_bad_samples_get_one_line(private: Samples, public: Samples, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        Trial(private, public, TINY, rng=np.random.default_rng(0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        *one_at_a_time(width=[0.0], critic_rate=[math.nan], batch_size=[1], iterations=[0]),
        *one_at_a_time(momentum=[1.0], last_rate=[0.0], penalty=[-1.0], epsilon=[0.0], delta=[1.0]),
    ],
)
def test_bad_settings_get_one_line(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        replace(TINY, **wrong)
