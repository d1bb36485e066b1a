"""A Parquet table is read as a .csv of the same table would be."""

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from patients import INPUTS, TABLE

from panas.data.batches import batches_of
from panas.data.facts import Facts, fit, infer
from panas.data.files.columns import Column
from panas.data.files.raw import Raw
from panas.data.files.tables import TableColumns, read_table
from panas.data.load import DataSettings, load
from panas.data.sources import read_rows
from panas.runtime.errors import BadInput

N = 24
HOURS = [None, *(datetime(2020, 1, 1 + i % 28, i % 24, 30) for i in range(1, N))]
COLUMNS: dict[str, pa.Array] = {
    "age": pa.array([None, *range(1, N)], pa.int16()),
    "dose": pa.array([0.1 * i for i in range(N)], pa.float32()),
    "level": pa.array([None if i == 3 else np.nan if i == 4 else i / 7 for i in range(N)]),
    "price": pa.array([Decimal(i) / 4 for i in range(N)], pa.decimal128(9, 2)),
    "smokes": pa.array([i % 3 == 0 if i % 5 else None for i in range(N)]),
    "ward": pa.array([None if i == 7 else "abc"[i % 3] for i in range(N)]).dictionary_encode(),
    "note": pa.array(["ä, é" if i % 2 else "NA" for i in range(N)], pa.large_string()),
    "born": pa.array([None, *(date(1900 + i, 1, 1 + i) for i in range(1, N))]),
    "seen": pa.array(HOURS, pa.timestamp("ns")),
    "left": pa.array([h and h.replace(tzinfo=UTC) for h in HOURS], pa.timestamp("ms", tz="UTC")),
    "at": pa.array([time(i % 24, 5) for i in range(N)], pa.time32("s")),
    "patient": pa.array([i // 2 for i in range(N)]),
    "y": pa.array([i % 2 for i in range(N)], pa.int8()),
}


def text_of(value: Any) -> str:
    """A cell as Python's own names write it, and pandas with them."""
    return "" if value is None else str(value)


def as_csv(path: Path, columns: dict[str, pa.Array]) -> Path:
    values = {name: column.to_pylist() for name, column in columns.items()}
    if "dose" in values:
        values["dose"] = [str(np.float32(x)) for x in values["dose"]]
    rows = zip(*values.values(), strict=True)
    quoted = ([f'"{text_of(v)}"' if "," in text_of(v) else text_of(v) for v in r] for r in rows)
    path.write_text("\n".join([",".join(values), *map(",".join, quoted)]) + "\n")
    return path


def as_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=10)
    return path


def both(folder: Path, columns: dict[str, pa.Array]) -> tuple[Path, Path]:
    return as_csv(folder / "t.csv", columns), as_parquet(folder / "t.parquet", columns)


def inputs(raw: Raw, facts: Facts) -> torch.Tensor:
    return fit(raw, facts, "t").inputs()


def test_a_table_is_the_same_as_csv_and_as_parquet(tmp_path: Path):
    named = TableColumns(group="patient")
    csv, parquet = (read_table(path, named) for path in both(tmp_path, COLUMNS))
    assert parquet.columns == csv.columns == tuple(COLUMNS)[:-2]
    assert parquet.kinds == csv.kinds
    assert parquet.kinds == dict.fromkeys(("smokes", "ward", "note", "at"), "text") | dict.fromkeys(
        ("born", "seen", "left"), "date"
    )
    assert parquet.texts == csv.texts
    assert set(parquet.texts["smokes"]) == {"True", "False"}
    np.testing.assert_array_equal(parquet.x, csv.x)
    assert np.isnan(parquet.x).sum() > N // 5
    np.testing.assert_array_equal(parquet.y, csv.y)
    assert csv.groups is not None
    np.testing.assert_array_equal(parquet.groups, csv.groups)
    facts = infer(csv)
    assert torch.equal(inputs(parquet, facts), inputs(csv, facts))


def test_public_data_and_own_data_may_be_parquet(tmp_path: Path):
    others = {n: c.take(pa.array(range(0, N, 3))) for n, c in COLUMNS.items()}
    others["dose"] = pa.array([9.5 + i for i in range(0, N, 3)], pa.float32())

    def sources(ending: str) -> Any:
        write: Callable[..., Path] = as_csv if ending == "csv" else as_parquet
        own, public = (
            str(write(tmp_path / f"{name}.{ending}", table))
            for name, table in (("own", COLUMNS), ("public", others))
        )
        settings = DataSettings(dataset=own, public_data=public, group="patient")
        return load(settings, np.random.default_rng(0))

    csv, parquet = sources("csv"), sources("parquet")
    assert parquet.facts == csv.facts
    for part in ("private", "public"):
        assert torch.equal(getattr(parquet, part).x, getattr(csv, part).x)
        assert torch.equal(getattr(parquet, part).y, getattr(csv, part).y)


FORM = (
    Column(name="a", centre=5.0, reach=5.0, missing=True),
    Column(name="b", kind="date", centre=18_262.0, reach=10.0),
    Column(name="c", kind="text", categories=("x", "y")),
)
FACTS = Facts(class_names=("no", "yes"), shape=(1, 3, 3), dtype="float32", columns=FORM)


def declared(**changes: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "a": pa.array([1.0, 1e200, None, 4.0]),
        "b": pa.array([0, 18_262, 3_000_000, -3_000_000], pa.int32()).cast(pa.date32()),
        "c": pa.array(["x", "y", "z", "x"]),
        "class": pa.array(["no", "yes", "maybe", "yes"]),
    }
    return columns | changes


def test_declared_rows_are_judged_one_by_one(tmp_path: Path):
    path = as_parquet(tmp_path / "d.parquet", declared(extra=pa.array([1, 2, 3, 4])))
    raw = read_rows(path, FACTS, TableColumns(label="class"))
    assert raw.y.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(raw.x[:, 0], [1, 1e100, 4])
    np.testing.assert_array_equal(raw.x[:, 1], [0, 18_262, np.nan])
    assert sum("not declared" in note for note in raw.notes) == 1


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_time_that_no_calendar_has_is_missing_and_changes_no_other_row(tmp_path: Path, unit: str):
    times = pa.array([0, -(2**63) + 1, 2**63 - 1, 1], pa.int64()).cast(pa.timestamp(unit))
    path = as_parquet(tmp_path / "d.parquet", declared(b=times))
    raw = read_rows(path, FACTS, TableColumns(label="class"))
    assert raw.x[0, 1] == 0
    assert np.isnan(raw.x[1, 1]) == (unit != "ns")  # 1677 is in the calendar


def test_a_text_that_is_not_utf8_is_missing_in_declared_rows_alone(tmp_path: Path):
    broken = pa.Array.from_buffers(
        pa.string(), 4, pa.array([b"x", b"\xff", b"y", b"x"], pa.binary()).buffers()
    )
    path = as_parquet(tmp_path / "d.parquet", declared(c=broken))
    raw = read_rows(path, FACTS, TableColumns(label="class"))
    assert np.isnan(raw.x[:, 2]).tolist() == [False, True, False]
    with pytest.raises(BadInput, match="expected UTF-8 texts in"):
        read_table(path, TableColumns(label="class"))


def test_the_index_of_pandas_is_no_feature(tmp_path: Path):
    columns = {n: COLUMNS[n] for n in ("level", "ward", "y")}
    indexed = columns | {"__index_level_0__": pa.array([f"p{i}" for i in range(N)])}
    raw = read_table(as_parquet(tmp_path / "t.parquet", indexed))
    assert raw.columns == ("level", "ward")
    assert raw.notes[0] == "its first column has no name and was dropped"


def test_an_index_that_pandas_has_named_is_no_feature_but_may_be_the_group(tmp_path: Path):
    held = pa.table({n: COLUMNS[n] for n in ("level", "patient", "y")})
    path = tmp_path / "t.parquet"
    for noted, kept in (
        (b'{"index_columns": ["patient"]}', ("level",)),
        (b'{"index_columns": [{"kind": "range"}]}', ("level", "patient")),
        (b"no JSON", ("level", "patient")),
    ):
        pq.write_table(held.replace_schema_metadata({b"pandas": noted}), path)
        raw = read_table(path)
        assert raw.columns == kept
        assert ("column 'patient' is the rows' index and was dropped" in raw.notes) == (
            "patient" not in kept
        )
        grouped = read_table(path, TableColumns(group="patient"))
        assert grouped.columns == ("level",)
        assert grouped.groups is not None


def test_new_samples_may_be_a_parquet_table(tmp_path: Path):
    new = {"age": pa.array([75, None]), "note": pa.array(["u", "v"]), "sex": pa.array(["m", "f"])}
    for size in (1, 2):
        batches = list(batches_of(str(as_parquet(tmp_path / "n.parquet", new)), TABLE, size))
        assert [name for batch in batches for name in batch.names] == ["1", "2"]
        assert torch.equal(torch.cat([batch.inputs for batch in batches]), INPUTS)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def nested(path: Path) -> None:
    as_parquet(path, {"a": pa.array([[1], [2]]), "y": pa.array([0, 1])})


def mixed(path: Path) -> None:
    as_parquet(path, {"a": pa.array(["1", "old"]), "y": pa.array([0, 1])})


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (cut, "expected a Parquet table at .*, got"),
        (lambda path: path.write_text("a,y\n1,0\n"), "expected a Parquet table at .*, got"),
        (lambda path: path.write_bytes(b""), "expected a Parquet table at .*, got"),
        (nested, "expected numbers, .* in column 'a' of .*, got list<"),
        (mixed, r"got numbers and texts \(row 2\)"),
        (lambda path: as_parquet(path, {"a": COLUMNS["dose"]}), "expected one of label, .* got a;"),
        (lambda path: as_parquet(path, {"y": COLUMNS["y"]}), "expected a feature"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, harm: Callable[[Path], object], says: str):
    path = as_parquet(tmp_path / "t.parquet", COLUMNS)
    harm(path)
    with pytest.raises(BadInput, match=says) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_without_pyarrow_a_line_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = as_parquet(tmp_path / "t.parquet", COLUMNS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pip install '\.\[parquet\]'.*as \.csv"):
        read_table(path)
