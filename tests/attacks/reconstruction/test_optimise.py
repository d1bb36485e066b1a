"""Inversion by optimisation: its parts against naive oracles, its limits, and what it must not do.

That it catches a leak and is silent without one is in `test_planted_images`.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_samples import one_at_a_time
from observed import observed, raw
from torch import nn

from attacks.reconstruction.optimise import (
    DIRECTIONS,
    Inversion,
    _directions,
    optimise,
    total_variation,
)
from attacks.threats.observation import Observation, WhiteBox, class_means
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.training.evaluate import represent

GENOME = Genome.parse("c8k3-max-c16k3")
BLUEPRINT = NetworkSpec(shape=(1, 6, 6), classes=3, width=24)
BOTTOM = BLUEPRINT.bottom(GENOME, torch.Generator().manual_seed(0)).eval()
FAST = Inversion(steps=12, starts=("nearest", "class mean"))


def samples(n: int, seed: int) -> Samples:
    g = torch.Generator().manual_seed(seed)
    x, y = torch.rand(n, 1, 6, 6, generator=g) - 0.5, torch.arange(n) % 3
    x[torch.arange(n), 0, y] += 0.5
    return Samples(x, y, 3)


PUBLIC, PRIVATE = samples(40, 0), samples(11, 1)


def rows() -> Observation[WhiteBox]:
    return raw(BOTTOM, PRIVATE, PUBLIC)


def sums(m: float) -> Observation[WhiteBox]:
    """Exact sums that are said to have noise."""
    B = torch.zeros(3, 24).index_add_(0, PRIVATE.y, represent(BOTTOM, PRIVATE))
    return observed("moments", BOTTOM, PUBLIC, m, B=B, A=torch.zeros(300))


def run(seen: Observation[WhiteBox], optimizer: Inversion = FAST, seed: int = 0) -> torch.Tensor:
    return optimise(seen, rng=np.random.default_rng(seed), config=optimizer)


def distances(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return (BOTTOM(x) - z).square().sum(1)


def test_total_variation_equals_two_loops() -> None:
    x = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    for image, result in zip(x, total_variation(x), strict=True):
        down = [
            abs(float(p[i + 1, j] - p[i, j])) for p in image for i in range(3) for j in range(5)
        ]
        side = [
            abs(float(p[i, j + 1] - p[i, j])) for p in image for i in range(4) for j in range(4)
        ]
        assert float(result) == pytest.approx(np.mean(down) + np.mean(side), abs=1e-6)
    assert torch.equal(total_variation(torch.rand(2, 3, 1, 1)), torch.zeros(2))


@pytest.mark.parametrize(("n", "p"), [(50, 12), (12, 50), (20, 1)])
def test_directions_square_to_the_covariance_of_the_gaps(n: int, p: int) -> None:
    gaps = torch.randn(n, p, generator=torch.Generator().manual_seed(0))
    E = _directions(gaps)
    assert len(E) == min(n, p)
    assert torch.allclose(E.T @ E, gaps.T @ gaps / n, atol=1e-4)
    apart = E @ E.T
    assert torch.allclose(apart, apart.diagonal().diag(), atol=1e-4)


def test_directions_are_the_largest_and_none_where_images_are_constant() -> None:
    gaps = torch.randn(400, 300, generator=torch.Generator().manual_seed(0))
    gaps[:, 0] *= 50
    E = _directions(gaps)
    assert len(E) == DIRECTIONS
    assert float(E.norm(dim=1).max()) == pytest.approx(50, rel=0.1)
    assert _directions(torch.zeros(9, 4)).shape == (0, 4)


def test_images_stay_in_the_box_near_and_the_clients_weights_are_only_read() -> None:
    seen, before = rows(), {k: t.clone() for k, t in BOTTOM.state_dict().items()}
    x, z = run(seen), seen.arrays["z"]
    assert x.shape == PRIVATE.x.shape
    assert float(x.abs().max()) <= 1
    blind = class_means(PUBLIC.x, PUBLIC)[PRIVATE.y]
    assert bool((distances(x, z) < distances(blind, z)).all())
    assert all(torch.equal(t, before[k]) for k, t in BOTTOM.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in BOTTOM.parameters())


def test_the_best_of_two_starts_is_kept_image_by_image() -> None:
    seen = rows()
    plain = Inversion(steps=12, variation=0.0, prior=0.0, starts=("class mean",))
    one = run(seen, plain)
    both = run(seen, replace(plain, starts=("class mean", "noise")))
    z = seen.arrays["z"]
    kept = [bool(torch.allclose(a, b, atol=1e-5)) for a, b in zip(one, both, strict=True)]
    assert any(kept)  # noise seldom starts better than the mean image
    worse = distances(both, z) > distances(one, z) * 1.5 + 1e-4
    assert not bool(worse.any())


@pytest.mark.slow
def test_as_noise_grows_images_stay_at_the_same_class_mean() -> None:
    blind = class_means(PUBLIC.x, PUBLIC)
    optimizer = Inversion(steps=60, starts=("class mean",), variation=0.0)
    near, far = (run(sums(m), optimizer) for m in (1e-6, 1e3))
    assert float((far - blind).abs().max()) < 0.01
    assert float((near - blind).abs().max()) > 0.1


@pytest.mark.slow
def test_a_seed_repeats_an_image_is_the_same_in_any_batch_and_sums_give_one_a_class() -> None:
    optimizer = replace(FAST, batch=4, starts=("noise",))
    a = run(rows(), optimizer)
    assert torch.equal(a, run(rows(), optimizer))
    assert not torch.equal(a, run(rows(), optimizer, seed=1))
    seen = rows()
    assert torch.allclose(run(seen), run(seen, replace(FAST, batch=3)), atol=1e-4)
    assert run(sums(1e-3)).shape == (3, 1, 6, 6)


def test_settings_out_of_range_are_refused() -> None:
    for bad in one_at_a_time(steps=[3], starts=[()], batch=[0], learning_rate=[0.0], prior=[-1.0]):
        with pytest.raises(BadInput, match="change the settings"):
            replace(FAST, **bad)


def test_a_bottom_with_batch_norm_is_read_in_evaluation_mode() -> None:
    bottom = replace(BLUEPRINT, norm="batch").bottom(GENOME, torch.Generator().manual_seed(0))
    bottom.train()
    z = represent(bottom, PRIVATE)
    run(observed("raw_rows", bottom.train(), PUBLIC, z=z, y=PRIVATE.y))
    (norm, *_) = [m for m in bottom.modules() if isinstance(m, nn.BatchNorm2d)]
    assert int(norm.num_batches_tracked) == 0
