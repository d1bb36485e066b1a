"""New samples come in batches, and are what the same samples are at once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from patients import INPUTS, TABLE
from PIL import Image

from panas.data.batches import Batch, are_files, batches_of
from panas.data.facts import Facts, fit
from panas.data.files.columns import Column
from panas.data.files.dialect import Dialect
from panas.data.load import unlabelled
from panas.runtime.errors import BadInput
from panas.training.checkpoint import Classifier

GREY = Facts(class_names=("cat", "dog"), shape=(1, 6, 4), dtype="uint8")
X = np.random.default_rng(0).integers(0, 256, (7, 6, 4), dtype=np.uint8)
WANTED = torch.from_numpy(X)[:, None].float() / 127.5 - 1


def whole(batches: list[Batch]) -> tuple[list[str], torch.Tensor]:
    return [n for b in batches for n in b.names], torch.cat([b.inputs for b in batches])


def pictures(folder: Path) -> Path:
    for i, image in enumerate(X):
        file = folder / ("a" if i % 2 else "b") / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    (folder / ".hidden").mkdir()
    Image.fromarray(X[0]).save(folder / ".hidden" / "x.png")
    return folder


def archive(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("size", [1, 3, 100])
def test_images_of_an_archive_are_numbered_over_its_parts(tmp_path: Path, size: int):
    path = archive(tmp_path / "a.npz", train_images=X[:5], test_images=X[5:], train_labels=X[:5, 0])
    batches = list(batches_of(str(path), GREY, size))
    names, x = whole(batches)
    assert max(len(b.names) for b in batches) <= size
    assert names == [str(i) for i in range(1, 8)]
    assert torch.equal(x, WANTED)
    assert not are_files(str(path))


@pytest.mark.parametrize(
    "array", [X, X[..., None], X[:, None], (X / 255).astype(np.float32)], ids=str
)
def test_arrays_may_have_channels_first_or_last(tmp_path: Path, array: np.ndarray):
    facts = GREY if array.dtype == np.uint8 else Facts(**{**vars(GREY), "dtype": "float32"})
    path = archive(tmp_path / "a.npz", x=array)
    assert torch.allclose(whole(list(batches_of(str(path), facts)))[1], WANTED, atol=1e-6)


def test_pictures_are_named_by_their_paths_in_the_folder(tmp_path: Path):
    folder = pictures(tmp_path / "new")
    names, x = whole(list(batches_of(str(folder), GREY, 2)))
    order = [1, 3, 5, 0, 2, 4, 6]
    assert names == [f"{'a' if i % 2 else 'b'}/{i}.png" for i in order]
    assert torch.equal(x, WANTED[order])
    names, x = whole(list(batches_of(str(folder / "a" / "3.png"), GREY)))
    assert (names, are_files(str(folder))) == (["3.png"], True)
    assert torch.equal(x, WANTED[3:4])


TEXT = "id,Class,sex,note,age\n1,ill,m,x,75\n\n2,,f,y,\n"


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("text", [TEXT, TEXT.replace(",", ";"), TEXT.replace(",", "\t")])
def test_rows_need_no_label_and_other_columns_are_not_read(tmp_path: Path, text: str, size: int):
    path = tmp_path / "new.csv"
    path.write_text(text)
    names, x = whole(list(batches_of(str(path), TABLE, size)))
    assert names == ["1", "2"]
    assert torch.equal(x, INPUTS)


def test_a_column_that_numbers_rows_by_chance_is_read(tmp_path: Path):
    """A table that trains drops it; here the facts say what is a feature."""
    path = tmp_path / "new.csv"
    path.write_text("age,sex\n" + "".join(f"{i},m\n" for i in range(20)))
    x = whole(list(batches_of(str(path), TABLE)))[1]
    assert torch.allclose(x[:, 0, 0, 0], torch.arange(20) / 50 - 1)


def broken(folder: Path) -> Path:
    (pictures(folder) / "b" / "2.png").write_bytes(b"no picture")
    return folder


def coloured(folder: Path) -> Path:
    folder.mkdir()
    Image.fromarray(np.zeros((6, 4, 3), np.uint8)).save(folder / "c.png")
    return folder


def deep(folder: Path) -> Path:
    folder.mkdir()
    Image.fromarray(np.zeros((6, 4), np.uint16)).save(folder / "d.png")
    return folder


def table(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        folder.mkdir()
        (folder / "t.csv").write_text(text)
        return folder / "t.csv"

    return write


@pytest.mark.parametrize(
    ("make", "facts", "says"),
    [
        (broken, GREY, "b/2.png"),
        (coloured, GREY, "grey picture"),
        (deep, GREY, "8 bits"),
        (lambda path: path, GREY, "none at"),
        (lambda path: path.with_name("x.parquet"), TABLE, ".csv"),
        (lambda path: archive(path.with_suffix(".npz"), x=X), TABLE, "a table"),
        (lambda path: archive(path.with_suffix(".npz"), x=X[:, :3]), GREY, "shape"),
        (lambda path: archive(path.with_suffix(".npz"), x=X[:0]), GREY, "got none"),
        (lambda path: archive(path.with_suffix(".npz"), x=X[0]), GREY, "shape"),
        (lambda path: archive(path.with_suffix(".npz"), x=X / 255), GREY, "uint8"),
        (lambda path: archive(path.with_suffix(".npz"), y=X), GREY, "images or x"),
        (table("age,sex\n1,m\n"), GREY, "images"),
        (table("age\n1\n"), TABLE, "'sex'"),
        (table("age,sex\n"), TABLE, "got none"),
        (table("age,sex\n1,m\n2\n"), TABLE, "row 3"),
        (table("age,sex\nold,m\n2,f\n"), TABLE, "row 2"),
        (table("age,sex\nold,m\n"), TABLE, "number"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(
    tmp_path: Path, make: Callable[[Path], Path], facts: Facts, says: str
):
    path = make(tmp_path / "new")
    with pytest.raises(BadInput, match=r"expected .* got") as error:
        list(batches_of(str(path), facts, 2))
    assert says in str(error.value)
    assert "old" not in str(error.value).replace("folder", "")


class Frame:
    """What a data frame has of those of pandas and polars."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> np.ndarray:
        return np.array(self._columns[name], dtype=object)


class NAType:
    """What pandas has for a missing cell; its truth is unknown."""

    def __bool__(self) -> bool:
        raise TypeError("no truth")


def test_a_data_frame_is_read_as_its_csv():
    ages = [75, float("nan"), None, NAType()]
    frame = Frame(note=["x"] * 4, sex=["m", "f", "f", "f"], age=ages)
    x = fit(unlabelled(frame, TABLE), TABLE).inputs()
    assert torch.equal(x, INPUTS[[0, 1, 1, 1]])
    with pytest.raises(BadInput, match="got none 'age'"):
        unlabelled(Frame(note=["x"], sex=["m"]), TABLE)
    with pytest.raises(BadInput, match="rows to classify"):
        unlabelled(Frame(sex=[], age=[]), TABLE)
    with pytest.raises(BadInput, match="a data frame or the path of a table, got str"):
        unlabelled("new.csv", TABLE)


class Echo(Classifier):
    """Says of which class each sample is by the order of the samples."""

    notes: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    @property
    def facts(self) -> Facts:
        return self._facts

    def probabilities_of(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x
        return torch.eye(2).repeat(len(x), 1)[: len(x)]


def test_a_classifier_takes_a_path_and_a_frame(tmp_path: Path):
    (tmp_path / "new.csv").write_text(TEXT)
    model = Echo(TABLE)
    for data in (str(tmp_path / "new.csv"), tmp_path / "new.csv"):
        assert model.predict(data) == ("ill", "well")
        assert torch.equal(model.seen, INPUTS)
    assert model.predict(Frame(sex=["m", "f"], age=[75, None])) == ("ill", "well")
    assert torch.equal(model.seen, INPUTS)
    images = Echo(GREY)
    folder = pictures(tmp_path / "pictures")
    assert len(images.predict(folder)) == len(X)
    assert len(images.predict(folder / "a" / "3.png")) == 1


def test_dates_and_truth_values_of_a_frame_are_as_in_a_csv():
    columns = (Column(name="b", kind="date"), Column(name="c", kind="text", categories=("True",)))
    facts = Facts(class_names=("no", "yes"), shape=(1, 2, 2), dtype="float32", columns=columns)
    days = [np.datetime64("2020-01-31T00:00:00.000000001"), date(2020, 1, 31), np.datetime64("NaT")]
    raw = unlabelled(Frame(b=days, c=[True, np.True_, True]), facts)
    assert np.array_equal(raw.x[:, 0], [18292, 18292, np.nan], equal_nan=True)
    assert raw.texts == {"c": ("True",)}


@pytest.mark.parametrize(
    ("text", "names"),
    [('"1,075",m\n', ("1", "2")), ('x,m,,"1,075"\n', ("4", "2")), ('"1,075",m\n', ("3", "5"))],
)
def test_rows_without_a_header_are_those_of_the_facts(
    tmp_path: Path, text: str, names: tuple[str, str]
):
    """By their order where there are as many columns, else by their numbers."""
    (tmp_path / "new.csv").write_text(text)
    named = zip(TABLE.columns, names, strict=True)
    facts = replace(TABLE, columns=tuple(replace(column, name=name) for column, name in named))
    batch = next(batches_of(str(tmp_path / "new.csv"), facts, dialect=Dialect(header=False)))
    row = dict(zip(names, (1075, "m"), strict=True))
    assert torch.equal(batch.inputs, fit(unlabelled(row, facts), facts).inputs())
