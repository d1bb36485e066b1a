"""A node at its socket: one a site, private to its owner, and stopped without a trace."""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from node_sites import Hub, owned_site, serving

from dprbft.engines.frames import Answer
from dprbft.engines.node import daemon, listen
from dprbft.engines.node.call import SOCKET, ask, short
from dprbft.engines.node.daemon import Node
from dprbft.messages import Code, Reply
from panas.runtime.errors import BadInput


def test_a_node_answers_at_a_socket_of_its_owner_alone(site: Path, hub: Hub):
    path = site / SOCKET
    with serving(Node({"north": site}), path):
        assert path.stat().st_mode & 0o777 == 0o600
        assert Answer.from_bytes(ask(path, hub.request("hello").to_bytes(), 20)).code == Code.DONE
        with pytest.raises(ConnectionError):
            ask(path, b"no request", 20)
        with socket.socket(socket.AF_UNIX) as link, short(path) as address:
            link.connect(address)
            link.sendall((1 << 62).to_bytes(8, "big"))
            assert link.recv(1) == b""  # nothing was read, nothing is answered
        with pytest.raises(BadInput, match="no other node for site north"):
            listen.run_node(Node({"north": site}), site / "other.sock")
        other = owned_site(site.parent / "south")
        with pytest.raises(BadInput, match="no other node at"):
            listen.run_node(Node({"south": other}), path)


def test_a_file_in_the_way_stays_and_a_dead_socket_goes(site: Path):
    (site / "data.sock").write_text("data")
    with pytest.raises(BadInput, match="got a file"):
        listen.run_node(Node({"north": site}), site / "data.sock")
    assert (site / "data.sock").read_text() == "data"
    with socket.socket(socket.AF_UNIX) as dead, short(site / SOCKET) as address:
        dead.bind(address)
    with serving(Node({"north": site}), site / SOCKET), pytest.raises(ConnectionError):
        ask(site / SOCKET, b"", 5)


@pytest.mark.slow
def test_work_goes_on_when_nobody_waits_and_requests_of_a_site_queue(
    site: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    path, begun, go_on, at_once = site / SOCKET, threading.Event(), threading.Event(), []
    done: list[int] = []

    def slow(*_: object) -> Reply:
        at_once.append(1)
        assert len(at_once) == 1
        begun.set()
        go_on.wait(20)
        at_once.pop()
        done.append(1)
        return Reply(Code.DONE)

    with serving(Node({"north": site}), path):
        assert Answer.from_bytes(ask(path, hub.request("hello").to_bytes(), 20)).code == Code.DONE
        monkeypatch.setattr(daemon, "serve", slow)
        with pytest.raises(TimeoutError):
            ask(path, hub.request("train").to_bytes(), 0.2)
        assert begun.wait(20)
        with pytest.raises(TimeoutError):  # it waits for its turn, and gives up
            ask(path, hub.request("train").to_bytes(), 0.2)
        waiting = threading.Thread(target=lambda: (time.sleep(0.1), go_on.set()))
        waiting.start()
        answer = ask(path, hub.request("train").to_bytes(), 20)
        waiting.join()
    assert Answer.from_bytes(answer).code == Code.DONE
    assert done == [1, 1]  # the one that was given up before its turn never began


@pytest.mark.thorough
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_and_stops_without_a_trace(site: Path, hub: Hub, told: signal.Signals):
    command = [sys.executable, "-m", "panas_cli", "node", "--site", str(site), "--device", "cpu"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests in the background of a script are started deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stderr is not None
        assert "answers at" in process.stderr.readline()
        answer = Answer.from_bytes(ask(site / SOCKET, hub.request("hello").to_bytes(), 30))
        assert answer.code == Code.DONE
        ask(site / SOCKET, hub.request("round", b"nonsense").to_bytes(), 30)
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "no other node for site north" in second.stderr
        process.send_signal(told)
        rest = process.stderr.read().splitlines()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert "hello of trial-1: done in" in rest[0]
    assert "round of trial-1: absent in" in rest[1]
    assert "stopped" in rest[2]
    assert len(rest) == 3
    assert not (site / SOCKET).exists()


@pytest.mark.thorough
def test_a_site_goes_on_after_its_node_was_killed(site: Path, hub: Hub):
    command = [sys.executable, "-m", "panas_cli", "node", "--site", str(site), "--device", "cpu"]
    codes = []
    for verb in ("hello", "ready"):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            process.stderr.readline()
            frame = hub.request(verb).to_bytes()
            codes.append(Answer.from_bytes(ask(site / SOCKET, frame, 30)).code)
        finally:
            process.kill()
            process.wait()
    assert codes == [Code.DONE, Code.DONE]
