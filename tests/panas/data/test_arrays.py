"""A user's own data: what is taken, what is scaled, what is refused."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from panas.data.arrays import as_samples, with_facts
from panas.runtime.errors import BadInput

LABELS = torch.tensor([0, 2, 1])


def floats(low: float, high: float) -> torch.Tensor:
    return torch.linspace(low, high, 3 * 2 * 4 * 5).reshape(3, 2, 4, 5)


def test_a_torch_data_set_and_a_pair_of_arrays_are_the_same() -> None:
    x = floats(0.0, 1.0)
    one, other = as_samples(TensorDataset(x, LABELS)), as_samples((x.numpy(), LABELS.numpy()))
    assert one.shape == (2, 4, 5)
    assert one.classes == 3
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.x, 2 * x - 1)
    assert torch.equal(one.y, LABELS)


def test_bytes_stay_bytes_and_other_floats_stay_as_they_are() -> None:
    pictures = [Image.fromarray(np.full((4, 5), k, np.uint8)) for k in (0, 9, 255)]
    found = as_samples(list(zip(pictures, [0, 1, 0], strict=True)))
    assert found.x.dtype == torch.uint8
    assert found.shape == (1, 4, 5)
    assert found.x[:, 0, 0, 0].tolist() == [0, 9, 255]
    x = floats(-2.0, 2.0)
    assert torch.equal(as_samples((x, LABELS)).x, x)


def test_one_sample_does_not_decide_how_the_others_are_scaled_where_that_was_told() -> None:
    x = floats(0.0, 1.0)
    outlier = x.clone()
    outlier[0, 0, 0, 0] = 1.5
    told = [as_samples((images, LABELS), unit=True).x[1:] for images in (x, outlier)]
    assert torch.equal(*told)
    looked = [as_samples((images, LABELS)).x[1:] for images in (x, outlier)]
    assert not torch.equal(*looked)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((floats(0, 1), LABELS[:2]), "as many labels"),
        ((floats(0, 1)[:0], LABELS[:0]), "at least one"),
        ((floats(0, 1) * float("nan"), LABELS), "finite"),
        ((floats(0, 1), LABELS.float()), "whole number"),
        ((floats(0, 1), LABELS - 1), "labels of 0"),
        ((floats(0, 1), np.array(["a", "b", "a"])), "np.unique"),
        ((floats(0, 1), [0, "b", 1]), "whole number"),
        ((floats(0, 1), [[0], [1, 2], [0]]), "whole number"),
        ((np.zeros((3, 7)), LABELS), "panas run --dataset"),
        ((np.array([["a"], ["b"], ["c"]]), LABELS), "images as numbers"),
        ([(torch.zeros(1, 4, 4), 0), (torch.zeros(1, 5, 5), 1)], "one shape"),
        ([1, 2], "pairs"),
        (7, "torch data set"),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_line(data: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        as_samples(data)
    assert "\n" not in str(refused.value)


def test_sixteen_bits_are_refused_and_not_fed_as_they_are() -> None:
    deep = np.arange(3 * 4 * 5, dtype=np.uint16).reshape(3, 4, 5) * 1000
    with pytest.raises(BadInput, match="16-bit"):
        as_samples((deep, LABELS))
    with pytest.raises(BadInput, match="16-bit"):
        as_samples(
            [(Image.fromarray(image), int(y)) for image, y in zip(deep, LABELS, strict=True)]
        )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_pair_of_pictures_with_channels_last_is_told_from_one_with_channels_first(
    channels: int,
) -> None:
    first = np.random.default_rng(0).random((3, channels, 6, 5))
    last = first.transpose(0, 2, 3, 1)
    assert torch.equal(as_samples((first, LABELS)).x, as_samples((last, LABELS)).x)
    assert as_samples((torch.from_numpy(last), LABELS)).shape == (6, 5, channels)


def test_floats_that_nobody_scaled_are_named() -> None:
    with pytest.warns(UserWarning, match="divide images by"):
        with_facts((floats(0, 255), LABELS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_facts((floats(-3, 3), LABELS))
