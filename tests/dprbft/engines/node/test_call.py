import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dprbft.engines.frames import HEAD
from dprbft.engines.node.call import ask, receive, send, short
from panas.runtime.errors import BadInput


@contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """A node of one connection."""
    with socket.socket(socket.AF_UNIX) as server:
        with short(path) as address:
            server.bind(address)
        server.listen(1)

        def once() -> None:
            link, _ = server.accept()
            with link:
                answer(link)

        thread = threading.Thread(target=once, daemon=True)
        thread.start()
        yield
        thread.join(5)


def echo(link: socket.socket) -> None:
    frame = receive(link, 1 << 24)
    assert frame is not None
    send(link, frame + b"!")


@pytest.mark.parametrize("frame", [b"", b"hello", b"x" * 3_000_000])
def test_what_a_node_answers_comes_back(tmp_path: Path, frame: bytes):
    with listening(tmp_path / "node.sock", echo):
        assert ask(tmp_path / "node.sock", frame, 5) == frame + b"!"


def test_a_long_path_is_reached_too(tmp_path: Path):
    folder = tmp_path / ("a" * 90) / ("b" * 90)
    folder.mkdir(parents=True)
    with listening(folder / "node.sock", echo):
        assert ask(folder / "node.sock", b"hello", 5) == b"hello!"


def test_an_answer_above_the_cap_is_not_read(tmp_path: Path):
    def much(link: socket.socket) -> None:
        receive(link, 100)
        link.sendall((1 << 60).to_bytes(8, "big"))

    with listening(tmp_path / "s", much), pytest.raises(BadInput, match="at most 100"):
        ask(tmp_path / "s", b"", 5, cap=100)


def test_nobody_there_a_closed_connection_and_a_late_answer_are_errors(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        ask(tmp_path / "nobody", b"", 1)
    with listening(tmp_path / "a", lambda link: None), pytest.raises(ConnectionError):
        ask(tmp_path / "a", b"", 5)
    done = threading.Event()

    def hang(link: socket.socket) -> None:
        done.wait(5)

    with listening(tmp_path / "b", hang):
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            ask(tmp_path / "b", b"", 0.1)
        assert time.monotonic() - begun < 2
        done.set()


def test_an_answer_that_is_cut_off_is_no_answer(tmp_path: Path):
    def half(link: socket.socket) -> None:
        receive(link, 100)
        link.sendall((10).to_bytes(8, "big") + b"half")

    with listening(tmp_path / "s", half), pytest.raises(ConnectionError):
        ask(tmp_path / "s", b"", 5)


def test_what_is_refused_by_its_beginning_is_not_read_to_its_end():
    def look(head: bytes, size: int) -> None:
        assert (len(head), size) == (HEAD, 1 << 29)
        raise BadInput("expected less, got more")

    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        # Of 512 MB the beginning is sent alone: whoever reads on waits until the time is over.
        theirs.sendall((1 << 29).to_bytes(8, "big") + bytes(HEAD))
        with pytest.raises(BadInput, match="expected less"):
            receive(ours, 1 << 30, time.monotonic() + 5, look=look)
