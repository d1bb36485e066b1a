import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprbft.simulation.partition import Partition, partition, partition_whole
from panas.runtime.errors import BadInput

Y = np.random.default_rng(0).integers(10, size=4000)


def spread(y=Y, seed=0, groups=None, **how) -> list[np.ndarray]:
    return partition(y, Partition(**how), np.random.default_rng(seed), groups)


def classes_of(part: np.ndarray, y=Y) -> set[int]:
    return {int(c) for c in y[part]}


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=120),
    st.sampled_from(["iid", "dirichlet", "classes", "natural"]),
    st.integers(1, 12),
    st.floats(1e-4, 1e4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_parts_are_disjoint_sorted_and_not_empty(y, kind, clients, alpha, k, minimum, seed):
    y = np.array(y)
    arguments = {
        "kind": kind,
        "clients": clients,
        "alpha": alpha,
        "classes_per_client": k,
        "minimum": minimum,
        "groups": y,
    }
    try:
        parts = spread(y, seed, **arguments)
    except BadInput:
        return
    together = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(together)) == len(together)
    assert all(len(p) and p.dtype == np.int64 and np.all(np.diff(p) > 0) for p in parts)
    if kind != "classes":
        assert len(together) == len(y)
    if kind == "dirichlet":
        assert min(map(len, parts)) >= minimum
    again = spread(y, seed, **arguments)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_iid_shares_are_equal_and_alike() -> None:
    parts = spread(kind="iid", clients=7)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    shares = np.stack([np.bincount(Y[p]) / len(p) for p in parts])
    assert np.abs(shares - 0.1).max() < 0.05  # 3.9 standard deviations of a share


def test_dirichlet_with_large_alpha_is_nearly_iid() -> None:
    parts = spread(kind="dirichlet", clients=5, alpha=1e6)
    exact = np.bincount(Y) / 5
    assert all(np.abs(np.bincount(Y[p]) - exact).max() <= 3 for p in parts)


def test_dirichlet_with_small_alpha_leaves_a_client_few_classes() -> None:
    # At alpha 1e-4 a class goes to one site nearly always; 10 classes cover 3 sites often.
    parts = spread(kind="dirichlet", clients=3, alpha=1e-4)
    assert sum(len(classes_of(p)) for p in parts) <= 11
    mixed = spread(kind="dirichlet", clients=3, alpha=100.0)
    assert all(len(classes_of(p)) == 10 for p in mixed)


def test_a_dirichlet_draw_that_starves_clients_is_mended() -> None:
    # One class at a tiny alpha goes to one site whole: no redraw can help, only moving does.
    parts = spread(np.zeros(100, np.int64), kind="dirichlet", clients=9, alpha=1e-5, minimum=11)
    assert sorted(map(len, parts)) == [11] * 8 + [12]


def test_class_subsets() -> None:
    for seed in range(5):
        parts = spread(seed=seed, kind="classes", clients=10, classes_per_client=2)
        assert all(len(classes_of(p)) == 2 for p in parts)
        assert len(np.concatenate(parts)) == len(Y)  # 20 places for 10 classes: all are owned
        for c in range(10):
            shares = [np.count_nonzero(Y[p] == c) for p in parts]
            owners = [s / sum(shares) for s in shares if s]
            assert len(owners) == 2
            assert 0.4 - 0.01 <= min(owners) <= max(owners) <= 0.6 + 0.01


def test_a_class_that_nobody_owns_is_left_out() -> None:
    parts = spread(kind="classes", clients=2, classes_per_client=3)
    owned = [classes_of(p) for p in parts]
    assert [len(o) for o in owned] == [3, 3]
    assert not owned[0] & owned[1]
    kept = set(np.concatenate(parts).tolist())
    assert kept == set(np.flatnonzero(np.isin(Y, list(owned[0] | owned[1]))).tolist())


def test_an_only_owner_gets_the_whole_class() -> None:
    parts = spread(kind="classes", clients=5, classes_per_client=2)
    assert len(np.concatenate(parts)) == len(Y)


def test_natural_groups_are_clients_in_sorted_order() -> None:
    groups = np.array(["b", "a", "c", "a"])
    parts = spread(np.zeros(4, np.int64), kind="natural", clients=3, groups=groups)
    assert [p.tolist() for p in parts] == [[1, 3], [0], [2]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kind": "random", "clients": 2}, "iid, dirichlet, classes, natural"),
        ({"kind": "iid", "clients": 0}, "sites"),
        ({"kind": "iid", "clients": 7}, "sites"),
        ({"kind": "dirichlet", "clients": 2, "minimum": 4}, "minimum"),
        ({"kind": "dirichlet", "clients": 2, "minimum": 0}, "minimum"),
        ({"kind": "dirichlet", "clients": 2, "minimum": 1, "alpha": 0.0}, "alpha"),
        ({"kind": "dirichlet", "clients": 2, "minimum": 1, "alpha": np.nan}, "alpha"),
        ({"kind": "classes", "clients": 2, "classes_per_client": 3}, "classes per site"),
        ({"kind": "classes", "clients": 2, "classes_per_client": 0}, "classes per site"),
        ({"kind": "classes", "clients": 6, "classes_per_client": 1}, "none for site"),
        ({"kind": "natural", "clients": 2}, "group"),
        ({"kind": "natural", "clients": 2, "groups": np.arange(5)}, "a group for each"),
        ({"kind": "natural", "clients": 2, "groups": np.arange(6)}, "clients to 6"),
    ],
)
def test_what_cannot_be_spread(arguments, says) -> None:
    y = np.array([0, 1, 1, 1, 1, 1])
    with pytest.raises(BadInput, match=says):
        spread(y, **arguments)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "classes"])
def test_all_samples_of_a_unit_go_to_one_client(kind: str):
    units = np.random.default_rng(1).integers(900, size=len(Y))
    parts = partition_whole(Y, units, Partition(kind=kind, clients=5), np.random.default_rng(0))
    assert len(np.concatenate(parts)) == len(set(np.concatenate(parts).tolist()))
    for i, part in enumerate(parts):
        assert len(part)
        assert np.all(np.diff(part) > 0)
        others = np.concatenate([other for j, other in enumerate(parts) if j != i])
        assert not set(units[part]) & set(units[others])
