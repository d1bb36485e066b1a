"""`panas deploy status --live`: what has changed, in its place on a terminal, until q."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from node_sites import owned_site
from rich.console import Console

from panas_cli.commands.sites import live
from panas_cli.commands.sites.live import captured, changed, follow, pressed
from panas_cli.text.printing import print_text


def shows(*states: str) -> tuple[Callable[[], None], Callable[[float], bool]]:
    """What prints one state after the other, and ends after the last."""
    left = list(states)

    def show() -> None:
        print_text(left.pop(0))

    return show, lambda seconds: not left


def test_without_a_terminal_only_what_has_changed_is_printed(capsys: pytest.CaptureFixture):
    show, ended = shows("a\nround 1", "a\nround 1", "a\nround 2")
    follow(show, ended, Console(file=io.StringIO(), force_terminal=False))
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["a", "round 1", "round 2"]
    assert changed(["a", ""], ["a", "", "b"]) == ["b"]


def test_a_terminal_shows_the_last_state_in_the_place_of_the_one_before():
    show, ended = shows("first", "second")
    screen = io.StringIO()
    follow(show, ended, Console(file=screen, force_terminal=True, width=60, legacy_windows=False))
    there, _, rest = screen.getvalue().partition("\x1b[?1049h")  # the other screen
    second = rest.index("second")
    assert (there, rest.index("first") < rest.rindex("\x1b[H", 0, second) < second) == ("", True)
    assert "\x1b[?1049l" in rest[rest.index("q ends") :]  # back to what was there


def test_a_small_terminal_shows_the_first_lines_and_how_to_end():
    show, ended = shows("\n".join(f"line {i}" for i in range(40)))
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, height=8, legacy_windows=False)
    follow(show, ended, console)
    assert "line 5" in screen.getvalue()
    assert "line 6" not in screen.getvalue()
    assert "q ends" in screen.getvalue()


def test_what_is_captured_is_as_wide_as_the_screen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "33")
    assert captured(lambda: print_text(os.environ["COLUMNS"]), 50) == ["50"]
    assert os.environ["COLUMNS"] == "33"
    monkeypatch.delenv("COLUMNS")
    assert captured(lambda: print_text("x  ")) == ["x"]
    assert "COLUMNS" not in os.environ


@pytest.mark.parametrize(("key", "ends"), [(b"q", True), (b"Q", True), (b"x", False)])
def test_q_ends_it_and_no_other_key(key: bytes, ends: bool):
    source, sink = os.pipe()
    try:
        assert pressed(source, 0.0) is False
        os.write(sink, key)
        assert pressed(source, 1.0) is ends
        os.close(sink)
        assert pressed(source, 1.0) is True  # the keyboard is gone
    finally:
        os.close(source)


def test_ctrl_c_ends_it_with_code_0(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stop(seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "_sleep", stop)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    site = owned_site(tmp_path / "north")
    outcome = cli("deploy", "status", "--site", site, "--live")
    assert (outcome.code, outcome.err) == (0, "")
    assert "site north: expected a node" in outcome.out
    assert cli("deploy", "status", "--site", site, "--live", "--json").refusal
