"""Public samples without labels, of each kind of file, as a federation's facts say."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from panas.data.arrays import as_samples, with_facts
from panas.data.facts import Facts, fit, infer
from panas.data.load import DataSettings, load_unlabelled, unlabelled, without_labels
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.runtime.errors import BadInput

PICTURES = Facts(class_names=("ill", "well"), shape=(1, 8, 8), dtype="uint8")


def loaded(
    path: Path | str,
    facts: Facts = PICTURES,
    public: Samples | None = None,
    most: int = 2000,
    **how: object,
) -> Samples:
    settings = DataSettings(dataset="mine.npz", unlabelled_data=str(path), **how)
    samples = facts.no_samples() if public is None else public
    return load_unlabelled(settings, facts, samples, np.random.default_rng(0), most)


def images(n: int, size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, size, size)).astype(np.uint8)


def table(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.fixture
def columns(tmp_path: Path) -> Facts:
    """A federation's facts of a table with a number, a text and a feature called y."""
    rows = [f"{i % 7}.5,{'ab'[i % 2]},{i % 3},{i % 2}" for i in range(30)]
    raw = read(str(table(tmp_path / "f.csv", "u,t,y,Class", *rows)), reading("Class"))
    return infer(raw, public=raw)


def reading(label: str) -> Reading:
    return DataSettings(dataset="f.csv", label=label).reading


def pack_plain(folder: Path, x: np.ndarray) -> Path:
    np.savez(folder / "u.npz", x=x)
    return folder / "u.npz"


def pack_strange_labels(folder: Path, x: np.ndarray) -> Path:
    np.savez(folder / "u.npz", images=x, labels=np.array(["?", "none"] * (len(x) // 2)))
    return folder / "u.npz"


def pack_parts(folder: Path, x: np.ndarray) -> Path:
    np.savez(folder / "u.npz", train_images=x[:4], test_images=x[4:])
    return folder / "u.npz"


def pack_flat(folder: Path, x: np.ndarray) -> Path:
    for i, image in enumerate(x):
        Image.fromarray(image).save(folder / f"{i:02d}.png")
    return folder


def pack_classes(folder: Path, x: np.ndarray) -> Path:
    for i, image in enumerate(x):
        place = folder / ("train" if i % 2 else "a") / "class of no federation"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i:02d}.png")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "0.png").write_bytes(b"no picture")
    return folder


@pytest.mark.parametrize(
    "pack", [pack_plain, pack_strange_labels, pack_parts, pack_flat, pack_classes]
)
def test_images_are_read_whatever_their_labels(pack: Callable, tmp_path: Path):
    x = images(10)
    samples = loaded(pack(tmp_path, x))
    assert (samples.shape, samples.classes, samples.x.dtype) == ((1, 8, 8), 2, torch.uint8)
    assert {i.tobytes() for i in samples.x.numpy()} == {i.tobytes() for i in x}
    assert samples.y.tolist() == [0] * 10
    assert (samples.groups, samples.part) == (None, None)


def test_a_named_set_serves_and_other_sizes_are_brought_to_the_federation_s(tmp_path: Path):
    facts = Facts(class_names=("odd", "even"), shape=(1, 8, 8), dtype="uint8")
    samples = loaded("digits", facts, most=50)
    assert (len(samples), samples.classes, int(samples.y.max())) == (50, 2, 0)
    with pytest.warns(UserWarning, match="unlabelled data: pictures of other sizes"):
        assert loaded(pack_flat(tmp_path, images(3, 20))).shape == (1, 8, 8)


def test_the_limit_draws_some_and_none_is_a_public_one(tmp_path: Path):
    x = images(100)
    path, known = pack_plain(tmp_path, x), torch.from_numpy(x[:40, None])
    public = Samples(known, torch.ones(40, dtype=torch.int64), 2)
    samples = loaded(path, public=public, most=30)
    places = [next(i for i, a in enumerate(x) if (a == b).all()) for b in samples.x[:, 0].numpy()]
    assert len(places) == 30
    assert places == sorted(set(places))
    assert min(places) >= 40
    assert places != list(range(40, 70))
    assert len(loaded(path, public=public)) == 60
    everything = Samples(torch.from_numpy(x[:, None]), torch.zeros(100, dtype=torch.int64), 2)
    with pytest.raises(BadInput, match="beside the public samples, got the same"):
        loaded(path, public=everything)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("u,t,y", "{u},{t},{y}"),
        ("y,u,t", "{y},{u},{t}"),
        ("u,t,y,Class", "{u},{t},{y},"),
        ("u,t,y,Class", "{u},{t},{y},never seen"),
        ("patient,u,t,y,Class", ",{u},{t},{y},0.5"),
    ],
)
def test_rows_are_read_whatever_their_labels(header: str, row: str, columns: Facts, tmp_path: Path):
    cells = [{"u": u, "t": t, "y": y} for u, t, y in ((1, "a", 0), (4.5, "b", 2), ("", "c", 1))]
    path = table(tmp_path / "u.csv", header, *(row.format(**c) for c in cells))
    samples = loaded(path, columns, label="Class", group="patient")
    assert (samples.shape, samples.classes, samples.y.tolist()) == (columns.shape, 2, [0, 0, 0])
    plain = table(tmp_path / "v.csv", "u,t,y", *("{u},{t},{y}".format(**c) for c in cells))
    assert torch.equal(samples.x, loaded(plain, columns).x)
    assert len(samples.x.unique(dim=0)) == 3


def test_what_does_not_fit_the_facts_is_refused_in_one_line(columns: Facts, tmp_path: Path):
    def refused(path: Path, facts: Facts = PICTURES, **how: object) -> str:
        with pytest.raises(BadInput) as error:
            loaded(path, facts, **how)
        assert "\n" not in str(error.value)
        return str(error.value)

    (tmp_path / "empty").mkdir()
    (tmp_path / "colour").mkdir()
    Image.new("RGB", (8, 8), (9, 0, 0)).save(tmp_path / "colour" / "0.png")
    small = pack_plain(tmp_path, images(5, 7))
    rows = table(tmp_path / "u.csv", "u,t", "1,a", "2,b")
    assert "expected images of shape (1, 8, 8) in unlabelled data" in refused(small)
    assert "got a table" in refused(rows)
    assert "got none 'y'" in refused(rows, columns)
    wide = table(tmp_path / "w.csv", "u,t,y,w", "1,a,0,3", "2,b,1,3")
    assert "another one, 'w'" in refused(wide, columns)
    assert "a set of images" in refused(small, columns)
    assert "expected pictures in" in refused(tmp_path / "empty")
    assert "expected grey pictures" in refused(tmp_path / "colour")
    np.savez(tmp_path / "other.npz", pictures=images(5))
    assert "images or x" in refused(tmp_path / "other.npz")


def test_one_network_takes_an_array_with_channels_first_or_last():
    facts = Facts(class_names=("a", "b"), shape=(3, 6, 5), dtype="float32", unit=True)
    first = np.random.default_rng(0).random((4, 3, 6, 5)).astype(np.float32)
    last = np.moveaxis(first, 1, -1)
    np.testing.assert_array_equal(unlabelled(first, facts).x, unlabelled(last, facts).x)
    np.testing.assert_array_equal(unlabelled(first[0], facts).x, unlabelled(last[0], facts).x)
    grey = Facts(class_names=("a", "b"), shape=(1, 6, 5), dtype="float32", unit=True)
    one = first[:, :1]
    np.testing.assert_array_equal(unlabelled(one, grey).x, unlabelled(one[:, 0], grey).x)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_of_floats_takes_pictures(channels: int, tmp_path: Path):
    facts = Facts(class_names=("a", "b"), shape=(channels, 2, 2), dtype="float32")
    pixels = np.array([[0, 51], [102, 255]], np.uint8)
    picture = Image.fromarray(pixels if channels == 1 else np.stack([pixels] * 3, axis=2))
    picture.save(tmp_path / "one.png")
    x = fit(unlabelled(tmp_path / "one.png", facts), facts).inputs()
    wanted = torch.tensor([[-1.0, -0.6], [-0.2, 1.0]]).expand(1, channels, 2, 2)
    torch.testing.assert_close(x, wanted)
    with pytest.raises(BadInput, match="expected arrays"):
        unlabelled(picture, replace(facts, unit=False))


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
    samples = as_samples(list(zip(pictures, [0, 1, 0], strict=True)))
    assert samples.x.dtype == torch.uint8
    assert samples.shape == (1, 4, 5)
    assert samples.x[:, 0, 0, 0].tolist() == [0, 9, 255]
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


def test_sixteen_bits_are_refused_and_floats_that_nobody_scaled_are_named() -> None:
    deep = np.arange(3 * 4 * 5, dtype=np.uint16).reshape(3, 4, 5) * 1000
    pictures = [(Image.fromarray(x), int(y)) for x, y in zip(deep, LABELS, strict=True)]
    for data in ((deep, LABELS), pictures):
        with pytest.raises(BadInput, match="16-bit"):
            as_samples(data)
    with pytest.warns(UserWarning, match="divide images by"):
        with_facts((floats(0, 255), LABELS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_facts((floats(-3, 3), LABELS))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_pair_of_pictures_with_channels_last_is_told_from_one_with_channels_first(channels: int):
    first = np.random.default_rng(0).random((3, channels, 6, 5))
    last = first.transpose(0, 2, 3, 1)
    assert torch.equal(as_samples((first, LABELS)).x, as_samples((last, LABELS)).x)
    assert as_samples((torch.from_numpy(last), LABELS)).shape == (6, 5, channels)


def test_public_samples_lose_their_labels_but_for_some_of_each_class():
    x = torch.from_numpy(images(60)[:, None])
    public = Samples(x, torch.arange(60) % 3, 3)
    some, rest = without_labels(public, 9, np.random.default_rng(0))
    assert some.y.bincount().tolist() == [3, 3, 3]
    assert rest.y.tolist() == [0] * 51
    assert len({i.numpy().tobytes() for part in (some, rest) for i in part.x}) == 60
    for most in (None, 60, 100):
        kept, lost = without_labels(public, most, np.random.default_rng(0))
        assert (kept, len(lost)) == (public, 0)
    assert len(without_labels(public, 0, np.random.default_rng(0))[0]) == 0
