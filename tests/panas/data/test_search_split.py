"""What a search looks at: public samples like the site's, or its own search split."""

import pytest
import torch

from panas.data.samples import Samples
from panas.data.search_split import private_data, proxy_data
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

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


def test_a_proxy_repeats_from_its_generator():
    assert torch.equal(proxy().train.x, proxy().train.x)
    other = proxy_data(PUBLIC, torch.ones(4), samples=60, rng=stream(1, "proxy"))
    assert not torch.equal(proxy().train.x, other.train.x)


def test_a_proxy_without_public_samples_is_refused():
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
