import gzip
import inspect
import pickle
import struct

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from panas.data import torchvision_sets as named
from panas.data.torchvision_sets import NAMES, SETS, Idx, Vision, read_idx, read_named
from panas.runtime.errors import BadInput


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
