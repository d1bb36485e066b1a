from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks.threats import controls
from attacks.threats.blind import GUESSES, from_all_others, from_known
from panas.data.samples import Samples, concat


def _samples(n: int, seed: int, shift: float = 0.0, classes: int = 3) -> Samples:
    g = torch.Generator().manual_seed(seed)
    means = 0.4 * torch.rand(3, 1, 2, 3, generator=torch.Generator().manual_seed(9)) - 0.2
    y = torch.randint(classes, (n,), generator=g)
    x = means[y] + shift + 0.1 * torch.randn(n, 1, 2, 3, generator=g)
    return Samples(x.clamp(-1, 1), y, 3)


def _error(truth: Samples, guess: torch.Tensor) -> float:
    return float((truth.x - guess).square().mean())


def test_guesses_from_known_samples_are_their_means() -> None:
    public, known, y = _samples(40, 0), _samples(12, 1, 0.4), torch.tensor([0, 2, 1, 1])
    found = from_known(public, known, y)
    assert tuple(found) == GUESSES
    assert torch.allclose(found["mean"], known.x.mean(0).expand(4, 1, 2, 3), atol=1e-6)
    for guess, c in zip(found["class mean"], y, strict=True):
        assert torch.allclose(guess, known.x[known.y == c].mean(0), atol=1e-6)


def test_a_class_that_nobody_knows_has_the_mean() -> None:
    public, known = _samples(40, 0), _samples(12, 1, classes=1)
    found = from_known(public, known, torch.tensor([2]))
    assert torch.allclose(found["class mean"][0], known.x.mean(0), atol=1e-6)


@pytest.mark.parametrize("name", GUESSES[:2])
@pytest.mark.parametrize("beside", [True, False])
def test_no_sample_says_anything_of_itself(name: str, beside: bool) -> None:
    public, mine = _samples(40, 0), _samples(15, 1, 0.3)
    others = _samples(10, 2, 0.3) if beside else None
    found = from_all_others(public, mine, others)[name]
    for i in range(len(mine)):
        rest = mine.take([j for j in range(len(mine)) if j != i])
        known = rest if others is None else concat([rest, others])
        own = mine.y[i : i + 1]
        assert torch.allclose(found[i], from_known(public, known, own)[name][0], atol=1e-5)


def test_a_sample_moves_every_guess_but_its_own() -> None:
    public, mine = _samples(40, 0), _samples(15, 1, 0.3)
    x = mine.x.clone()
    x[4] = -x[4]
    before, after = (from_all_others(public, s, None) for s in (mine, replace(mine, x=x)))
    for name in GUESSES[:2]:
        assert torch.allclose(before[name][4], after[name][4], atol=1e-6)
        same = int((mine.y == mine.y[4]).nonzero()[0])
        assert same == 4 or not torch.allclose(before[name][same], after[name][same], atol=1e-3)


@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("known", [8, 200])
def test_the_regression_is_near_the_best_guess_at_any_site(shift: float, known: int) -> None:
    public, leaked, truth = _samples(300, 0), _samples(known, 1, shift), _samples(400, 2, shift)
    found = from_known(public, leaked, truth.y)
    by_public = controls.same_class_mean(public, truth.y)
    best = min(_error(truth, by_public), *(_error(truth, found[k]) for k in GUESSES[:2]))
    assert _error(truth, found["regression"]) < 1.15 * best
    if shift:  # public class means, moved: better than either alone with eight samples
        assert _error(truth, found["regression"]) < 0.5 * _error(truth, by_public)


def test_pictures_are_guessed_on_the_scale_of_networks() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (30, 1, 4, 4), generator=g).to(torch.uint8)
    pictures = Samples(x, torch.arange(30) % 3, 3)
    found = controls.by_leaked(pictures, pictures, pictures.y)
    expected = controls.same_class_mean(pictures, pictures.y)
    assert torch.allclose(found["leaked class mean"], expected, atol=1e-5)
    assert set(found) == set(controls.LEAKED)
    assert set(controls.by_others(pictures, pictures, None)) == set(controls.OTHERS)


def test_leaked_samples_are_known_to_their_threat_alone() -> None:
    assert set(controls.LEAKED) & set(controls.blind_to("white-box")) == set()
    assert set(controls.LEAKED) < set(controls.blind_to("leaked pairs"))
    assert set(controls.OTHERS) < set(controls.blind_to(None))
    assert "shuffled" not in controls.blind_to("leaked pairs")
    assert "ceiling" not in controls.blind_to("leaked pairs")


def test_one_sample_is_guessed_from_public_ones() -> None:
    public, one = _samples(40, 0), _samples(1, 1)
    found = from_all_others(public, one, None)
    assert all(bool(torch.isfinite(x).all()) for x in found.values())
    assert np.isfinite(_error(one, found["regression"]))
