"""Streams: stable, and independent of each other."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panas.runtime.seeds import stream, torch_generator

KEYS = st.lists(st.integers(-5, 5) | st.text(max_size=3), max_size=3).map(tuple)

PINNED = 148542


def draws(seed: int, *keys: str | int) -> tuple[float, ...]:
    return tuple(stream(seed, *keys).random(4))


@given(seed=st.integers(0, 2**40), a=KEYS, b=KEYS)
def test_different_keys_give_different_streams(
    seed: int, a: tuple[str | int, ...], b: tuple[str | int, ...]
) -> None:
    assert (draws(seed, *a) == draws(seed, *b)) == (a == b)


@pytest.mark.parametrize(
    ("a", "b"),
    [((1,), ("1",)), (("ab",), ("a", "b")), (("a", "b"), ("b", "a")), ((), ("",)), ((12,), (1, 2))],
)
def test_look_alikes_differ(a: tuple[str | int, ...], b: tuple[str | int, ...]) -> None:
    assert draws(7, *a) != draws(7, *b)


def test_seeds_differ_streams_are_uncorrelated_and_one_is_pinned() -> None:
    assert draws(1, "x") != draws(2, "x")
    x = np.stack([stream(0, "client", i).standard_normal(4000) for i in range(10)])
    off_diagonal = np.corrcoef(x)[~np.eye(10, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / 4000**0.5
    keys = [stream(7, "client", 3).bit_generator.seed_seq.spawn_key for _ in range(2)]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 4
    assert stream(7, "client", 3, "search").integers(10**6) == PINNED


def test_torch_generators_follow_their_stream_and_leave_the_global_state() -> None:
    before = torch.random.get_rng_state()
    a, b = (torch_generator(stream(3, "net")) for _ in range(2))
    assert torch.equal(torch.rand(5, generator=a), torch.rand(5, generator=b))
    rng = stream(3, "net")
    first, second = torch_generator(rng), torch_generator(rng)
    assert not torch.equal(torch.rand(5, generator=first), torch.rand(5, generator=second))
    assert torch.equal(torch.random.get_rng_state(), before)
