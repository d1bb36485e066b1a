"""Lines and tables on a terminal and in a pipe."""

import pytest
from rich.console import Console

from panas_cli.text.printing import WIDTH, print_table, print_titled, print_words, titled

HEADERS = ["site", "genome", *(f"figure\n{k}" for k in range(12))]
GENOME = "c16k5-c64k5-c32k3-max-c128k5-avg"
ROWS = [[f"client-{n:03}", GENOME, *(f"{n}.{k:04}" for k in range(12))] for n in range(2)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> int:
    """The width of a terminal that is written to."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    return 80


def test_a_table_too_wide_for_a_terminal_comes_in_parts_that_lose_nothing(
    terminal: int, capsys: pytest.CaptureFixture[str]
):
    table = titled("what is shown")
    for header in HEADERS:
        table.add_column(header, overflow="fold")
    for row in ROWS:
        table.add_row(*row)
    print_titled(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "what is shown"
    assert max(map(len, lines)) <= terminal
    words = " ".join(lines).split()
    assert all(words.count(figure) == 1 for row in ROWS for figure in row[2:])
    assert words.count("client-000") == words.count("client-001") == 2
    assert GENOME[:24] in words


def test_columns_that_say_what_a_line_is_about_stand_in_each_part(
    terminal: int, capsys: pytest.CaptureFixture[str]
):
    print_table(HEADERS, [[row[0], "sound", *row[2:]] for row in ROWS], left=2, keys=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= terminal
    about = [line.split()[:2] for line in lines if "client-" in line]
    assert about == [["client-000", "sound"], ["client-001", "sound"]] * 2


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_a_table_that_fits_stays_whole_and_a_pipe_is_as_wide_as_columns_say(
    terminal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    monkeypatch.delenv("COLUMNS", raising=False)
    if terminal == "0":
        print_table(HEADERS, ROWS)
        lines = capsys.readouterr().out.splitlines()
        assert 80 < max(map(len, lines)) <= WIDTH
    monkeypatch.setenv("COLUMNS", "200")
    print_table(HEADERS, ROWS)
    result = capsys.readouterr().out
    assert result.count("client-000") == 1
    assert GENOME in result


def test_a_long_line_breaks_between_words_and_a_log_s_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = "  its network: " + "no-attack surely tells [members] " * 5 + "/a/path" * 20
    print_words(text, Console(stderr=True), whole=True)
    assert capsys.readouterr().err == f"{text}\n"
    monkeypatch.setenv("COLUMNS", "80")
    print_words(text)
    first, *others = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in (first, *others[:-1]))
    assert all(line.startswith("    ") and line[4] != " " for line in others)
    assert " ".join([first.strip(), *(line.strip() for line in others)]) == text.strip()
    assert others[-1].strip() == "/a/path" * 20
