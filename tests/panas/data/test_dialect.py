"""How tables write numbers and dates: each cell by itself, as its table's dialect says."""

from pathlib import Path

import numpy as np
import pytest

from panas.data.facts import infer
from panas.data.files.dialect import Dialect, Style, day_of, dialect_of, number_of, style_of
from panas.data.files.tables import TableColumns, read_table
from panas.data.sources import read_rows
from panas.runtime.errors import BadInput

COMMA, SEMICOLON = style_of(Dialect(), ","), style_of(Dialect(), ";")
POINTS = style_of(Dialect(numbers="1.234,5"), ",")
GROUPED = style_of(Dialect(numbers="1,234.5"), ";")
NONE = None


def value(text: str, style: Style) -> float | None:
    try:
        return number_of(text, style)[0]
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("text", "comma", "semicolon", "points"),
    [
        ("1.5", 1.5, 1.5, NONE),
        ("1,5", NONE, 1.5, 1.5),
        ("1.234", 1.234, 1.234, 1234),
        ("1,234", 1234, 1.234, 1.234),
        ("-1,234,567.5", -1234567.5, NONE, NONE),
        ("1.234.567,5", NONE, NONE, 1234567.5),
        ("0,512", NONE, 0.512, 0.512),
        ("12,34,567", NONE, NONE, NONE),
        ("1 234", 1234, 1234, 1234),
        ("1\u202f234,5", NONE, 1234.5, 1234.5),
        ("1'234.5", 1234.5, 1234.5, NONE),
        ("51%", 51, 51, 51),
        ("-51.2 %", -51.2, -51.2, NONE),
        ("$51", 51, 51, 51),
        ("-€1,234", -1234, -1.234, -1.234),
        ("51 €", 51, 51, 51),
        ("1e3", 1000, 1000, 1000),
        *((text, NONE, NONE, NONE) for text in ("$", "%", "$%", "-$-5", "5$%", "one", "1/2")),
    ],
)
def test_a_number_is_read_as_the_dialect_says(
    text: str, comma: float | None, semicolon: float | None, points: float | None
):
    assert [value(text, style) for style in (COMMA, SEMICOLON, POINTS)] == [
        comma,
        semicolon,
        points,
    ]
    assert value(text, GROUPED) == comma  # the delimiter counts where nothing is said


@pytest.mark.parametrize(
    ("dates", "text", "iso"),
    [
        ("us", "1/31/2020", "2020-01-31"),
        ("eu", "31/1/2020", "2020-01-31"),
        ("us", "2/3/2020", "2020-02-03"),
        ("eu", "2/3/2020", "2020-03-02"),
        ("us", "1/31/2020 3:15 PM", "2020-01-31T15:15"),
        ("eu", "31/1/2020 15:15:30", "2020-01-31T15:15:30"),
        *((dates, "31.01.2020", "2020-01-31") for dates in ("iso", "us", "eu")),
        *((dates, "31/1/2020", None) for dates in ("iso", "us")),
        ("eu", "1/31/2020", None),
        ("us", "1/31/2020 25:00", None),
        ("us", "1/31/20", None),
    ],
)
def test_a_date_is_read_as_the_dialect_says(dates: str, text: str, iso: str | None):
    style = style_of(Dialect(dates=dates), ",")
    if iso is None:
        with pytest.raises(ValueError):  # noqa: PT011
            day_of(text, style)
    else:
        assert day_of(text, style) == day_of(iso, COMMA)


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_thousands_percents_and_currencies_are_numbers_and_commas_are_told(tmp_path: Path):
    text = 'amount,rate,price,y\n"1,234",51%,$5,0\n999,3.5%,"$1,000",1\n'
    raw = read_table(table(tmp_path, text))
    assert raw.kinds == {}
    assert raw.x.tolist() == [[1234, 51, 5], [999, 3.5, 1000]]
    assert [("'amount'" in n, "'price'" in n) for n in raw.notes] == [(True, False), (False, True)]
    assert all("commas part thousands" in note for note in raw.notes)


@pytest.mark.parametrize("cells", [("51%", "0.5"), ("$5", "€5")])
def test_numbers_of_two_units_in_a_column_are_refused(tmp_path: Path, cells: tuple[str, str]):
    path = table(tmp_path, f"a,y\n{cells[0]},0\n{cells[1]},1\n")
    with pytest.raises(BadInput, match=r"^expected one unit in column 'a' of .*, got .*; convert"):
        read_table(path)


def test_numbers_of_another_form_are_texts_with_a_reason_or_refused_with_a_remedy(tmp_path: Path):
    raw = read_table(table(tmp_path, 'a,y\n"3,5",0\n"12,75",1\n'))
    assert raw.kinds == {"a": "text"}
    assert "'a' seems to hold numbers in another form" in raw.notes[0]
    path = table(tmp_path, 'a,y\n"3,512",0\n"12,75",1\n')
    with pytest.raises(BadInput, match=r"numbers and texts \(row 2|3\).*data\.table\.numbers"):
        read_table(path)
    said = TableColumns(dialect=Dialect(numbers="1.234,5"))
    assert read_table(path, said).x.tolist() == [[3.512], [12.75]]
    for other in ("1.2.3.4", "x 5", "31.01.2020", "1/2"):
        column = read_table(table(tmp_path, f"a,y\n{other},0\n{other},1\n"))
        assert not any("another form" in note for note in column.notes)


def test_american_dates_need_a_word_and_the_refusal_says_which(tmp_path: Path):
    path = table(tmp_path, "a,y\n1/31/2020,0\n2/1/2020,1\n")
    with pytest.raises(BadInput, match=r"dates as .*data\.table\.dates .*--dates\) to us"):
        read_table(path)
    raw = read_table(path, TableColumns(dialect=Dialect(dates="us")))
    assert raw.x.tolist() == [[18292], [18293]]
    assert raw.kinds == {"a": "date"}


def test_a_table_without_a_header_has_columns_by_number(tmp_path: Path):
    path = table(tmp_path, "7,yes,1.5\n8,no,2.5\n")
    named = TableColumns(label="2", dialect=Dialect(header=False))
    raw = read_table(path, named)
    assert (raw.columns, raw.class_names, raw.y.tolist()) == (("1", "3"), ("no", "yes"), [1, 0])
    assert raw.x.tolist() == [[7, 1.5], [8, 2.5]]
    with pytest.raises(BadInput, match="got columns 1 to 3; name the label column"):
        read_table(path, TableColumns(dialect=Dialect(header=False)))
    with pytest.raises(BadInput, match="--no-header"):
        read_table(table(tmp_path, "7,1,1.5\n8,0,2.5\n"))


@pytest.mark.parametrize("first", ["7", "7;yes;1;5", "a,b,c,d,e", '"', ""])
def test_the_first_row_without_a_header_says_nothing_of_others(tmp_path: Path, first: str):
    named = TableColumns(label="2", dialect=Dialect(header=False))
    rows = "7,yes,1.5\n8,no,2.5\n"
    path = table(tmp_path, rows)
    facts = infer(read_table(path, named))
    before = read_rows(path, facts, named)
    after = read_rows(table(tmp_path, rows + first + "\n", "last.csv"), facts, named)
    if first != '"':  # takes all lines after it into its own record
        after = read_rows(table(tmp_path, first + "\n" + rows), facts, named)
    assert np.array_equal(after.x, before.x)
    assert after.y.tolist() == before.y.tolist()


def test_words_that_say_how_a_table_is_written():
    given = {"dates": "us", "numbers": "1.234,5", "header": "no", "texts": ["a", "b"]}
    dialect = Dialect(dates="us", numbers="1.234,5", header=False)
    assert dialect_of(given) == (dialect, ("a", "b"))
    assert dialect_of({"texts": "a, b"}) == (Dialect(), ("a, b",))
    for wrong in ({"date": "us"}, {"dates": "uk"}, {"header": "maybe"}, {"dates": ["us"]}):
        with pytest.raises(BadInput, match=r"^expected .*, got .*; "):
            dialect_of(wrong)
