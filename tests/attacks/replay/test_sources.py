"""Fresh noise, and noise that repeats, that a short seed explains or that has another law."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from attacks.conformance import seeds
from attacks.conformance.finding import ERROR, alarms
from attacks.replay import sources
from attacks.replay.mechanism import Mechanism
from attacks.replay.sources import findings_of_source, repeats
from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise
from panas.privacy.release.estimate import Rows


@pytest.fixture(autouse=True)
def _few_seeds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables of 2^8 seeds in the place of 2^16, which take long."""
    monkeypatch.setattr(seeds, "SEEDS", 2**8)
    tables = (seeds._tables, sources._uniform_tables)
    for table in tables:
        table.cache_clear()
    yield
    for table in tables:
        table.cache_clear()


def mechanism(run: Callable[[Rows, NoiseSource], Tensor]) -> Mechanism:
    return Mechanism(name="mine", run=run, noise_multiplier=1.0, width=20)


def found(run: Callable[[Rows, NoiseSource], Tensor]) -> set[str]:
    return {f.test for f in repeats(mechanism(run), np.random.default_rng(0)) if f.p < 1}


def total(rows: Rows) -> Tensor:
    return rows.z.double().sum(0)


def test_fresh_noise_does_not_repeat():
    assert found(lambda rows, noise: total(rows) + noise.normal(20)) == set()


def test_noise_of_the_data_repeats():
    def hashed(rows: Rows, noise: NoiseSource) -> Tensor:
        g = torch.Generator().manual_seed(int(rows.y.sum()))
        return total(rows) + torch.randn(20, generator=g)

    assert {"repeats"} <= found(hashed)


def test_noise_of_a_global_generator_repeats_after_seeding():
    for draw in (lambda: torch.randn(20), lambda: torch.from_numpy(np.random.randn(20))):
        assert found(lambda rows, noise, draw=draw: total(rows) + draw()) == {"global seed"}


def test_the_global_generators_go_on_as_before():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    own = mechanism(lambda rows, noise: torch.randn(20) + float(np.random.randn()))
    seeded = [sources._after_seeding(own, Rows(*torch.zeros(2, 1, 20))) for _ in range(2)]
    assert torch.equal(*seeded)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


def test_a_short_seed_explains_noise_of_any_scale():
    def seeded(rows: Rows, noise: NoiseSource) -> Tensor:
        rng = np.random.default_rng(os.urandom(1)[0])
        return total(rows) - 0.037 * torch.from_numpy(rng.standard_normal(20))

    assert "short seed" in found(seeded)


def of_source(make: Callable[[], NoiseSource]) -> set[str]:
    return {f.test for f in alarms(findings_of_source(make), ERROR)}


def test_the_systems_noise_passes():
    assert of_source(SystemNoise) == set()


class _Half(SystemNoise):
    def normal(self, *shape: int) -> Tensor:
        return 0.97 * super().normal(*shape)


class _Cut(SystemNoise):
    def normal(self, *shape: int) -> Tensor:
        return super().normal(*shape).clamp(-3, 3)


class _Coarse(SystemNoise):
    def uniform(self, size: int) -> Tensor:
        return (super().uniform(size) * 2**16).floor() / 2**16


class _Flat(SystemNoise):
    def normal(self, *shape: int) -> Tensor:
        return (self.uniform(int(np.prod(shape))).reshape(shape) - 0.5) * 12**0.5


@pytest.mark.parametrize(
    ("make", "test"),
    [
        (_Half, "size"),
        (_Cut, "tails"),
        (_Coarse, "grid"),
        (_Flat, "shape (Anderson-Darling)"),
        (lambda: ReproducibleNoise(np.random.default_rng(3)), "shared noise"),
        (lambda: ReproducibleNoise(np.random.default_rng(os.urandom(1)[0])), "short seed"),
    ],
)
def test_each_fault_of_a_source_fails_its_test(make: Callable[[], NoiseSource], test: str):
    assert test in of_source(make)
