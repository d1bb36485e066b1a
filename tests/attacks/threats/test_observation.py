import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from attacks.threats.knowledge import WhiteBox
from attacks.threats.observation import MAX_PAIRS, Observation, class_means, estimate_means
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, build_bottom
from panas.data.samples import Samples
from panas.runtime.errors import BadInput


def _bottom() -> Bottom:
    g = torch.Generator().manual_seed(0)
    return build_bottom(Genome.parse("c8k3"), shape=(1, 4, 4), width=6, unit=True, generator=g)


def _samples(n: int, classes: int = 3) -> Samples:
    g = torch.Generator().manual_seed(1)
    x = torch.randint(256, (n, 1, 4, 4), generator=g).to(torch.uint8)
    return Samples(x, torch.arange(n) % classes, classes)


def test_an_observation_is_frozen_and_sees_one_row_a_sample_or_a_class() -> None:
    rows = {"z": torch.rand(5, 6), "y": torch.tensor([0, 1, 2, 0, 1])}
    seen = Observation("north", "raw_rows", rows, None, WhiteBox(_bottom()), _samples(30))
    assert seen.released().shape == (5, 6 + 3)
    assert torch.equal(seen.released()[:, :6], rows["z"])
    assert seen.noise_scale == 0.0
    sums = {"A": torch.rand(21), "B": torch.rand(3, 6)}
    seen = Observation("north", "moments", sums, 1.5, WhiteBox(_bottom()), _samples(30))
    assert seen.released().shape == (3, 6 + 3)
    assert seen.noise_scale == pytest.approx(1.5 * math.sqrt(2))
    with pytest.raises(FrozenInstanceError):
        seen.site = "south"  # type: ignore[misc]


def test_estimates_recover_class_means_from_noiseless_sums() -> None:
    public = _samples(60)
    seen = Observation(
        "north",
        "moments",
        {"A": torch.zeros(21), "B": torch.zeros(3, 6)},
        1.0,
        WhiteBox(_bottom()),
        public,
    )
    mu = seen.known_means
    counts = torch.tensor([4.0, 20.0, 7.0])
    sums = mu * counts[:, None]
    assert torch.allclose(estimate_means(sums, None, mu), mu, atol=1e-6)
    assert torch.allclose(estimate_means(sums, counts, mu), mu, atol=1e-6)
    again = Observation(
        "north", "moments", {"A": torch.zeros(21), "B": sums}, 1.0, WhiteBox(_bottom()), public
    )
    assert torch.allclose(again.counts(), counts, atol=1e-3)


def test_estimates_stay_finite_without_samples_of_a_class() -> None:
    mu = torch.ones(2, 3)
    zero = torch.zeros(2, 3)
    assert torch.isfinite(estimate_means(zero, None, mu)).all()
    negative = torch.tensor([-3.0, 0.0])
    assert float(estimate_means(zero + 9, negative, mu).norm(dim=1).max()) <= 1 + 1e-6


def test_class_means_fall_back_to_all_samples() -> None:
    samples = Samples(_samples(4).x, torch.tensor([0, 0, 2, 2]), 4)
    rows = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
    assert class_means(rows, samples).flatten().tolist() == [2.0, 4.0, 6.0, 4.0]


def test_pairs_are_capped_and_match() -> None:
    public = _samples(MAX_PAIRS + 50)
    seen = Observation(
        "north",
        "raw_rows",
        {"z": torch.rand(1, 6), "y": torch.tensor([0])},
        None,
        WhiteBox(_bottom()),
        public,
    )
    z, x = seen.pairs(np.random.default_rng(0))
    assert len(z) == len(x) == MAX_PAIRS
    assert torch.allclose(z[:, :6], _bottom().eval()(x), atol=1e-6)


def test_useless_knowledge_is_refused() -> None:
    rows = {"z": torch.rand(1, 6), "y": torch.tensor([0])}
    with pytest.raises(BadInput, match="public samples"):
        Observation("north", "raw_rows", rows, None, WhiteBox(_bottom()), _samples(3))
    broken = _bottom()
    broken.adapt.weight.data.fill_(float("nan"))
    with pytest.raises(BadInput, match="NaN"):
        Observation("north", "raw_rows", rows, None, WhiteBox(broken), _samples(30))


def test_public_rows_show_no_more_than_class_means_of_the_public() -> None:
    public = _samples(30)
    z = torch.nn.functional.normalize(torch.rand(30, 6), dim=1)
    seen = Observation(
        "north", "public_rows", {"z": z, "y": public.y}, None, WhiteBox(_bottom()), public
    )
    assert seen.by_class
    assert not seen.noised_sums
    assert seen.released().shape == (3, 6 + 3)
    expected = torch.stack([z[public.y == c].mean(0) for c in range(3)])
    torch.testing.assert_close(seen.released()[:, :6], expected)


def test_a_class_without_public_rows_has_the_mean_of_all_rows() -> None:
    public = _samples(30, classes=2)
    public = Samples(public.x, public.y, 3)
    z = torch.nn.functional.normalize(torch.rand(30, 6), dim=1)
    seen = Observation(
        "north", "public_rows", {"z": z, "y": public.y}, None, WhiteBox(_bottom()), public
    )
    torch.testing.assert_close(seen.estimates(), class_means(z, public))
    assert torch.allclose(seen.estimates()[2], z.mean(0))
