from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panas.data.load import DataSettings, Source, load
from panas.runtime.errors import BadInput


def source(dataset: str | Path, seed: int = 0, **changes: object) -> Source:
    given = {"public_fraction": 0.2, "public_limit": 10_000, **changes}
    return load(DataSettings(dataset=str(dataset), **given), np.random.default_rng(seed))


def numbered(folder: Path, n: int, classes: int = 2, name: str = "set.npz") -> Path:
    """Images whose pixels spell their own number, so that each can be told from the others."""
    i = np.arange(n)
    x = np.stack([i % 256, i // 256], axis=1).astype(np.uint8).reshape(n, 1, 2)
    np.savez(folder / name, x=x, y=i % classes)
    return folder / name


def numbers(x: torch.Tensor) -> list[int]:
    flat = x.flatten(1).long()
    return (flat[:, 0] + 256 * flat[:, 1]).tolist()


@pytest.fixture(scope="module")
def hundred(tmp_path_factory) -> Path:
    return numbered(tmp_path_factory.mktemp("set"), 600)


@given(
    st.floats(0, 0.999), st.integers(0, 700), st.none() | st.integers(1, 700), st.integers(0, 99)
)
@settings(max_examples=40)
def test_public_and_private_are_disjoint_and_as_large_as_asked(hundred, f, most, limit, seed):
    args = {"public_fraction": f, "public_limit": most, "limit": limit}
    s = source(hundred, seed, **args)
    public, private = numbers(s.public.x), numbers(s.private.x)
    assert len(set(public) | set(private)) == len(public) + len(private)
    assert len(public) == min(round(600 * f), most, 599)
    assert len(private) == min(limit or 600, 600 - len(public))
    assert [i % 2 for i in public + private] == [*s.public.y.tolist(), *s.private.y.tolist()]
    counts = s.public.histogram()
    assert counts.max() - counts.min() <= 1  # stratified
    again = source(hundred, seed, **args)
    assert torch.equal(again.private.x, s.private.x)
    assert torch.equal(again.public.x, s.public.x)


def test_digits_need_nothing() -> None:
    s = source("digits", limit=1000)
    assert (s.name, s.private.shape, s.private.classes) == ("digits", (1, 8, 8), 10)
    assert (len(s.private), len(s.public)) == (1000, 359)
    assert s.private.x.dtype == torch.uint8


def test_a_second_data_set_as_the_public_part(tmp_path) -> None:
    mine, other = numbered(tmp_path, 30), numbered(tmp_path, 50, name="other.npz")
    s = source(mine, public_data=str(other), public_limit=20)
    assert numbers(s.private.x) == list(range(30))
    assert len(s.public) == 20
    assert s.public.histogram().tolist() == [10, 10]
    with pytest.raises(BadInput, match="got the same"):
        source(mine, public_data=f"{tmp_path}/../{tmp_path.name}/set.npz")
    five = numbered(tmp_path, 50, classes=5, name="five.npz")
    assert source(mine, public_data=str(five)).private.classes == 5  # as the public ones say
    with pytest.raises(BadInput, match=r"federation's classes \(0, 1\) in five.npz, got others"):
        source(five, public_data=str(mine))
    with pytest.raises(BadInput, match="shape"):
        source(mine, public_data="digits")
    np.savez(tmp_path / "named.npz", x=np.zeros((2, 1, 2), np.uint8), y=np.array([1, 2]))
    with pytest.raises(BadInput, match="classes"):
        source(mine, public_data=str(tmp_path / "named.npz"))


def test_a_table_and_its_public_part_have_the_same_columns_in_any_order(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("u,v,y\n1,20,0\n3,40,1\n")
    (tmp_path / "b.csv").write_text("v,u,y\n20,1,0\n40,3,1\n")
    s = source(tmp_path / "a.csv", public_data=str(tmp_path / "b.csv"))
    assert torch.equal(s.private.x, s.public.x)
    (tmp_path / "c.csv").write_text("v,w,y\n20,1,0\n40,3,1\n")
    with pytest.raises(BadInput, match=r"federation's columns in a\.csv, got none 'w'"):
        source(tmp_path / "a.csv", public_data=str(tmp_path / "c.csv"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"public_fraction": 1.0}, "public fraction"),
        ({"public_fraction": -0.1}, "public fraction"),
        ({"public_fraction": np.nan}, "public fraction"),
        ({"public_limit": -1}, "public limit"),
        ({"limit": 0}, "limit"),
        ({"image_size": 0}, "image size"),
    ],
)
def test_arguments_out_of_range(changes, says) -> None:
    with pytest.raises(BadInput, match=says):
        source("digits", **changes)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cifar_10", "did you mean cifar10"),
        ("Fashion-MNIST", "did you mean fashion-mnist"),
        ("nowhere/set.npz", "expected a file"),
        ("nowhere/set.csv", "expected a file"),
        ("~~~", "check the name"),
        ("fashion-mnist", "expected --data-root DIR for fashion-mnist, got none"),
    ],
)
def test_what_is_not_there(name, says) -> None:
    with pytest.raises(BadInput, match=says):
        source(name)


def test_no_samples_and_one_class(tmp_path) -> None:
    with pytest.raises(BadInput, match="expected samples"):
        source(numbered(tmp_path, 0))
    (tmp_path / "empty.csv").write_text("a,y\n")
    with pytest.raises(BadInput, match="expected samples"):
        source(tmp_path / "empty.csv")
    with pytest.warns(UserWarning, match="one class only"):
        s = source(numbered(tmp_path, 5, classes=1))
    assert s.private.classes == 1
    with pytest.warns(UserWarning, match="one class only"):
        assert len(source(numbered(tmp_path, 1, classes=1), public_fraction=0.9).private) == 1


def test_tables_become_padded_squares(tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(5, 3, (200, 5))
    text = "\n".join(",".join(map(str, [*row, i % 2])) for i, row in enumerate(rows))
    (tmp_path / "t.csv").write_text("a,b,c,d,e,label\n" + text)
    s = source(tmp_path / "t.csv", public_fraction=0.5)
    assert s.private.shape == (1, 3, 3)
    assert s.private.x.dtype == torch.float32
    assert torch.equal(s.private.x.flatten(1)[:, 5:], torch.zeros(100, 4))
    assert s.public.x.abs().max() <= 1
    assert (s.public.x.flatten(1)[:, :5].std(dim=0) - 1 / 3).abs().max() < 0.02


def test_fashion_mnist(shared_data) -> None:
    s = source("fashion-mnist", data_root=str(shared_data), public_limit=2000, limit=5000)
    assert (len(s.private), len(s.public), s.private.shape) == (5000, 2000, (1, 28, 28))
    assert s.public.histogram().tolist() == [200] * 10
    assert s.class_names[0] == "T-shirt/top"
    assert s.private.x.dtype == torch.uint8


def test_pneumonia(shared_data) -> None:
    s = source(shared_data / "pneumoniamnist.npz", public_fraction=0.0)
    assert (len(s.private), len(s.public), s.private.classes) == (4708 + 524 + 624, 0, 2)
    assert s.name == "pneumoniamnist.npz"
    assert s.public.shape == s.private.shape == (1, 28, 28)


def test_card_fraud(shared_data) -> None:
    path = shared_data / "creditcard_sample_492pos_1230neg.csv"
    s = source(path, label="Class")
    assert (len(s.private) + len(s.public), s.private.shape) == (1722, (1, 6, 6))
    assert (s.private.histogram() + s.public.histogram()).tolist() == [1230, 492]
    assert torch.equal(source(path).private.x, s.private.x)  # the column is found without its name
