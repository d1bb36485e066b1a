"""What made a release, as attacks see it: a bottom or a common map."""

import numpy as np
import pytest
import torch
from map_facts import NUMBERS, image_facts, table_facts
from observed import raw
from torch import nn

from attacks.reconstruction.optimise import Inversion, optimise
from attacks.reconstruction.suite import SuiteConfig, attack_release
from attacks.threats.observation import BATCH, gradient_path, rows_of
from panas.architecture.genome import Genome
from panas.architecture.network import build_bottom
from panas.data.samples import Samples
from panas.features import tables
from panas.features.images import dead_leaves
from panas.features.map import FeatureMap, fit_map
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.training.evaluate import represent


def pictures(n: int, seed: int = 0) -> Samples:
    return Samples(dead_leaves(n, (1, 8, 8), stream(seed, "test")), torch.arange(n) % 3, 3)


def of_pictures(public: Samples, d: int = 64) -> FeatureMap:
    return fit_map(image_facts(1, 8, 8, classes=3), public, d)


def table(n: int, seed: int = 0) -> Samples:
    x = torch.from_numpy(stream(seed, "test").uniform(-1, 1, (n, 1, 3, 3)).astype(np.float32))
    return Samples(x, (x[:, 0, 0, 0] * x[:, 0, 0, 1] > 0).long(), 2)


def of_a_table(public: Samples, *, columns: bool, leaves: bool) -> FeatureMap:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "paying", lambda *_: (columns, leaves))
        return fit_map(table_facts(NUMBERS), public, 16)


@pytest.mark.slow
def test_rows_are_those_of_the_map_batch_by_batch_and_a_flat_image_has_a_finite_gradient() -> None:
    samples = pictures(BATCH + 3)
    phi = of_pictures(samples)
    assert torch.allclose(rows_of(phi, samples), phi(samples.x), atol=1e-5)
    assert rows_of(phi, samples.take([])).shape == (0, phi.width)
    path = gradient_path(of_pictures(pictures(40)))
    assert path is not None
    for value in (-1.0, 0.0, 1.0):
        x = torch.full((1, 1, 8, 8), value, requires_grad=True)
        (gradient,) = torch.autograd.grad(path(x)[0, 0], x)
        assert gradient.isfinite().all()


def test_a_bottom_is_its_own_gradient_path() -> None:
    bottom = build_bottom(Genome.parse("c8k3"), shape=(1, 8, 8), width=6, norm="batch")
    samples = pictures(5)
    path = gradient_path(bottom.train())
    assert path is not None
    assert not bottom.training
    assert torch.allclose(path(samples.x).detach(), represent(bottom, samples), atol=1e-5)


@pytest.mark.parametrize("made_of", ["images", "waves", "waves and columns"])
def test_the_gradient_path_of_a_map_gives_its_rows(made_of: str) -> None:
    public = pictures(40) if made_of == "images" else table(200)
    if made_of == "images":
        phi = of_pictures(public)
    else:
        phi = of_a_table(public, columns=made_of != "waves", leaves=False)
    path = gradient_path(phi)
    assert path is not None
    x = public.x[:20].clone().requires_grad_(True)
    rows = path(x)
    assert torch.allclose(rows, phi(x.detach()), atol=2e-2)
    # The gradient is that of finite differences along a random direction.
    g = torch.Generator().manual_seed(0)
    away, weights = (torch.randn(*shape, generator=g) for shape in (x.shape, rows.shape))
    (gradient,) = torch.autograd.grad((rows * weights).sum(), x)
    step = 1e-3
    with torch.no_grad():
        ends = [(path(x + sign * step * away) * weights).sum() for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * step)
    assert float((gradient * away).sum()) == pytest.approx(float(expected), rel=0.1)


@pytest.mark.slow
def test_optimisation_goes_through_the_map() -> None:
    public, private = pictures(60), pictures(12, seed=5)
    phi = of_pictures(public)
    seen = raw(phi, private, public)
    config = Inversion(steps=60, starts=("class mean",))
    x = optimise(seen, rng=np.random.default_rng(0), config=config)
    result, blind = (
        (phi(images) - rows_of(phi, private)).square().sum(1).mean()
        for images in (x, public.x.mean(0, keepdim=True).expand_as(x))
    )
    assert result < 0.3 * blind


@pytest.mark.slow
def test_a_map_with_trees_passes_no_gradient_and_is_attacked_without() -> None:
    public, private = table(200), table(30, seed=5)
    phi = of_a_table(public, columns=True, leaves=True)
    assert gradient_path(phi) is None
    seen, rng = raw(phi, private, public), np.random.default_rng(0)
    with pytest.raises(BadInput, match="passes gradients"):
        optimise(seen, rng=rng, config=Inversion())
    reconstructions = attack_release(seen, private, SuiteConfig(epochs=1), rng=rng)
    names = [a.name for a in reconstructions.attacks]
    assert names == ["ridge", "decoder", "ridge (all others)", "decoder (all others)"]


def test_a_network_of_ones_own_is_attacked_like_a_bottom() -> None:
    public = pictures(12)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Dropout()).double()
    z = rows_of(network, public)
    assert torch.allclose(z, network.eval()(public.inputs().double()).float())
    assert rows_of(network, public.take([])).shape == (0, 5)
    seen = raw(network, public, public)
    values = optimise(seen, rng=stream(0, "test"), config=Inversion(steps=4))
    assert values.shape == public.inputs().shape
    with pytest.raises(BadInput, match=r"nn\.Flatten"):
        rows_of(nn.Conv2d(1, 2, 3), public)
