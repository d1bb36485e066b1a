"""Blind controls: means, guesses from leaked or other samples, and noiseless ceilings."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from observed import observed

from attacks.threats import controls
from attacks.threats.controls import GUESSES, LEAKED, OTHERS, by_leaked, by_others
from panas.architecture.genome import Genome
from panas.architecture.network import build_bottom
from panas.data.samples import Samples, concat
from panas.training.evaluate import represent


def _samples(n: int, seed: int) -> Samples:
    """Three classes of random patterns around different means."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    means = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(99)) - 0.5
    return Samples(means[y] + 0.2 * torch.randn(n, 1, 4, 4, generator=g), y, 3)


def _r2(truth: torch.Tensor, images: torch.Tensor, mean: torch.Tensor) -> float:
    return 1 - float((truth - images).square().mean() / (truth - mean).square().mean())


def test_blind_controls_are_public_means_or_images_and_worse_than_the_mean() -> None:
    public = _samples(50, 0)
    assert torch.allclose(controls.mean_image(public), public.x.sum(0) / 50, atol=1e-6)
    by_class = controls.same_class_mean(public, torch.tensor([2, 0]))
    assert torch.allclose(by_class[0], public.x[public.y == 2].mean(0), atol=1e-6)
    assert torch.allclose(by_class[1], public.x[public.y == 0].mean(0), atol=1e-6)
    private = _samples(40, 1)
    drawn = controls.unrelated_image(public, 40, rng=np.random.default_rng(0))
    assert all(bool((public.x == x).flatten(1).all(1).any()) for x in drawn)
    assert _r2(private.x, drawn, controls.mean_image(public)) < 0


def test_shuffling_leaves_nothing_and_crosses_classes_even_where_one_rules() -> None:
    public, private = _samples(300, 0), _samples(200, 1)
    mixed = controls.shuffled(private.x, private.y, rng=np.random.default_rng(0))
    assert _r2(private.x, mixed, controls.mean_image(public)) <= 0
    y = torch.tensor([0] * 30 + [1])
    images = y.float().view(-1, 1, 1, 1).expand(31, 1, 2, 2)
    crossed = controls.shuffled(images, y, rng=np.random.default_rng(0))
    assert bool((crossed != images).all())
    alone = controls.shuffled(images[:30], y[:30], rng=np.random.default_rng(0))
    assert torch.equal(alone, images[:30])


def test_ceiling_and_random_extractor_are_noiseless_rows() -> None:
    g = torch.Generator().manual_seed(0)
    bottom = build_bottom(Genome.parse("c8k3"), shape=(1, 4, 4), width=6, unit=True, generator=g)
    public, private = _samples(50, 0), _samples(20, 1)
    sums = {"A": torch.zeros(21), "B": torch.zeros(3, 6)}
    seen = observed("moments", bottom, public, 2.0, **sums)
    ceiling = controls.raw_rows(seen, private, bottom)
    assert (ceiling.kind, ceiling.noise_multiplier) == ("raw_rows", None)
    assert torch.equal(ceiling.arrays["z"], represent(bottom, private))
    before = bottom.adapt.weight.clone()
    fresh = controls.random_extractor(bottom, rng=np.random.default_rng(0))
    assert torch.equal(bottom.adapt.weight, before)
    assert not torch.equal(fresh.adapt.weight, before)


def _shifted(n: int, seed: int, shift: float = 0.0, classes: int = 3) -> Samples:
    g = torch.Generator().manual_seed(seed)
    means = 0.4 * torch.rand(3, 1, 2, 3, generator=torch.Generator().manual_seed(9)) - 0.2
    y = torch.randint(classes, (n,), generator=g)
    x = means[y] + shift + 0.1 * torch.randn(n, 1, 2, 3, generator=g)
    return Samples(x.clamp(-1, 1), y, 3)


def _error(truth: Samples, guess: torch.Tensor) -> float:
    return float((truth.x - guess).square().mean())


def test_guesses_from_known_samples_are_their_means() -> None:
    public, samples, y = _shifted(40, 0), _shifted(12, 1, 0.4), torch.tensor([0, 2, 1, 1])
    values = by_leaked(public, samples, y)
    assert tuple(values) == LEAKED
    assert torch.allclose(values["leaked mean"], samples.x.mean(0).expand(4, 1, 2, 3), atol=1e-6)
    for guess, c in zip(values["leaked class mean"], y, strict=True):
        assert torch.allclose(guess, samples.x[samples.y == c].mean(0), atol=1e-6)
    # A class that nobody knows has the mean of all.
    samples = _shifted(12, 1, classes=1)
    values = by_leaked(public, samples, torch.tensor([2]))
    assert torch.allclose(values["leaked class mean"][0], samples.x.mean(0), atol=1e-6)


@pytest.mark.parametrize("name", GUESSES[:2])
@pytest.mark.parametrize("beside", [True, False])
def test_no_sample_says_anything_of_itself(name: str, beside: bool) -> None:
    public, mine = _shifted(40, 0), _shifted(15, 1, 0.3)
    others = _shifted(10, 2, 0.3) if beside else None
    result = by_others(public, mine, others)[f"others' {name}"]
    for i in range(len(mine)):
        rest = mine.take([j for j in range(len(mine)) if j != i])
        samples = rest if others is None else concat([rest, others])
        own = mine.y[i : i + 1]
        assert torch.allclose(
            result[i], by_leaked(public, samples, own)[f"leaked {name}"][0], atol=1e-5
        )


def test_a_sample_moves_every_guess_but_its_own() -> None:
    public, mine = _shifted(40, 0), _shifted(15, 1, 0.3)
    x = mine.x.clone()
    x[4] = -x[4]
    before, after = (by_others(public, s, None) for s in (mine, replace(mine, x=x)))
    for name in OTHERS[:2]:
        assert torch.allclose(before[name][4], after[name][4], atol=1e-6)
        same = int((mine.y == mine.y[4]).nonzero()[0])
        assert same == 4 or not torch.allclose(before[name][same], after[name][same], atol=1e-3)


@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("known", [8, 200])
def test_the_regression_is_near_the_best_guess_at_any_site(shift: float, known: int) -> None:
    public, leaked, truth = _shifted(300, 0), _shifted(known, 1, shift), _shifted(400, 2, shift)
    values = by_leaked(public, leaked, truth.y)
    by_public = controls.same_class_mean(public, truth.y)
    best = min(_error(truth, by_public), *(_error(truth, values[k]) for k in LEAKED[:2]))
    assert _error(truth, values["leaked regression"]) < 1.15 * best
    if shift:  # public class means, moved: better than either alone with eight samples
        assert _error(truth, values["leaked regression"]) < 0.5 * _error(truth, by_public)


def test_pictures_are_guessed_on_the_scale_of_networks() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (30, 1, 4, 4), generator=g).to(torch.uint8)
    pictures = Samples(x, torch.arange(30) % 3, 3)
    values = controls.by_leaked(pictures, pictures, pictures.y)
    expected = controls.same_class_mean(pictures, pictures.y)
    assert torch.allclose(values["leaked class mean"], expected, atol=1e-5)
    assert set(values) == set(controls.LEAKED)
    assert set(controls.by_others(pictures, pictures, None)) == set(controls.OTHERS)


def test_leaked_samples_are_known_to_their_threat_alone() -> None:
    assert set(controls.LEAKED) & set(controls.blind_to("white-box")) == set()
    assert set(controls.LEAKED) < set(controls.blind_to("leaked pairs"))
    assert set(controls.OTHERS) < set(controls.blind_to(None))
    assert "shuffled" not in controls.blind_to("leaked pairs")
    assert "ceiling" not in controls.blind_to("leaked pairs")


def test_one_sample_is_guessed_from_public_ones() -> None:
    public, one = _shifted(40, 0), _shifted(1, 1)
    values = by_others(public, one, None)
    assert all(bool(torch.isfinite(x).all()) for x in values.values())
    assert np.isfinite(_error(one, values["others' regression"]))
