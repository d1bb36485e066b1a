import gzip
import inspect
import pickle
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import datasets

from panas.data import torchvision_sets as named
from panas.data.load import DataSettings, Source, load
from panas.data.torchvision_sets import NAMES, SETS, Idx, Vision, read_idx, read_named
from panas.runtime.errors import BadInput


def source(dataset: str | Path, seed: int = 0, **changes: object) -> Source:
    given = {"public_fraction": 0.2, "public_limit": 10_000, **changes}
    return load(DataSettings(dataset=str(dataset), **given), np.random.default_rng(seed))


def spelt(i: np.ndarray) -> np.ndarray:
    return np.stack([i % 256, i // 256], axis=1).astype(np.uint8).reshape(len(i), 1, 2)


def numbered(folder: Path, n: int, classes: int = 2, name: str = "set.npz", first: int = 0) -> Path:
    """Images whose pixels spell their own number, so that each can be told from the others."""
    i = np.arange(first, first + n)
    np.savez(folder / name, x=spelt(i), y=i % classes)
    return folder / name


def numbers(x: torch.Tensor) -> list[int]:
    flat = x.flatten(1).long()
    return (flat[:, 0] + 256 * flat[:, 1]).tolist()


@pytest.fixture(scope="module")
def hundred(tmp_path_factory) -> Path:
    return numbered(tmp_path_factory.mktemp("set"), 600)


@pytest.mark.slow
@given(
    st.floats(0, 0.999), st.integers(0, 700), st.none() | st.integers(1, 700), st.integers(0, 99)
)
@settings(max_examples=40)
def test_public_and_private_are_disjoint_and_no_more_than_asked(hundred, f, most, limit, seed):
    args = {"public_fraction": f, "public_limit": most, "limit": limit}
    s = source(hundred, seed, **args)
    public, private = numbers(s.public.x), numbers(s.private.x)
    assert len(set(public) | set(private)) == len(public) + len(private)
    assert len(public) <= min(600 * f + 70, most)
    assert len(public) >= min(600 * f - 70, most)
    assert len(private) == min(limit or 600, 600 - len(public))
    assert [i % 2 for i in public + private] == [*s.public.y.tolist(), *s.private.y.tolist()]
    assert s.unprotected == len(public)
    again = source(hundred, seed, **args)
    assert torch.equal(again.private.x, s.private.x)
    assert torch.equal(again.public.x, s.public.x)


def test_of_a_file_nothing_is_public_unless_asked_for(hundred) -> None:
    s = load(DataSettings(dataset=str(hundred)), np.random.default_rng(0))
    assert (len(s.private), len(s.public), s.unprotected) == (600, 0, 0)
    assert not DataSettings(dataset=str(hundred)).has_public
    s = load(DataSettings(), np.random.default_rng(0))
    assert (len(s.public), s.unprotected) == (449, 0)  # digits are public anyway
    counts = s.public.histogram()
    assert counts.max() - counts.min() <= 2  # drawn by class


def test_what_becomes_public_depends_on_no_label_and_on_no_other_sample(tmp_path) -> None:
    i = np.arange(300)
    x = spelt(i)
    np.savez(tmp_path / "a.npz", x=x, y=i % 2)
    np.savez(tmp_path / "b.npz", x=x[::-1][:-1], y=i[1:] % 3)  # one fewer, other labels
    one, other = (set(numbers(source(tmp_path / f).public.x)) for f in ("a.npz", "b.npz"))
    assert one - {0} == other - {0}
    assert 30 < len(one) < 90


def test_public_data_that_hold_a_private_sample_are_refused(tmp_path) -> None:
    mine = numbered(tmp_path, 30)
    other = numbered(tmp_path, 25, name="other.npz", first=25)
    with pytest.raises(BadInput, match=r"without any sample of set\.npz"):
        source(mine, public_data=str(other))
    (tmp_path / "a.csv").write_text("u,v,y\n1,2,0\n3,4,1\n")
    (tmp_path / "b.csv").write_text("v,u,y\n7,8,0\n2,1,1\n")
    with pytest.raises(BadInput, match=r"without any sample of a\.csv"):
        source(tmp_path / "a.csv", public_data=str(tmp_path / "b.csv"))
    (tmp_path / "c.csv").write_text("v,u,y\n2,1,0\n2,1,1\n")
    with pytest.warns(UserWarning, match="not checked"):
        source(tmp_path / "a.csv", public_data=str(tmp_path / "c.csv"))


def test_digits_need_nothing_and_declared_classes_are_the_classes(hundred) -> None:
    s = source("digits", limit=1000)
    assert (s.name, s.private.shape, s.private.classes) == ("digits", (1, 8, 8), 10)
    assert (len(s.private), len(s.public)) == (1000, 359)
    assert s.private.x.dtype == torch.uint8
    s = load(
        DataSettings(dataset=str(hundred)), np.random.default_rng(0), ("healthy", "ill", "other")
    )
    assert (s.class_names, s.private.classes) == (("healthy", "ill", "other"), 3)


def test_a_second_data_set_as_the_public_part(tmp_path) -> None:
    mine, other = numbered(tmp_path, 30), numbered(tmp_path, 50, name="other.npz", first=1000)
    s = source(mine, public_data=str(other), public_limit=20)
    assert numbers(s.private.x) == list(range(30))
    assert len(s.public) == 20
    assert s.public.histogram().tolist() == [10, 10]
    with pytest.raises(BadInput, match="got the same"):
        source(mine, public_data=f"{tmp_path}/../{tmp_path.name}/set.npz")
    five = numbered(tmp_path, 50, classes=5, name="five.npz", first=2000)
    assert source(mine, public_data=str(five)).private.classes == 5  # as the public ones say
    with pytest.raises(BadInput, match=r"federation's classes \(0, 1\) in five.npz, got others"):
        source(five, public_data=str(mine))
    with pytest.raises(BadInput, match="shape"):
        source(mine, public_data="digits")
    np.savez(tmp_path / "named.npz", x=np.full((2, 1, 2), 99, np.uint8), y=np.array([1, 2]))
    with pytest.raises(BadInput, match="classes"):
        source(mine, public_data=str(tmp_path / "named.npz"))


def test_a_table_and_its_public_part_have_the_same_columns_in_any_order(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("u,v,y\n1,50,0\n3,10,1\n")
    (tmp_path / "b.csv").write_text("v,u,y\n0,2,0\n30,0,1\n60,4,0\n")
    s = source(tmp_path / "a.csv", public_data=str(tmp_path / "b.csv"))
    assert s.facts.columns[0].name == "v"
    assert s.private.x.flatten(1)[:, 2:].tolist() == [[0, 0], [0, 0]]
    assert s.private.x.flatten(1)[0, 0] > 0 > s.private.x.flatten(1)[0, 1]
    (tmp_path / "c.csv").write_text("v,w,y\n20,1,0\n40,3,1\n")
    with pytest.raises(BadInput, match=r"federation's columns in a\.csv, got none 'w'"):
        source(tmp_path / "a.csv", public_data=str(tmp_path / "c.csv"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *(({"public_fraction": f}, "public fraction") for f in (1.0, -0.1, np.nan)),
        ({"public_limit": -1}, "public limit"),
        ({"limit": 0}, "limit"),
        ({"image_size": 0}, "image size"),
        ({"bits": 7}, "8 to 16 bits"),
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
        ("~~~", "give a path"),
        ("fashion-mnist", "expected data.data_root for fashion-mnist, got none"),
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


def test_tables_become_padded_squares(tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(5, 3, (200, 5))
    text = "\n".join(",".join(map(str, [*row, i % 2])) for i, row in enumerate(rows))
    (tmp_path / "t.csv").write_text("a,b,c,d,e,label\n" + text)
    s = source(tmp_path / "t.csv", public_fraction=0.5)
    assert s.private.shape == (1, 3, 3)
    assert s.private.x.dtype == torch.float32
    assert torch.equal(s.private.x.flatten(1)[:, 5:], torch.zeros(len(s.private), 4))
    assert s.public.x.abs().max() <= 1
    assert (s.public.x.flatten(1)[:, :5].std(dim=0) - 1 / 3).abs().max() < 0.02


def test_fashion_mnist(shared_data) -> None:
    s = source("fashion-mnist", data_root=str(shared_data), public_limit=2000, limit=5000)
    assert (len(s.private), len(s.public), s.private.shape) == (5000, 2000, (1, 28, 28))
    assert s.public.histogram().tolist() == [200] * 10
    assert s.class_names[0] == "T-shirt/top"
    assert s.private.x.dtype == torch.uint8


def test_pneumonia_and_its_parts(shared_data) -> None:
    s = source(shared_data / "pneumoniamnist.npz", public_fraction=0.0)
    assert (len(s.private), len(s.public), s.private.classes) == (4708 + 524 + 624, 0, 2)
    assert s.name == "pneumoniamnist.npz"
    assert s.public.shape == s.private.shape == (1, 28, 28)
    assert torch.bincount(s.private.part).tolist() == [4708, 524, 624]


@pytest.mark.filterwarnings("ignore:.*no name and was dropped")
def test_card_fraud(shared_data) -> None:
    path = shared_data / "creditcard_sample_492pos_1230neg.csv"
    with pytest.warns(UserWarning, match="no name and was dropped"):
        s = source(path, label="Class")
    assert (len(s.private) + len(s.public), s.private.shape) == (1722, (1, 6, 6))
    assert (s.private.histogram() + s.public.histogram()).tolist() == [1230, 492]
    assert torch.equal(source(path).private.x, s.private.x)  # the column is found without its name


def test_a_folder_is_read_as_its_public_data_are(tmp_path) -> None:
    for i, (folder, size) in enumerate((("mine/a", 9), ("mine/b", 12), ("public/a", 8))):
        (tmp_path / folder).mkdir(parents=True)
        Image.new("L", (size, size), i).save(tmp_path / folder / "a.png")
    Image.new("L", (8, 8), 50).save(tmp_path / "public" / "a" / "b.png")
    (tmp_path / "public" / "b").mkdir()
    Image.new("L", (8, 8), 60).save(tmp_path / "public" / "b" / "a.png")
    with pytest.warns(UserWarning, match="were made 8 x 8 pixels"):
        s = source(tmp_path / "mine", public_data=str(tmp_path / "public"))
    assert s.private.shape == s.public.shape == (1, 8, 8)


def test_deep_pictures_are_scaled_or_refused(tmp_path) -> None:
    x = np.arange(40, dtype=np.uint16).reshape(20, 1, 2) * 100  # 12 bits in 16
    np.savez(tmp_path / "deep.npz", x=x, y=np.arange(20) % 2)
    with pytest.raises(BadInput, match=r"data\.bits"):
        source(tmp_path / "deep.npz", public_fraction=0.0)
    s = source(tmp_path / "deep.npz", public_fraction=0.0, bits=12)
    assert torch.allclose(s.private.x.flatten(), torch.arange(40) * 200 / 4095 - 1)


def test_options_of_a_table(tmp_path) -> None:
    i = np.arange(60)
    rows = [f"{2 * k},{k % 3},{k % 4},{(k * 7) % 11},{k % 2}" for k in i]
    (tmp_path / "t.csv").write_text("age,patient,hospital,code,y\n" + "\n".join(rows[::-1]))
    s = source(
        tmp_path / "t.csv",
        public_fraction=0.0,
        group="patient",
        client_column="hospital",
        table={"texts": ("code",)},
        ranges={"age": (0.0, 118.0)},
    )
    assert s.private.units == 3
    assert sorted(set(s.clients)) == ["0", "1", "2", "3"]
    assert [c.kind for c in s.facts.columns] == ["number", "text"]
    assert torch.allclose(s.private.x.flatten(1)[:, 0], torch.arange(59, -1, -1) * 2 / 59 - 1)
    with pytest.raises(BadInput, match="leave the option out"):
        source("digits", label="Class")
    with pytest.raises(BadInput, match="'nowhere'"):
        source(tmp_path / "t.csv", table={"texts": ("nowhere",)})


def test_public_rows_say_which_column_numbers_them_and_none_is_dropped(tmp_path) -> None:
    rows = [f"{3 * k},{(k * 7) % 11},{k % 2}" for k in range(60)]
    (tmp_path / "t.csv").write_text("id,b,y\n" + "\n".join(rows))
    with pytest.warns(UserWarning, match="'id' seems to number the rows"):
        s = source(tmp_path / "t.csv", public_fraction=0.9)
    assert [c.name for c in s.facts.columns] == ["id", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # private rows say nothing
        source(tmp_path / "t.csv", public_fraction=0.0)


def test_public_samples_that_a_limit_leaves_out_are_told(tmp_path) -> None:
    for name, start in (("own", 0), ("open", 100)):
        rows = [f"{(start + k) * 7 % 301}.5,{k % 2}" for k in range(60)]
        (tmp_path / f"{name}.csv").write_text("a,y\n" + "\n".join(rows))
    with pytest.warns(UserWarning, match="40 of 60 public samples are used, and 20 left out"):
        source(tmp_path / "own.csv", public_data=str(tmp_path / "open.csv"), public_limit=40)
    with pytest.warns(
        UserWarning, match="public are 10 samples at most, .* all others stay private"
    ):
        source(tmp_path / "own.csv", public_fraction=0.5, public_limit=10)


def test_classes_that_differ_in_case_alone_are_told(tmp_path) -> None:
    labels = ("Yes", "yes", "No")
    rows = [f"{k}.5,{labels[k % 3]}" for k in range(30)]
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(rows))
    with pytest.warns(UserWarning, match="'Yes' and 'yes' differ in case alone and count as 3"):
        s = source(tmp_path / "t.csv", public_fraction=0.0)
    assert s.facts.class_names == ("No", "Yes", "yes")


def test_public_rows_say_which_columns_tell_the_class_or_nothing(tmp_path) -> None:
    rows = [f"{k % 2 + 3},{k % 5},8,{k % 2}" for k in range(60)]
    (tmp_path / "t.csv").write_text("leak,fair,same,y\n" + "\n".join(rows))
    with pytest.warns(UserWarning, match="column") as caught:
        source(tmp_path / "t.csv", public_fraction=0.9)
    said = " ".join(str(w.message) for w in caught)
    assert "column 'leak' alone tells" in said
    assert "column 'same' is the same" in said
    assert "'fair'" not in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source(tmp_path / "t.csv", public_fraction=0.0)  # private rows are not judged


def test_a_public_table_teaches_categories_and_kinds(tmp_path) -> None:
    (tmp_path / "p.csv").write_text("code,n,y\nx,1,0\n2,,1\nx,4,1\n2,9,0\n")
    (tmp_path / "m.csv").write_text("code,n,y\n2,5,0\n7,,1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = source(
            tmp_path / "m.csv", public_data=str(tmp_path / "p.csv"), table={"texts": ("code",)}
        )
    assert s.facts.columns[0].categories == ("2", "x")
    x = s.private.x.flatten(1)
    assert x[:, :3].tolist() == [[1, -1, -1], [-1, -1, 1]]  # 2, x, any other
    assert x[:, 4].tolist() == [-1, 1]  # whether n is missing
    assert x[1, 3] == 0


def write_idx(path, values: np.ndarray, packed: bool) -> None:
    code = {"u1": 8, "i4": 12}[values.dtype.str[1:]]
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, code, values.ndim, *values.shape)
    data = head + values.astype(values.dtype.newbyteorder(">")).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_idx_round_trip(tmp_path, packed, dtype) -> None:
    values = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    write_idx(tmp_path / "v", values, packed)
    assert np.array_equal(read_idx(tmp_path / "v"), values)


@pytest.mark.parametrize("name", [n for n, entry in SETS.items() if isinstance(entry, Idx)])
def test_idx_sets_read_as_torchvision_reads_them(tmp_path, name) -> None:
    entry = SETS[name]
    rng = np.random.default_rng(0)
    images, labels = [], []
    for prefix, n in zip(entry.prefixes, (7, 5), strict=True):
        images.append(rng.integers(256, size=(n, 28, 28), dtype=np.uint8))
        y = rng.integers(1, 10, size=n)
        labels.append(y)
        raw = tmp_path / entry.folder / "raw"
        write_idx(raw / f"{prefix}-images-idx3-ubyte", images[-1], packed=False)
        rows = np.tile(y[:, None], 8).astype(np.int32) if "idx2" in entry.labels else y
        rows = rows if "idx2" in entry.labels else rows.astype(np.uint8)
        write_idx(raw / f"{prefix}-{entry.labels}", rows, packed=False)
    raw = read_named(name, tmp_path, 32)
    assert np.array_equal(raw.x[:, 0], np.concatenate(images))
    reader = getattr(datasets, entry.folder)
    split = {"split": name.removeprefix("emnist-")} if name.startswith("emnist") else {}
    own = [reader(tmp_path, train=train, **split) for train in (True, False)]
    y = np.concatenate([np.asarray(part.targets).reshape(len(part), -1)[:, 0] for part in own])
    assert np.array_equal(np.unique(y)[raw.y], y)
    assert np.array_equal(np.concatenate([part.data.numpy() for part in own]), raw.x[:, 0])
    if name not in ("mnist", "qmnist"):
        assert raw.class_names == tuple(own[0].classes[v] for v in np.unique(y))


@pytest.mark.parametrize("name", SETS)
def test_a_set_that_is_not_there_is_bad_input_and_nothing_is_fetched(tmp_path, name) -> None:
    with pytest.raises(BadInput, match=f"expected data.data_root for {name}, got none"):
        read_named(name, None, 32)
    with pytest.raises(BadInput, match="got nothing there"):
        read_named(name, tmp_path, 32)
    assert not list(tmp_path.iterdir())
    entry = SETS[name]
    place = tmp_path / (entry.folder if isinstance(entry, Idx) else entry.place)
    place.mkdir(parents=True)
    with pytest.raises(BadInput, match="complete at") as caught:
        read_named(name, tmp_path, 32)
    assert "\n" not in str(caught.value)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_every_reader_exists_and_takes_the_arguments_without_downloading() -> None:
    for entry in SETS.values():
        if not isinstance(entry, Vision):
            continue
        parameters = inspect.signature(getattr(datasets, entry.reader)).parameters
        for part in entry.parts:
            free = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            assert free or set(part) <= set(parameters)
            if "download" in parameters:
                assert part.get("download", parameters["download"].default) is False


def test_sets_in_memory_have_their_names_and_digits_come_with_the_library(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pictures = rng.integers(256, size=(4, 32, 32, 3), dtype=np.uint8)

    class Fake:
        classes = ("plane", "car")

        def __init__(self, root: str, train: bool) -> None:
            self.data = pictures[:3] if train else pictures[3:]
            self.targets = [0, 1, 0] if train else [1]

    monkeypatch.setattr(datasets, "CIFAR10", Fake)
    (tmp_path / "cifar-10-batches-py").mkdir()
    raw = read_named("cifar10", tmp_path, 8)
    assert np.array_equal(raw.x.transpose(0, 2, 3, 1), pictures)
    assert (raw.y.tolist(), raw.class_names) == ([0, 1, 0, 1], ("plane", "car"))
    raw = read_named("digits", None, 32)
    assert raw.x.shape == (1797, 1, 8, 8)
    assert (raw.x.min(), raw.x.max(), raw.x.dtype) == (0, 255, np.uint8)
    assert raw.class_names == tuple("0123456789")
    assert "digits" in NAMES


def test_picture_files_become_squares_and_own_classes_stay_apart(tmp_path) -> None:
    for i, part in enumerate(("images_background", "images_evaluation")):
        folder = tmp_path / "omniglot-py" / part / "alphabet" / "character"
        folder.mkdir(parents=True)
        Image.new("L", (10, 6), 50 + i).save(folder / "0_0.png")
    entry = SETS["omniglot"]
    with pytest.MonkeyPatch.context() as patch:  # the archives' checksums are not the subject
        patch.setattr(datasets.Omniglot, "_check_integrity", lambda self: True)
        raw = named._read_vision(entry, tmp_path, 8)
    assert raw.x.shape == (2, 1, 8, 8)
    assert raw.x[:, 0, 0, 0].tolist() == [50, 51]
    assert raw.y.tolist() == [0, 1]


def test_a_changed_cifar_file_is_never_unpickled(tmp_path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ("data_batch_1", "test_batch", "batches.meta"):
        (folder / name).write_bytes(pickle.dumps({"data": [], "labels": []}))
    with pytest.raises(BadInput, match="corrupted"):
        read_named("cifar10", tmp_path, 32)
