import numpy as np
import pytest
import torch

from panas.data.samples import Samples, concat, digest
from panas.runtime.errors import BadInput


def bytes_of(n: int, classes: int = 3) -> Samples:
    x = torch.arange(n * 4, dtype=torch.uint8).reshape(n, 1, 2, 2)
    return Samples(x, torch.arange(n) % classes, classes)


def test_inputs_map_bytes_to_the_unit_interval_and_leave_floats_alone() -> None:
    ends = Samples(torch.tensor([0, 255, 51]).byte().reshape(3, 1, 1, 1), torch.zeros(3).long(), 1)
    assert torch.allclose(ends.inputs().flatten(), torch.tensor([-1, 1, -0.6]))
    assert ends.x.dtype == torch.uint8  # the stored copy stays as it was
    assert ends.x.flatten().tolist() == [0, 255, 51]
    floats = Samples(torch.full((2, 1, 1, 1), 0.25), torch.zeros(2).long(), 1)
    assert torch.equal(floats.inputs(np.array([1])), torch.full((1, 1, 1, 1), 0.25))


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_take_follows_the_order_of_the_indices(kind) -> None:
    samples = bytes_of(5)
    some = samples.take(kind([4, 0, 4]))
    assert some.y.tolist() == [1, 0, 1]
    assert torch.equal(some.inputs(), samples.inputs(kind([4, 0, 4])))
    assert some.classes == 3


def test_an_empty_set_keeps_its_shape() -> None:
    none = bytes_of(5).take(np.arange(0))
    assert (len(none), none.shape, none.histogram().tolist()) == (0, (1, 2, 2), [0, 0, 0])
    assert none.inputs().shape == (0, 1, 2, 2)


def test_concat_undoes_take() -> None:
    samples = bytes_of(6)
    joined = concat([samples.take(range(2)), samples.take(range(2, 6))])
    assert torch.equal(joined.x, samples.x)
    assert torch.equal(joined.y, samples.y)
    assert joined.histogram().tolist() == [2, 2, 2]


def test_concat_refuses_parts_that_differ() -> None:
    with pytest.raises(BadInput, match="one shape"):
        concat([bytes_of(2), bytes_of(2, classes=4)])
    with pytest.raises(BadInput, match="none"):
        concat([])


def grouped(n: int, groups: list[int]) -> Samples:
    plain = bytes_of(n)
    return Samples(plain.x, plain.y, plain.classes, torch.tensor(groups))


def test_groups_follow_their_samples() -> None:
    samples = grouped(5, [7, 7, 2, 9, 2])
    assert (samples.units, bytes_of(5).units) == (3, 5)
    taken = samples.take([4, 0, 2]).groups
    assert taken is not None
    assert taken.tolist() == [2, 7, 2]
    joined = concat([samples.take([0, 2]), samples.take([1, 3, 4])])
    assert joined.groups is not None
    assert joined.groups.tolist() == [7, 2, 7, 9, 2]
    assert joined.units == 3
    assert digest(samples) != digest(bytes_of(5))
    with pytest.raises(BadInput, match="in all sets or in none"):
        concat([samples, bytes_of(2)])
