"""Samples in memory, and what a search looks at: public ones like the site's, or its own split."""

import numpy as np
import pytest
import torch

from panas.data.samples import Samples, concat, digest
from panas.data.splits import private_data, proxy_data
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream


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


def test_an_empty_set_keeps_its_shape_and_concat_undoes_take() -> None:
    none = bytes_of(5).take(np.arange(0))
    assert (len(none), none.shape, none.histogram().tolist()) == (0, (1, 2, 2), [0, 0, 0])
    assert none.inputs().shape == (0, 1, 2, 2)
    samples = bytes_of(6)
    joined = concat([samples.take(range(2)), samples.take(range(2, 6))])
    assert torch.equal(joined.x, samples.x)
    assert torch.equal(joined.y, samples.y)
    assert joined.histogram().tolist() == [2, 2, 2]
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
    assert taken.tolist() == [2, 7, 2]
    joined = concat([samples.take([0, 2]), samples.take([1, 3, 4])])
    assert joined.groups.tolist() == [7, 2, 7, 9, 2]
    assert joined.units == 3
    assert digest(samples) != digest(bytes_of(5))
    with pytest.raises(BadInput, match="in all sets or in none"):
        concat([samples, bytes_of(2)])


SHAPE = (1, 8, 8)


def numbered(n: int, classes: int = 4) -> Samples:
    """Images that spell their own number, and whose brightness tells the class."""
    x = torch.zeros(n, *SHAPE, dtype=torch.uint8)
    y = torch.arange(n) % classes
    x[:, 0, 2:] = (60 * y[:, None, None]).to(torch.uint8)
    x[:, 0, 0, 0], x[:, 0, 0, 1] = torch.arange(n) // 256, torch.arange(n) % 256
    return Samples(x, y, classes)


def numbers(samples: Samples) -> set[int]:
    return {int(a) * 256 + int(b) for a, b in samples.x[:, 0, 0, :2].tolist()}


PUBLIC = numbered(400)


def proxy(histogram: torch.Tensor | None = None, samples: int = 60):
    frequencies = torch.ones(4) if histogram is None else histogram
    return proxy_data(PUBLIC, frequencies, samples=samples, rng=stream(0, "proxy"))


def test_a_proxy_has_the_clients_size_and_class_frequencies():
    data = proxy(torch.tensor([30.0, 10.0, -5.0, 0.0]), samples=80)
    assert data.train.histogram().tolist() == [60, 20, 0, 0]
    share = data.validation.histogram() / len(data.validation)
    assert share.tolist() == pytest.approx([0.75, 0.25, 0.0, 0.0], abs=0.01)


def test_the_parts_of_a_proxy_are_disjoint_in_origin():
    data = proxy(samples=500)
    parts = [numbers(p) for p in (data.warm, data.train, data.validation)]
    assert all(parts)
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert set.union(*parts) <= numbers(PUBLIC)


def test_a_proxy_repeats_from_its_generator_and_needs_public_samples():
    assert torch.equal(proxy().train.x, proxy().train.x)
    other = proxy_data(PUBLIC, torch.ones(4), samples=60, rng=stream(1, "proxy"))
    assert not torch.equal(proxy().train.x, other.train.x)
    with pytest.raises(BadInput, match="public_data"):
        proxy_data(PUBLIC.take([]), torch.ones(4), samples=10, rng=stream(0))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_proxy_of_next_to_no_public_samples_still_has_all_parts(n: int):
    data = proxy_data(PUBLIC.take(range(n)), torch.ones(4), samples=10, rng=stream(0))
    assert len(data.train) == 10
    assert len(data.validation) >= 200


def test_the_papers_search_split_is_divided_five_to_one_to_one():
    private, public = numbered(70), PUBLIC.take(range(300, 310))
    data = private_data(private, public, stream(0))
    assert (len(data.train), len(data.validation)) == (50, 10)
    assert not numbers(data.train) & numbers(data.validation)
    assert numbers(data.train) | numbers(data.validation) < numbers(private)
    assert numbers(data.warm) == numbers(public)
