"""Reading row by row, by declared facts: `tests/dprbft/site/test_data.py` adds strange rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from panas.data.facts import Facts, fit, infer
from panas.data.files.columns import Column
from panas.data.files.declared import Form, whole_units
from panas.data.files.tables import TableColumns, read_table
from panas.data.sources import read_rows
from panas.runtime.errors import BadInput


def form(*names: str) -> Form:
    return Form(class_names=names, shape=(1, 1, 1), dtype="uint8", unit=True, bits=8, columns=())


@pytest.mark.parametrize(
    ("names", "label", "number"),
    [
        *((("no", "yes"), label, 1) for label in ("yes", "1", "1.0")),
        *((("no", "yes"), label, -1) for label in ("Yes", "2", "-1", "0.5", "nan", "inf", "")),
        *((("3", "7"), label, number) for label, number in (("7", 1), ("7.0", 1), ("1", -1))),
        *((("3", "none"), "0", -1), (("1.0", "1"), "1.0", 0)),
    ],
)
def test_a_label_has_its_class_by_what_is_declared_alone(
    names: tuple[str, ...], label: str, number: int
):
    assert form(*names).class_of(label) == number


@given(st.text(), st.lists(st.text(min_size=1, max_size=3), min_size=1, unique=True))
def test_every_label_is_a_declared_class_or_none(label: str, names: list[str]):
    assert -1 <= form(*names).class_of(label) < len(names)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=20))
def test_a_unit_is_in_one_part_whatever_other_units_are_in(rows: list[tuple[int, int]]):
    groups, part = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    result, moved = whole_units(groups, part)
    assert moved == int((result != part).sum())
    for unit in set(groups.tolist()):
        held = set(part[groups == unit].tolist())
        assert set(result[groups == unit].tolist()) == (held if len(held) == 1 else {0})


COLUMNS = (
    Column(name="a", centre=5.0, reach=5.0, missing=True),
    Column(name="b", kind="date", centre=18_262.0, reach=10.0),
    Column(name="c", kind="text", categories=("x", "y")),
)
FACTS = Facts(class_names=("no", "yes"), shape=(1, 3, 3), dtype="float32", columns=COLUMNS)


@pytest.mark.parametrize(
    ("row", "features"),
    [
        ("10,2020-01-11,x,no", [1, -1, 1, 1, -1, -1]),
        ("1e200,11.01.2020,z,no", [1, -1, 1, -1, -1, 1]),
        ("-1e200,2020-01-01,y,no", [-1, -1, 0, -1, 1, -1]),
        ("x,5,5,no", [0, 1, 0, -1, -1, 1]),
        ("inf,soon,,no", [0, 1, 0, 0, 0, 0]),
        ("2020-01-01,?,-,no", [0, 1, 0, 0, 0, 0]),
    ],
)
def test_a_cell_that_misfits_its_kind_is_missing_or_clipped(
    tmp_path: Path, row: str, features: list[float]
):
    path = tmp_path / "a.csv"
    path.write_text(f"a,b,c,class\n{row}\n")
    samples = fit(read_rows(path, FACTS), FACTS)
    assert samples.x.flatten().tolist() == [*features, 0, 0, 0]


def test_columns_are_taken_by_name_and_others_left(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text(",c,class,b,extra,a\n1,y,yes,2020-01-01,?,5\n")
    raw = read_rows(path, FACTS)
    assert raw.columns == ("a", "b", "c")
    assert raw.notes == ("2 columns are not declared, and not read",)
    assert fit(raw, FACTS).x.flatten().tolist()[:6] == [0, -1, 0, -1, 1, -1]


def test_floats_that_are_declared_from_minus_1_stay_as_they_are(tmp_path: Path):
    x = np.array([-2.0, -1.0, 0.25, np.nan]).reshape(1, 2, 2)
    np.savez(tmp_path / "a.npz", x=x, y=np.zeros(1, int))
    facts = Facts(class_names=("0",), shape=(1, 2, 2), dtype="float32", unit=False)
    raw = read_rows(tmp_path / "a.npz", facts)
    assert fit(raw, facts).x.flatten().tolist() == [-1, -1, 0.25, 0]
    whole = replace(facts, unit=True)
    scaled = fit(read_rows(tmp_path / "a.npz", whole), whole).x
    assert scaled.flatten().tolist() == [-1, -1, -0.5, -1]


def test_deep_pictures_of_a_folder_are_clipped_to_the_declared_bits(tmp_path: Path):
    (tmp_path / "cat").mkdir()
    for i, value in enumerate((0, 4095, 65535)):
        picture = Image.fromarray(np.full((2, 2), value, np.uint16))
        picture.save(tmp_path / "cat" / f"{i}.png")
    facts = Facts(class_names=("cat",), shape=(1, 2, 2), dtype="float32", bits=12)
    x = fit(read_rows(tmp_path, facts), facts).x
    assert x[:, 0, 0, 0].tolist() == [-1, 1, 1]


def test_official_parts_of_a_folder_are_read_by_their_names(tmp_path: Path):
    for name in ("train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "fox/cat/4.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("L", (2, 2)).save(tmp_path / name)
    facts = Facts(class_names=("cat",), shape=(1, 2, 2), dtype="uint8")
    raw = read_rows(tmp_path, facts)
    assert raw.part.tolist() == [2, 0]
    assert raw.notes == ("2 of 4 rows do not fit the declared facts and were left out",)


@pytest.mark.parametrize("name", ["none.csv", "none.npz", "none.txt", "none"])
def test_a_path_without_data_of_the_declared_kind_is_refused(tmp_path: Path, name: str):
    images = Facts(class_names=("cat",), shape=(1, 2, 2), dtype="uint8")
    for facts in (FACTS, images):
        with pytest.raises(BadInput):
            read_rows(tmp_path / name, facts)


def test_a_table_is_read_as_it_was_when_its_facts_were_made(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text(
        "no,a;b;c;patient;class\n".replace(",", ";")
        + "".join(f"{i};{i},5;0{1 + i % 9}.01.2020;t{i % 3};{i // 2};{i % 2}\n" for i in range(20))
    )
    named = TableColumns(group="patient")
    strict = read_table(path, named)
    facts = infer(strict)
    raw = read_rows(path, facts, named)
    assert fit(raw, facts).x.equal(fit(strict, facts).x)
    assert np.array_equal(raw.hashes(), strict.hashes())
    assert np.array_equal(raw.groups, strict.groups)
    assert raw.y.tolist() == strict.y.tolist()
