"""Sub-networks of the MobileNetV3 super-network, and the weights that they share."""

import itertools

import pytest
import torch
from sample_gradients import assert_equal, data, seeded

from baselines.networks.mobilenet import (
    PUBLISHED,
    Space,
    SqueezeExcite,
    Stage,
    mobilenet,
    scaled,
    strides_for,
)
from baselines.perfedrlnas import OverlapMean, cut, window
from panas.privacy.gradients.per_sample import PerSample, cross_entropy, functional_gradients
from panas.runtime.errors import BadInput

SHAPE = (1, 8, 8)
SPACE = Space(
    first=2,
    stages=(
        Stage((2, 3), (1, 2), (3, 5), (1,), 2, True),
        Stage((2, 4), (1,), (3,), (2, 3), 2, False),
    ),
    last=3,
)
CHOICES = list(itertools.product(*(range(len(menu)) for menu in SPACE.menus)))


def state_of(choice: tuple[int, ...], seed: int = 0) -> dict[str, torch.Tensor]:
    g, model = torch.Generator().manual_seed(seed), mobilenet(SPACE, choice, SHAPE, 3, "group")
    return {k: torch.randn(t.shape, generator=g) for k, t in model.state_dict().items()}


@pytest.mark.parametrize("choice", [CHOICES[0], CHOICES[13], SPACE.largest])
def test_gradients_of_samples_are_those_of_a_loop(choice: tuple[int, ...]):
    model, (x, y) = seeded(mobilenet(SPACE, choice, SHAPE, 3, "group")), data(3, *SHAPE)
    assert assert_equal(model, x, y).by_rules
    expected = functional_gradients(model, cross_entropy, x, y)
    for got, wanted in zip(PerSample(model, cross_entropy)(x, y), expected, strict=True):
        torch.testing.assert_close(got.values, wanted, rtol=1e-4, atol=1e-5)


def test_squeeze_and_excite_keeps_samples_apart_and_is_as_written():
    layer = seeded(SqueezeExcite(8))
    assert isinstance(layer, SqueezeExcite)
    x = torch.randn(4, 8, 3, 3, generator=torch.Generator().manual_seed(2))
    together = layer(x)
    assert torch.allclose(together, torch.cat([layer(x_i) for x_i in x.split(1)]), atol=1e-6)
    few = torch.nn.functional.silu(
        x.mean((2, 3)) @ layer.reduce.weight[:, :, 0, 0].T + layer.reduce.bias
    )
    gate = torch.sigmoid(few @ layer.expand.weight[:, :, 0, 0].T + layer.expand.bias)
    torch.testing.assert_close(together, x * gate[:, :, None, None])


@pytest.mark.parametrize(
    ("side", "expected"),
    [(3, [1, 1, 1, 1]), (8, [1, 1, 2, 2]), (16, [1, 2, 2, 2]), (64, [2, 2, 2, 2])],
)
def test_maps_are_halved_by_the_last_stages(side: int, expected: list[int]):
    assert strides_for([2, 2, 2, 2], side) == expected
    assert strides_for([2, 1, 2, 2], 64) == [2, 1, 2, 2]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 3, 5)])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_it_serves_images_and_tables(shape: tuple[int, int, int], norm: str):
    space = scaled(0.1, 6, 2, 5)
    model = mobilenet(space, (0,) * len(space.menus), shape, 3, norm)  # type: ignore[arg-type]
    assert model(torch.zeros(2, *shape)).shape == (2, 3)


def test_the_published_space_is_the_unscaled_one():
    assert scaled(1.0, 6, 4, 1280) == PUBLISHED
    small = scaled(0.1, 4, 1, 7)
    assert small.stages[0].channels == (2,)
    assert small.stages[3].depth == (1,)


@pytest.mark.parametrize("choice", [(0,), (0, 0, 0, 0, 0, 0, 0, 2), (0, 0, 0, 0, 0, 0, 0, -1)])
def test_what_is_no_choice_is_refused(choice: tuple[int, ...]):
    with pytest.raises(BadInput, match="expected a choice from 8 menus"):
        SPACE.picked(choice)


def test_a_kernel_is_the_middle_and_channels_are_the_first():
    assert window((6, 4, 5, 5), (3, 4, 3, 3)) == (
        *(slice(0, 3), slice(0, 4)),
        *(slice(1, 4), slice(1, 4)),
    )
    assert window((), ()) == ()


def test_every_choice_is_cut_from_the_super_network_by_hand_too():
    whole = state_of(SPACE.largest)
    for choice in CHOICES:
        (wide, depth, kernel, _), (out, _, _, expansion) = SPACE.picked(choice)
        part = cut(whole, state_of(choice))
        middle = slice(0, 5) if kernel == 5 else slice(1, 4)
        name = "stages.0.0.body.depthwise.weight"
        assert torch.equal(part[name], whole[name][:2, :, middle, middle])
        name = "stages.1.0.body.expand.weight"
        assert torch.equal(part[name], whole[name][: wide * expansion, :wide])
        name = "stages.1.0.body.project.weight"
        assert torch.equal(part[name], whole[name][:out, : wide * expansion])
        assert ("stages.0.1.body.project.weight" in part) == (depth == 2)
        assert torch.equal(part["classifier.weight"], whole["classifier.weight"])


def test_the_mean_over_those_who_hold_an_entry_is_the_explicit_one():
    whole = state_of(SPACE.largest)
    mean, held = OverlapMean(whole), []
    for seed, (choice, weight) in enumerate([(CHOICES[0], 3.0), (CHOICES[9], 1.0)], start=1):
        part = state_of(choice, seed)
        mean.add(part, state_of(choice), weight)
        held.append((part, weight))
    result = mean.result()
    for name, old in whole.items():
        for at in itertools.product(*map(range, old.shape)):
            total = weights = 0.0
            for part, weight in held:
                if name not in part:
                    continue
                shape, shift = part[name].shape, [0] * old.dim()
                for axis in range(2, old.dim()):
                    shift[axis] = (old.shape[axis] - shape[axis]) // 2
                inner = tuple(i - s for i, s in zip(at, shift, strict=True))
                if all(0 <= i < n for i, n in zip(inner, shape, strict=True)):
                    total += weight * float(part[name][inner])
                    weights += weight
            expected = total / weights if weights else float(old[at])
            assert float(result[name][at]) == pytest.approx(expected, abs=1e-6)


def test_a_network_of_another_choice_is_refused():
    mean = OverlapMean(state_of(SPACE.largest))
    with pytest.raises(BadInput, match="update"):
        mean.add(state_of(CHOICES[0]), state_of(CHOICES[9]), 1.0)
