"""A strange row at a site with declared facts changes no other row, and no outcome of reading."""

import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dprbft.site.data import declared, load_samples, samples_and_values
from dprbft.site.directory import SiteSettings, read_site, write_site
from panas.data.facts import Facts
from panas.data.files.raw import Raw
from panas.data.samples import Samples
from panas.data.splits import Splits, hashed_split
from panas.runtime.errors import BadInput

KEY = b"k" * 32
HEADER = ["", "age", "seen", "town", "patient", "class"]
TOWNS = ("Bonn", "Ulm", "Kiel")


def honest(n: int) -> list[list[str]]:
    """Rows of a table whose first column has no name."""
    return [
        [
            str(i),
            f"{30 + i}.5",
            f"2020-01-{1 + i % 28:02}",
            TOWNS[i % 3],
            f"p{i // 2}",
            "wxyz"[i % 4],
        ]
        for i in range(n)
    ]


def write_table(path: Path, rows: list[list[str]], delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file, delimiter=delimiter).writerows([HEADER, *rows])


def site_of(folder: Path, data: Path, **changes: object) -> Facts:
    """Facts of a site that is declared with the data as they are."""
    settings = SiteSettings(name="north", data=str(data), epsilon=6.0, delta=1e-4, **changes)
    facts, _ = declared(folder, settings)
    write_site(folder, settings, facts=facts)
    return facts


def loaded(folder: Path, facts: Facts) -> tuple[Samples, list[str]]:
    """A site's samples, and what its owner is told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        return load_samples(folder, read_site(folder), facts), [str(w.message) for w in told]


def splits(samples: Samples) -> Splits:
    return hashed_split(samples, search=0.3, validation=0.2, test=0.2, key=KEY)


def part_of(samples: Samples) -> np.ndarray:
    """The split of each sample, without the rule that an empty one takes a sample."""
    parts, result = splits(samples), np.full(len(samples), -1)
    for i, at in enumerate((parts.search, parts.train, parts.validation, parts.test)):
        result[at] = i
    return result


def assert_rows_stay(folder: Path, facts: Facts, before: Samples, hashes: np.ndarray, at: int):
    """The rows of `before` are the same in the site's file now, which has perhaps one more at
    `at`, and they are in the same splits."""
    after, told = loaded(folder, facts)
    _, values = samples_and_values(folder, read_site(folder), facts)
    assert isinstance(values, Raw)
    assert len(values.y) == len(after)
    more = len(after) - len(before)
    assert more in (0, 1)
    rest = np.delete(np.arange(len(after)), [at] if more else [])
    assert after.x[rest].numpy().tobytes() == before.x.numpy().tobytes()
    assert after.y[rest].tolist() == before.y.tolist()
    assert np.array_equal(values.hashes()[rest], hashes)
    if before.groups is not None:
        assert after.groups is not None
        assert after.groups[rest].tolist() == before.groups.tolist()
    assert np.array_equal(part_of(after)[rest], part_of(before))
    assert after.x.isfinite().all()
    assert (after.x.abs() <= 1).all() or after.x.dtype.itemsize == 1
    assert more or told  # a row that is left out is told


def known_of(folder: Path, facts: Facts) -> tuple[Samples, np.ndarray]:
    """Samples and hashes of the honest file, which is read as it was when it was declared."""
    before, told = loaded(folder, facts)
    strict = declared(folder, read_site(folder))[1]
    assert before.x.numpy().tobytes() == strict.x.numpy().tobytes()
    assert before.y.tolist() == strict.y.tolist()
    assert not any("fit" in line for line in told)
    _, values = samples_and_values(folder, read_site(folder), facts)
    assert isinstance(values, Raw)
    return before, values.hashes()


def changed(**cells: str) -> list[str]:
    """A row that fits but for some cells."""
    row = dict(zip(HEADER, ["77", "40", "2021-02-03", "Bonn", "p99", "w"], strict=True)) | cells
    return [row[name] for name in HEADER]


STRANGE = {
    "fits": changed(),
    "infinity": changed(age="inf"),
    "minus infinity": changed(age="-Infinity"),
    "too large": changed(age="1e200"),
    "larger than a float": changed(age="1e999"),
    "signed NaN": changed(age="+nan"),
    "a missing number": changed(age=""),
    "a text among numbers": changed(age="forty"),
    "a date among numbers": changed(age="2020-01-31"),
    "a decimal comma": changed(age="40,5"),
    **{f"a number as {cell}": changed(age=cell) for cell in ("1,234", "51%", "$ 5", "1'234")},
    "an American date": changed(seen="1/31/2020"),
    "a number among dates": changed(seen="17"),
    "no such date": changed(seen="2020-02-31"),
    "a number among texts": changed(town="17"),
    "not UTF-8": changed(town="K\udcf6ln"),
    "a group that is not UTF-8": changed(patient="K\udcf6ln"),
    "an unknown town": changed(town="Köln"),
    "no class": changed(**{"class": ""}),
    "a class that nobody declared": changed(**{"class": "v"}),
    "a number among class names": changed(**{"class": "1"}),
    "a large number among class names": changed(**{"class": "1e300"}),
    "no group": changed(patient="NA"),
    "one cell": ["x"],
    "a cell more": [*changed(), "1"],
    "a cell less": changed()[:-1],
    "the same number of a row": changed(**{"": "1"}),
    "no number of a row": changed(**{"": "one"}),
    "a cell too long for the reader": changed(town="x" * 140_000),
    "two lines in a cell": changed(town="a\nb"),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_table(tmp_path / "data.csv", honest(60))
    return tmp_path / "data.csv"


@pytest.fixture(scope="module", params=[None, "patient"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Facts, Samples, np.ndarray]:
    """A site with a table of 40 rows beside it, what it declares, and what it held then."""
    folder = tmp_path_factory.mktemp("table") / "north"
    write_table(folder.parent / "data.csv", honest(40))
    facts = site_of(folder, folder.parent / "data.csv", group=request.param)
    return folder, facts, *known_of(folder, facts)


@pytest.mark.parametrize("at", [0, 20, 40])
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_a_strange_row_of_a_table_changes_no_other(
    site: tuple[Path, Facts, Samples, np.ndarray], strange: list[str], at: int
):
    folder, facts, before, hashes = site
    rows = honest(40)
    write_table(folder.parent / "data.csv", [*rows[:at], strange, *rows[at:]])
    assert_rows_stay(folder, facts, before, hashes, at)


@pytest.mark.slow
@given(
    cells=st.lists(st.text(max_size=12), max_size=8)
    | st.lists(st.text(alphabet="0123456789.,eE+-wxyz", max_size=6), min_size=6, max_size=6),
    at=st.integers(0, 40),
)
def test_any_row_of_a_table_changes_no_other(
    site: tuple[Path, Facts, Samples, np.ndarray], cells: list[str], at: int
):
    folder, facts, before, hashes = site
    rows = honest(40)
    write_table(folder.parent / "data.csv", [*rows[:at], cells, *rows[at:]])
    if any(cells):  # an empty line is no row
        assert_rows_stay(folder, facts, before, hashes, at)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_few_rows_or_none_are_read(tmp_path: Path, table: Path, n: int):
    facts = site_of(tmp_path / "north", table, group="patient")
    write_table(table, honest(n))
    samples, _ = loaded(tmp_path / "north", facts)
    assert samples.shape == facts.shape
    assert len(samples) == n
    assert (
        len(samples_and_values(tmp_path / "north", read_site(tmp_path / "north"), facts)[1].y) == n
    )
    parts = splits(samples)
    assert sum(map(len, (parts.search, parts.train, parts.validation, parts.test))) == n


def test_numbers_have_decimal_commas_cell_by_cell(tmp_path: Path):
    rows = honest(20)
    for row in rows:
        row[1] = row[1].replace(".", ",")
    data = tmp_path / "data.csv"
    write_table(data, rows, ";")
    facts = site_of(tmp_path / "north", data)
    before, hashes = known_of(tmp_path / "north", facts)
    for cell in ("41.5", "old", "1,2,3"):
        write_table(data, [changed(age=cell), *rows], ";")
        assert_rows_stay(tmp_path / "north", facts, before, hashes, 0)


def test_the_owner_is_told_numbers_alone(tmp_path: Path, table: Path):
    facts = site_of(tmp_path / "north", table)
    strange = [changed(age="secret"), changed(**{"class": "secret"}), ["secret"]]
    write_table(table, honest(60) + strange)
    _, told = loaded(tmp_path / "north", facts)
    assert "north: 2 of 63 rows do not fit the declared facts and were left out" in told
    assert any("1 of 63 rows hold values that do not fit" in line for line in told)
    assert any("column" in line and "not read" in line for line in told)  # it has no name
    assert not any("secret" in line for line in told)


def test_what_an_owner_declares_anew_is_refused_as_before(tmp_path: Path, table: Path):
    site_of(tmp_path / "north", table)
    for strange in ("infinity", "a text among numbers", "a cell more", "no class"):
        write_table(table, [*honest(60), STRANGE[strange]])
        with pytest.raises(BadInput):
            declared(tmp_path / "north", read_site(tmp_path / "north"))


@pytest.mark.parametrize("header", [["age", "town", "class"], [*HEADER[:-1], "outcome"]])
def test_a_header_without_what_is_declared_is_refused(
    tmp_path: Path, table: Path, header: list[str]
):
    facts = site_of(tmp_path / "north", table)
    table.write_text(",".join(header) + "\n")
    with pytest.raises(BadInput):
        load_samples(tmp_path / "north", read_site(tmp_path / "north"), facts)


def test_a_run_with_more_classes_gives_no_row_one_that_is_not_declared(tmp_path: Path, table: Path):
    facts = site_of(tmp_path / "north", table)
    more = Facts(**{**vars(facts), "class_names": ("v", *facts.class_names)})
    write_table(table, [*honest(60), changed(**{"class": "v"})])
    samples, _ = loaded(tmp_path / "north", more)
    assert len(samples) == 60
    assert samples.classes == 5
    assert samples.y.min() == 1


def floats(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0.2, 0.8, (n, 4, 4)), np.arange(n) % 3


PIXELS = [0.5, 1e30, -1e30, np.inf, -np.inf, np.nan, 1.5, -0.1, 0.0, 1.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("pixel", PIXELS)
def test_a_strange_pixel_changes_no_other_picture(tmp_path: Path, pixel: float, dtype: type):
    x, y = floats(40)
    data = tmp_path / "data.npz"
    np.savez(data, images=x.astype(dtype), labels=y)
    facts = site_of(tmp_path / "north", data)
    before, hashes = known_of(tmp_path / "north", facts)
    with np.errstate(over="ignore"):
        more = np.full((1, 4, 4), pixel).astype(dtype)
    np.savez(data, images=np.concatenate([x.astype(dtype), more]), labels=np.append(y, 1))
    assert_rows_stay(tmp_path / "north", facts, before, hashes, 40)
    assert len(loaded(tmp_path / "north", facts)[0]) == 41


@pytest.mark.parametrize("label", [0.0, 9, -1, 0.5, np.nan, np.inf, 2.0**60])
@pytest.mark.parametrize("patient", ["p1", "", "?", "K\udcf6ln"])
def test_a_strange_label_or_group_changes_no_other_picture(
    tmp_path: Path, label: float, patient: str
):
    x, y = floats(40)
    data, whose = tmp_path / "data.npz", [f"p{i // 2}" for i in range(40)]
    np.savez(data, images=x, labels=y.astype(float), patient=np.array(whose))
    facts = site_of(tmp_path / "north", data, group="patient")
    before, hashes = known_of(tmp_path / "north", facts)
    labels = np.append(y.astype(float), label)
    named = np.array([*whose, patient])
    np.savez(data, images=np.concatenate([x, x[:1]]), labels=labels, patient=named)
    assert_rows_stay(tmp_path / "north", facts, before, hashes, 40)
    fits = label == 0 and patient == "p1"
    assert len(loaded(tmp_path / "north", facts)[0]) == 40 + fits


def test_pictures_deeper_than_declared_are_clipped(tmp_path: Path):
    x = np.random.default_rng(0).integers(0, 4096, (30, 4, 4)).astype(np.uint16)
    data, y = tmp_path / "data.npz", np.arange(30) % 2
    np.savez(data, images=x, labels=y)
    facts = site_of(tmp_path / "north", data, bits=12)
    before, hashes = known_of(tmp_path / "north", facts)
    bright = np.full((1, 4, 4), 65535, np.uint16)
    np.savez(data, images=np.concatenate([x, bright]), labels=np.append(y, 1))
    assert_rows_stay(tmp_path / "north", facts, before, hashes, 30)


def test_an_archive_may_be_empty_but_not_of_another_kind(tmp_path: Path):
    x, y = floats(40)
    data = tmp_path / "data.npz"
    np.savez(data, images=x, labels=y)
    facts = site_of(tmp_path / "north", data)
    np.savez(data, images=x[:0], labels=y[:0])
    assert len(loaded(tmp_path / "north", facts)[0]) == 0
    for images, labels in ((x[:, :3], y), (x > 0.5, y), (x, y[1:]), (x, y * 1j)):
        np.savez(data, images=images, labels=labels)
        with pytest.raises(BadInput):
            load_samples(tmp_path / "north", read_site(tmp_path / "north"), facts)


def test_a_patient_in_two_official_parts_trains_and_moves_no_other(tmp_path: Path):
    x, y = floats(40)
    whose = np.arange(40) // 2

    def save(test: list[int]) -> None:
        at = np.setdiff1d(np.arange(40), np.arange(30, 40))
        parts = {"train": at, "test": np.array([*range(30, 40), *test])}
        arrays = {f"{part}_images": x[i] for part, i in parts.items()}
        arrays |= {f"{part}_labels": y[i] for part, i in parts.items()}
        arrays |= {f"{part}_patient": whose[i] for part, i in parts.items()}
        np.savez(tmp_path / "data.npz", **arrays)

    save([])
    facts = site_of(tmp_path / "north", tmp_path / "data.npz", group="patient")
    before, hashes = known_of(tmp_path / "north", facts)
    save([0])  # a picture of a patient who trains
    assert_rows_stay(tmp_path / "north", facts, before, hashes, 40)


Save = Callable[[Path], None]


def grey(path: Path, mode: str = "L", size: tuple[int, int] = (4, 4)) -> None:
    Image.new(mode, size, 7 if mode != "RGB" else (1, 2, 3)).save(path)


FILES: dict[str, tuple[str, Save]] = {
    "no picture": ("cat/5b.png", lambda path: path.write_bytes(b"no picture")),
    "an empty file": ("cat/5b.png", lambda path: path.touch()),
    "colour": ("cat/5b.png", lambda path: grey(path, "RGB")),
    "deeper": ("cat/5b.png", lambda path: grey(path, "I;16")),
    "another size": ("cat/5b.png", lambda path: grey(path, size=(9, 5))),
    "another class": ("dog/5b.png", grey),
    "a class like a part": ("test/5b.png", grey),
}


@pytest.mark.parametrize(("name", "save"), FILES.values(), ids=FILES)
def test_a_strange_file_changes_no_other_picture(tmp_path: Path, name: str, save: Save):
    folder = tmp_path / "pictures"
    for i in range(12):
        path = folder / ("cat" if i < 6 else "cow") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 10 * i, np.uint8)).save(path)
    facts = site_of(tmp_path / "north", folder)
    before, hashes = known_of(tmp_path / "north", facts)
    (folder / name).parent.mkdir(exist_ok=True)
    save(folder / name)
    assert_rows_stay(tmp_path / "north", facts, before, hashes, 6)
