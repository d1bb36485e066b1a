import contextlib
import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from panas.data.facts import Facts
from panas.data.files.archives import read_npz
from panas.data.files.pictures import read_folder
from panas.data.files.tables import TableColumns, read_table
from panas.data.sources import Reading, read, read_rows
from panas.runtime.errors import BadInput

GREY = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
SPLIT = {"train_images": GREY, "train_labels": np.arange(3)}


def save(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "set.npz", **arrays)
    return folder / "set.npz"


def table(folder: Path, text: str) -> Path:
    (folder / "set.csv").write_text(text, encoding="utf-8")
    return folder / "set.csv"


def refused(reader, *args: object) -> str:
    with pytest.raises(BadInput) as caught:
        reader(*args)
    text = str(caught.value)
    assert "\n" not in text
    assert re.match("expected .*, got", text)
    return text


@pytest.mark.parametrize(("a", "b"), [("x", "y"), ("images", "labels")])
def test_plain_npz(tmp_path, a, b) -> None:
    raw = read_npz(save(tmp_path, **{a: GREY, b: np.array([[7], [3], [7]])}))
    assert np.array_equal(raw.x[:, 0], GREY)
    assert raw.y.tolist() == [1, 0, 1]
    assert raw.class_names == ("3", "7")


def test_medmnist_parts_are_official_splits(tmp_path) -> None:
    first = {"train_images": GREY[:2], "train_labels": np.array([[0], [1]])}
    raw = read_npz(save(tmp_path, **first, test_images=GREY[2:], test_labels=np.array([[1]])))
    assert np.array_equal(raw.x[:, 0], GREY)
    assert raw.y.tolist() == [0, 1, 1]
    assert raw.part.tolist() == [0, 0, 2]
    alone = save(tmp_path, train_images=GREY, train_labels=np.arange(3))
    assert read_npz(alone).part is None


@pytest.mark.slow
def test_groups_of_an_npz_are_those_of_a_table_by_the_same_names(tmp_path) -> None:
    labels = {"x": GREY, "y": np.arange(3)}
    by_number = read_npz(save(tmp_path, **labels, patient=np.array([[12], [7], [12]])), "patient")
    by_text = read_npz(save(tmp_path, **labels, patient=np.array(["12", "7 ", "12"])), "patient")
    rows = table(tmp_path, "a,patient,y\n1.5,12,0\n2.5,7,1\n3.5,12,2\n")
    as_table = read_table(rows, TableColumns(group="patient"))
    assert by_number.groups is not None
    assert len(np.unique(by_number.groups)) == 2
    for other in (by_text, as_table):
        assert np.array_equal(by_number.groups, other.groups)
    assert read_npz(save(tmp_path, **labels), "patient", needed=False).groups is None


def split_archive(folder: Path, patients: dict[str, list[int]]) -> Path:
    arrays = {}
    for part, result in patients.items():
        arrays[f"{part}_images"] = np.zeros((len(result), 4, 4), np.uint8)
        arrays[f"{part}_labels"] = np.arange(len(result)) % 2
        arrays[f"{part}_patient"] = np.array(result)
    return save(folder, **arrays)


def test_groups_of_official_parts_stay_in_their_part(tmp_path) -> None:
    parts = {"train": [1, 1, 2, 3, 3, 4], "val": [5, 5], "test": [6, 7]}
    raw = read_npz(split_archive(tmp_path, parts), "patient")
    assert len(np.unique(raw.groups)) == 7
    mixed = parts | {"test": [6, 1]}
    assert "each group in one of the parts" in refused(
        read_npz, split_archive(tmp_path, mixed), "patient"
    )


@pytest.mark.parametrize(
    ("patient", "says"),
    [
        (None, "no such array"),
        (np.zeros(2, np.int64), "shape (2,)"),
        (np.zeros(3), "float64"),
        (np.array([1, -1, 2]), "negative"),
        (np.array(["a", "n/a", "b"]), "empty"),
    ],
)
def test_groups_of_an_npz_that_are_none(tmp_path, patient, says) -> None:
    given = {} if patient is None else {"patient": patient}
    assert says in refused(read_npz, save(tmp_path, x=GREY, y=np.arange(3), **given), "patient")


def test_values_of_an_npz_stay_but_for_floats_and_colour_comes_first(tmp_path) -> None:
    deep = GREY.astype(np.uint16) * 60
    raw = read_npz(save(tmp_path, x=deep, y=np.arange(3)))
    assert raw.x.dtype == np.uint16
    assert np.array_equal(raw.x[:, 0], deep)
    colour = np.random.default_rng(0).random((3, 4, 5, 3))
    raw = read_npz(save(tmp_path, x=colour, y=np.arange(3.0)))
    assert raw.x.dtype == np.float32
    assert np.allclose(raw.x, 2 * colour.transpose(0, 3, 1, 2) - 1, atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": GREY}, "keys"),
        ({"train_images": GREY}, "keys"),
        ({"x": GREY, "y": np.arange(2)}, "a label for each"),
        ({"x": GREY.astype(np.int32), "y": np.arange(3)}, "int32"),
        ({"x": GREY * 1.5, "y": np.arange(3)}, "outside that range"),
        ({"x": GREY * np.nan, "y": np.arange(3)}, "NaN or infinity"),
        ({"x": GREY[None, None], "y": np.arange(1)}, "shape"),
        ({"x": np.zeros((3, 6, 5, 5), np.uint8), "y": np.arange(3)}, "shape"),
        ({"x": GREY, "y": np.array([0, 1, 0.5])}, "got fractions"),
        ({"x": GREY, "y": np.array([0, 1, np.nan])}, "got NaN"),
        ({"x": GREY, "y": np.array([0, 1, np.inf])}, "got NaN or infinity"),
        ({"x": GREY, "y": np.array([0, -1, 1])}, "got negative ones"),
        ({"x": GREY, "y": np.array([0, 2**60, 1])}, "2^53"),
        ({"x": GREY, "y": np.ones((3, 3))}, "rows with several ones"),
        ({"x": GREY, "y": np.zeros((3, 2, 2))}, "shape (3, 2, 2)"),
        ({"x": GREY, "y": np.array(["a", "", "c"])}, "got empty ones"),
        ({"x": GREY, "y": np.array([1j, 0, 0])}, "complex128"),
        ({"x": GREY, "y": np.array([{}, {}, {}])}, "pickle"),
        ({"x": np.zeros((1200, 1, 1), np.uint8), "y": np.arange(1200)}, "1200 different"),
        ({**SPLIT, "val_images": GREY[:, :2], "val_labels": np.arange(3)}, "one shape"),
    ],
)
def test_npz_that_is_no_set_of_labelled_images(tmp_path, arrays, says) -> None:
    assert says in refused(read_npz, save(tmp_path, **arrays))


def test_labels_as_objects_are_to_be_converted_and_are_not_unpickled(tmp_path) -> None:
    y = np.array(["a", "b", "c"], object)
    for path, reader in (
        (save(tmp_path, x=GREY, y=y), read_npz),
        (tmp_path / "x.npy", lambda path: read(str(path), Reading())),
    ):
        np.save(tmp_path / "x.npy", GREY)
        np.save(tmp_path / "x.labels.npy", y, allow_pickle=True)
        assert "convert texts of type object by y.astype(str), and save it" in refused(reader, path)
    (tmp_path / "set.npz").write_bytes(b"no archive")
    assert "astype" not in refused(read_npz, tmp_path / "set.npz")


@given(cut=st.integers(0, 400), flip=st.integers(0, 400))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_npz_is_bad_input_or_still_reads(tmp_path, cut, flip) -> None:
    data = bytearray(save(tmp_path, x=GREY, y=np.arange(3)).read_bytes())
    data[flip] ^= 0xFF
    broken = tmp_path / "broken.npz"
    broken.write_bytes(data[: len(data) - cut])
    with contextlib.suppress(BadInput):
        assert len(read_npz(broken).y) == 3


def picture(path: Path, values: np.ndarray | int = 0, size: tuple[int, int] = (3, 2)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(values, int):
        Image.new("L", size, values).save(path)
    else:
        Image.fromarray(values).save(path)


def test_folder_of_pictures(tmp_path) -> None:
    for name, value in (("dog", 200), ("cat", 10), (".cache", 0)):
        (tmp_path / name / "more").mkdir(parents=True)
        Image.new("L", (9, 4), value).save(tmp_path / name / "a.png")
        Image.new("RGB", (3, 7), (value, 0, 0)).save(tmp_path / name / "more" / "b.BMP")
        (tmp_path / name / "notes.txt").write_text("no picture")
    raw = read_folder(tmp_path, 6)
    assert raw.x.shape == (4, 3, 6, 6)
    assert raw.class_names == ("cat", "dog")
    assert raw.y.tolist() == [0, 0, 1, 1]
    assert raw.x[:, :, 0, 0].tolist() == [[10] * 3, [10, 0, 0], [200] * 3, [200, 0, 0]]
    assert (raw.part, len(raw.notes)) == (None, 1)
    assert read_folder(tmp_path).x.shape == (4, 3, 32, 32)


def test_grey_pictures_of_one_size_stay_as_they_are(tmp_path) -> None:
    picture(tmp_path / "cat" / "a.png", 7)
    picture(tmp_path / "dog" / "a.png", 9)
    raw = read_folder(tmp_path)
    assert (raw.x.shape, raw.notes) == ((2, 1, 2, 3), ())
    assert raw.x[:, 0, 0, 0].tolist() == [7, 9]
    assert read_folder(tmp_path, shape=(3, 5, 4)).x.shape == (2, 3, 5, 4)
    picture(tmp_path / "dog" / "b.png", 9, (70, 70))
    assert read_folder(tmp_path).x.shape == (3, 1, 32, 32)
    Image.new("RGB", (3, 2)).save(tmp_path / "dog" / "c.png")
    assert "colour" in refused(read_folder, tmp_path, None, (1, 2, 3))


@pytest.mark.parametrize("form", ["png", "tiff", "pgm"])
def test_deep_pictures_keep_their_values(tmp_path, form) -> None:
    values = (np.arange(6).reshape(2, 3) * 13_107).astype(np.uint16)
    picture(tmp_path / "cat" / f"a.{form}", values)
    raw = read_folder(tmp_path)
    assert raw.x.dtype == np.uint16
    assert raw.x[0, 0].tolist() == values.tolist()
    Image.new("RGB", (3, 2)).save(tmp_path / "cat" / "b.png")
    assert "8 bits" in refused(read_folder, tmp_path)


@pytest.mark.parametrize(("test", "part"), [("test", 2), ("Testing", 2), ("valid", 1)])
def test_folders_of_parts_are_official_splits(tmp_path, test, part) -> None:
    for folder in ("train/cat", "train/dog", f"{test}/dog"):
        picture(tmp_path / folder / "a.png")
    raw = read_folder(tmp_path)
    assert raw.class_names == ("cat", "dog")
    assert sorted(zip(raw.part.tolist(), raw.y.tolist(), strict=True)) == [
        *((0, 0), (0, 1), (part, 1))
    ]


def test_folders_that_look_like_parts_are_told_from_classes(tmp_path) -> None:
    for folder in ("vehicles/train", "vehicles/bus", "flat/train", "flat/test", "mixed/train/cat"):
        picture(tmp_path / folder / "a.png")
    picture(tmp_path / "mixed" / "dog" / "a.png")
    assert read_folder(tmp_path / "vehicles").class_names == ("bus", "train")
    assert "each class in" in refused(read_folder, tmp_path / "flat")
    assert "both kinds" in refused(read_folder, tmp_path / "mixed")


def test_folders_that_are_no_set(tmp_path) -> None:
    assert "no subfolder" in refused(read_folder, tmp_path, 8)
    (tmp_path / "cat").mkdir()
    assert "no picture in 'cat'" in refused(read_folder, tmp_path, 8)
    (tmp_path / "cat" / "a.png").write_bytes(b"not a picture")
    assert "a.png" in refused(read_folder, tmp_path, 8)
    picture(tmp_path / "fractions" / "cat" / "a.tiff", np.full((2, 3), 0.5, np.float32))
    assert "fractions" in refused(read_folder, tmp_path / "fractions")


def test_csv_and_classes_that_are_numbers_sort_as_numbers(tmp_path) -> None:
    text = "\ufeff,a,Class,b\n0,1.5,yes,-2\n1,0,no,1e3\n\n2,7,yes,0\n"
    raw = read_table(table(tmp_path, text), None)
    assert raw.x.tolist() == [[1.5, -2], [0, 1000], [7, 0]]
    assert (raw.y.tolist(), raw.class_names) == ([1, 0, 1], ("no", "yes"))
    assert raw.columns == ("a", "b")
    raw = read_table(table(tmp_path, "a,t\n0,10\n0,9.0\n0,-1\n0,9\n"), TableColumns(label="t"))
    assert (raw.y.tolist(), raw.class_names) == ([2, 1, 0, 1], ("-1", "9", "10"))
    path = table(tmp_path, "zip,y\n01,0\n1,1\nx,1\n")
    raw = read_table(path, TableColumns(texts=("zip",)))
    assert raw.texts == {"zip": ("01", "1", "x")}
    line = refused(read_table, path, TableColumns(texts=("zip", "nope")))
    assert "expected a column 'nope' of texts" in line
    assert "leave it out of --texts" in line


@pytest.mark.parametrize(
    ("text", "label", "says"),
    [
        ("", None, "empty file"),
        ("a,b\n1,2\n", None, "one of label"),
        ("a,class,target\n1,2,3\n", None, "class, target"),
        ("a,y\n1,2\n", "z", "a column 'z'"),
        ("a,y\n1,2\nx,3\n", None, "numbers and texts (row 3)"),
        *(("a,b,y\n1,1,2\n-inf,inf,3\n", None, says) for says in ("column 'a' of", "row 3")),
        ("a,y\n1e200,2\n", None, "finite numbers in column 'a'"),
        ("a,y\n1/2/2020,2\n3/4/2021,1\n", None, "dates as 2020-01-31"),
        *((f"a,y\n1,2\n{row}\n", None, "2 cells in row 3") for row in ("1", "1,2,3")),
        ("a,y\n1,\n", None, "a class in row 2"),
        ("a,y\n1,0\n1,NaN\n", None, "a class in row 3"),
        *((f"a,y\n1,{y}\n", None, "fractions") for y in ("0.5", "inf")),
        ("y\n1\n", None, "a feature"),
        ("a,a,y\n1,1,1\n", None, "columns 1 and 2 of the same"),
        ("a,y\n" + "".join(f"0,{i}\n" for i in range(1100)), None, "1100 different labels"),
        ('a,y\n1,"' + "x" * 200_000 + '"\n', None, "UTF-8 table"),
    ],
)
def test_csv_that_is_no_table_of_numbers_and_classes(tmp_path, text, label, says) -> None:
    assert says in refused(read_table, table(tmp_path, text), TableColumns(label=label))


@pytest.mark.parametrize(
    ("text", "label", "secret"),
    [
        ("7421,positive,33\n7422,negative,31\n", None, "positive"),  # no header
        ("anna,positive,nurse\nbert,negative,clerk\n", None, "anna"),
        ("anna;positive;33\nbert;negative;31\n", "result", "anna"),
        *((f"anna,{x},ill\nbert,52,well\n", "result", "anna") for x in ("NA", "$58", "7/25/2018")),
        ("a,y\n1,2\nsyphilis,3\n", None, "syphilis"),
        ("a,y\n1,2\n7e300,3\n", None, "7e300"),
        ("a,y\n17.5.1961 early,2\n17.5.1961,3\n", None, "1961"),
        ("a,b,y\n1,2\nsyphilis,3\n", None, "syphilis"),
        ("a,y\n1,0.75\n", None, "0.75"),
    ],
)
def test_no_cell_of_a_table_is_in_a_message(tmp_path, text, label, secret) -> None:
    said = refused(read_table, table(tmp_path, text), TableColumns(label=label))
    assert secret not in said


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_delimiters_and_decimal_commas(tmp_path, mark) -> None:
    text = "a;b;class\n1,5;-2;yes\n3;4,25e1;no\n".replace(";", mark)
    raw = read_table(table(tmp_path, text))
    assert raw.x.tolist() == [[1.5, -2], [3, 42.5]]
    assert raw.columns == ("a", "b")


def test_missing_cells_dates_and_texts(tmp_path) -> None:
    text = (
        "age,seen,sex,since,y\n"
        "31,2020-01-02,f,31.12.1999,0\n"
        ",1970-01-01T12:00:00Z,NA,1.1.2000,1\n"
        "NaN,?,m,n/a,1\n"
    )
    raw = read_table(table(tmp_path, text))
    assert raw.kinds == {"seen": "date", "sex": "text", "since": "date"}
    assert raw.texts == {"sex": ("f", "m")}
    nan = np.nan
    wanted = [[31, 18263, 0, 10956], [nan, 0.5, nan, 10957], [nan, nan, 1, nan]]
    assert np.array_equal(raw.x, wanted, equal_nan=True)
    assert raw.notes == ("read as texts: 'sex'", "read as dates: 'seen', 'since'")


def test_a_column_without_a_name_is_dropped_and_none_by_what_it_holds(tmp_path) -> None:
    rows = [f"{i},{40 + i},{i},{i % 5},{i % 2}" for i in range(20)]
    raw = read_table(table(tmp_path, "\n".join([",glucose,a,b,y", *rows])))
    assert raw.columns == ("glucose", "a", "b")
    assert raw.notes == ("its first column has no name and was dropped",)


def test_other_encodings_are_refused(tmp_path) -> None:
    path = tmp_path / "set.csv"
    path.write_bytes("ä,y\n1,2\n".encode("latin-1"))
    assert "UTF-8" in refused(read_table, path, None)


def test_columns_of_groups_and_clients(tmp_path) -> None:
    text = "patient,a,hospital,y\np1,1,north,0\np2,2,south,1\np1,4,north,1\n"
    named = TableColumns(group="patient", client="hospital")
    raw = read_table(table(tmp_path, text), named)
    assert raw.columns == ("a",)
    assert raw.clients.tolist() == ["north", "south", "north"]
    assert raw.groups[0] == raw.groups[2] != raw.groups[1]
    fewer = read_table(table(tmp_path, text.replace("p2,2,south,1\n", "")), named)
    assert fewer.groups[1] == raw.groups[2]  # a group's number depends on no other row
    assert "'ward'" in refused(read_table, tmp_path / "set.csv", TableColumns(group="ward"))
    assert "different columns" in refused(
        read_table, tmp_path / "set.csv", TableColumns(group="patient", client="patient")
    )
    missing = table(tmp_path, text.replace("p2", ""))
    assert "a group in row 3" in refused(read_table, missing, named)


@pytest.mark.parametrize(
    ("labels", "names", "y"),
    [
        (np.array(["b", "a ", "b"]), ("a", "b"), [1, 0, 1]),
        (np.array([b"b", b"a", b"b"]), ("a", "b"), [1, 0, 1]),
        (np.array(["10", "9", "10"]), ("9", "10"), [1, 0, 1]),
        (np.array([True, False, True]), ("False", "True"), [1, 0, 1]),
        (np.array([[0, 0, 1], [1, 0, 0], [0, 0, 1]]), ("0", "2"), [1, 0, 1]),
        (np.array([[False, True], [True, False], [False, True]]), ("0", "1"), [1, 0, 1]),
        (np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], np.float32), ("0", "1"), [1, 0, 1]),
    ],
)
def test_labels_of_an_npz_are_texts_truth_values_or_one_hot_rows(
    tmp_path, labels, names, y
) -> None:
    path = save(tmp_path, x=GREY, y=labels)
    raw = read_npz(path)
    assert (raw.class_names, raw.y.tolist()) == (names, y)
    facts = Facts(class_names=names, shape=(1, 4, 5), dtype="uint8")
    assert read_rows(path, facts).y.tolist() == y
    few = replace(facts, class_names=names[1:])
    own = read_rows(path, few)
    assert (own.y.tolist(), len(own.notes)) == ([0, 0], 1)


def test_a_row_of_labels_that_is_not_one_hot_is_left_out_alone(tmp_path) -> None:
    facts = Facts(class_names=("0", "1"), shape=(1, 4, 5), dtype="uint8")
    for wrong in ([1, 1], [0, 0], [0, 2]):
        path = save(tmp_path, x=GREY, y=np.array([[0, 1], wrong, [1, 0]]))
        assert read_rows(path, facts).y.tolist() == [1, 0]
        assert "rows with several ones" in refused(read_npz, path)


def test_channels_may_come_first_where_nothing_else_can_be_meant(tmp_path) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (3, 3, 6, 5)).astype(np.uint8)
    first = read_npz(save(tmp_path, x=colour, y=np.arange(3)))
    assert np.array_equal(first.x, colour)
    last = read_npz(save(tmp_path, x=colour.transpose(0, 2, 3, 1), y=np.arange(3)))
    assert np.array_equal(last.x, colour)
    both = colour[:, :, :, :3]  # (n, 3, 6, 3): the last axis counts
    assert read_npz(save(tmp_path, x=both, y=np.arange(3))).x.shape == (3, 3, 3, 6)


def test_a_packed_table_is_read_as_the_table(tmp_path) -> None:
    text = "a,b,y\n1,x,0\n2,y,1\n"
    packed = tmp_path / "set.CSV.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    plain, raw = read_table(table(tmp_path, text)), read(str(packed), Reading())
    assert np.array_equal(raw.x, plain.x)
    assert (raw.columns, raw.texts) == (plain.columns, plain.texts)
    for broken in (packed.read_bytes()[:-12], b"a,y\n1,0\n"):
        packed.write_bytes(broken)
        assert "UTF-8 table" in refused(read, str(packed), Reading())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.xlsx", "save the sheet as .csv"),
        ("a.pkl", "nothing is unpickled"),
        ("a.csv.zip", "unpack it"),
        ("a.png", "a folder with a subfolder for each class"),
        ("a.what", "save a table as .csv, or images and labels as .npz"),
        ("a", "save a table as .csv, or images and labels as .npz"),
    ],
)
def test_a_file_of_another_kind_is_answered_with_what_to_convert_it_to(
    tmp_path, name, remedy
) -> None:
    (tmp_path / name).write_bytes(b"\0")
    said = refused(read, str(tmp_path / name), Reading())
    assert remedy in said
    assert "cifar10" not in said
    assert "check the path" in refused(read, str(tmp_path / "none.xlsx"), Reading())
