"""Frames to nodes of this machine over their sockets; who does not answer them is absent."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from elsewhere import hub_config, make_sites
from node_sites import serving

from dprbft.config.hub import HubSettings
from dprbft.engines import framed
from dprbft.engines.framed import Carrier, Framed, Late, UnixCarrier
from dprbft.engines.frames import Answer, Request
from dprbft.engines.node.call import SOCKET
from dprbft.engines.node.daemon import KEY, Node
from dprbft.messages import Code, Reply, Verb
from dprbft.paths import server_folder
from dprbft.run.directory import prepare
from dprbft.run.hub import Wire, open_hub
from dprbft.run.stages import exchange_stage
from dprbft.secure_sum.identity import new_key, public_of
from dprbft.server.records import read_rounds
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes


@pytest.mark.slow
def test_signed_answers_of_nodes_come_over_their_sockets(tmp_path: Path):
    places, keys = make_sites(tmp_path), dict[str, bytes]()
    for name, folder in places.items():
        private = new_key()
        write_bytes(folder / KEY, private)
        keys[name] = public_of(private)
    sockets = {name: folder / SOCKET for name, folder in places.items()}
    with contextlib.ExitStack() as nodes:  # which end with this process
        for name, folder in places.items():
            nodes.enter_context(serving(Node({name: folder}), sockets[name]))
    run, config = tmp_path / "trial", hub_config(tmp_path)
    prepare(run, config, resume=False)
    hub = HubSettings(names=config.federation.remote, minimum=3)
    exchange_stage(open_hub(run, config, hub, Wire(UnixCarrier(sockets), keys)))
    (record,) = read_rounds(server_folder(run))
    assert (record.sites, record.absent) == ((0, 1, 2), ())
    assert not (server_folder(run) / "refused.jsonl").exists()
    other = keys | {"c": keys["a"]}
    again = open_hub(run, config, hub, Wire(UnixCarrier(sockets), other))
    replies = dict(again.engine.call(Verb.READY, dict.fromkeys(range(3), b"")))
    assert replies[2] == Reply(Code.ABSENT)
    assert "expected the signature" in (server_folder(run) / "refused.jsonl").read_text()


@contextlib.contextmanager
def listening(path: Path, answer: bytes | None) -> Iterator[Path]:
    """A socket that answers every request alike, or never."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
        contextlib.ExitStack() as open_,
    ):
        server.bind(str(path))
        server.listen(8)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link = open_.enter_context(server.accept()[0])
                    if answer is not None:
                        link.sendall(len(answer).to_bytes(8, "big") + answer)

        threading.Thread(target=accept, daemon=True).start()
        yield path


@pytest.mark.slow
def test_who_does_not_answer_in_time_or_at_all_is_absent(tmp_path: Path):
    refused: list[tuple[str, Verb, BadInput]] = []
    with (
        listening(tmp_path / "hung", None) as hung,
        listening(tmp_path / "junk", b"junk") as junk,
        listening(tmp_path / "vast", b"x" * 100_000) as vast,
    ):
        sockets = {"hung": hung, "junk": junk, "vast": vast, "gone": tmp_path / "gone"}
        carrier = UnixCarrier(sockets, cap=90_000)
        engine = framed_by(carrier, refused, names=tuple(sockets), seconds=0.5)
        results = dict(engine.call(Verb.SEARCH, dict.fromkeys(range(4), b"")))
    assert results == dict.fromkeys(range(4), Reply(Code.ABSENT))
    assert {site for site, _, _ in refused} == {"junk", "vast"}


def framed_by(carrier: Carrier, refused: list[tuple[str, Verb, BadInput]], **more: Any) -> Framed:
    """An engine of site a, which notes what is refused."""

    def refuse(site: str, verb: Verb, why: BadInput) -> None:
        refused.append((site, verb, why))

    return Framed(carrier=carrier, run="trial", refused=refuse, **({"names": ("a",)} | more))


class Echo:
    """A carrier that answers as asked, with something to change."""

    def __init__(self, **changes: object) -> None:
        self.changes = changes

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        for name, frame in frames.items():
            r = Request.from_bytes(frame)
            about = {"run": r.run, "site": r.site, "verb": r.verb, "nonce": r.nonce, "code": 0}
            yield name, Answer(**(about | self.changes)).to_bytes()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"run": "other"}, {"site": "b"}, {"verb": "tune"}, {"nonce": "0" * 32}, {"code": 9}]
)
def test_an_answer_to_something_else_is_refused(changes: dict):
    refused: list[Any] = []
    right, wrong = framed_by(Echo(), refused), framed_by(Echo(**changes), refused)
    assert list(right.call(Verb.SEARCH, {0: b""})) == [(0, Reply(Code.DONE))]
    assert refused == []
    assert list(wrong.call(Verb.SEARCH, {0: b""})) == [(0, Reply(Code.ABSENT))]
    assert len(refused) == 1


def test_a_site_that_has_left_is_absent_and_neither_asked_nor_heard():
    refused, asked = list[Any](), list[str]()

    class Both(Echo):
        """Answers for a site that it was not asked for, too."""

        def carry(
            self, frames: Mapping[str, bytes], seconds: float | None, cap: int
        ) -> Iterator[tuple[str, bytes]]:
            asked.extend(frames)
            yield from (("b", content) for _, content in super().carry(frames, seconds, cap))

    engine = framed_by(Both(), refused, names=("a", "b"), keys={"a": public_of(new_key())})
    results = dict(engine.call(Verb.SEARCH, {0: b"", 1: b""}))
    assert (results, asked) == (dict.fromkeys(range(2), Reply(Code.ABSENT)), ["a"])
    assert "of a site that was asked" in str(refused[0][2])
    unasked = framed_by(Echo(), refused, names=("b",), keys={})
    assert dict(unasked.call(Verb.SEARCH, {0: b""})) == {0: Reply(Code.ABSENT)}


def test_a_late_answer_is_noted_under_what_it_answers():
    late, refused = list[bytes](), list[tuple[str, Verb, BadInput]]()

    class Slow(Echo):
        """The first answer comes with those of the second call."""

        def carry(
            self, frames: Mapping[str, bytes], seconds: float | None, cap: int
        ) -> Iterator[tuple[str, bytes]]:
            yield from (("a", content) for content in late)
            answers = list(super().carry(frames, seconds, cap))
            if late:
                yield from answers
            late.extend(content for _, content in answers)

    engine = framed_by(Slow(), refused)
    assert list(engine.call(Verb.SEARCH, {0: b""})) == [(0, Reply(Code.ABSENT))]
    assert list(engine.call(Verb.TUNE, {0: b""})) == [(0, Reply(Code.DONE))]
    ((site, verb, why),) = refused
    assert (site, verb, type(why)) == ("a", Verb.SEARCH, Late)


@pytest.mark.parametrize("name", ["../a", "", "a b"])
def test_a_name_that_cannot_cross_is_refused(name: str):
    for run, site in ((name, "a"), ("trial", name)):
        with pytest.raises(BadInput, match="names of a run and its sites"):
            Framed(carrier=Echo(), run=run, names=(site,))


def test_a_socket_is_read_no_further_than_its_verb_allows(monkeypatch: pytest.MonkeyPatch):
    caps = []
    monkeypatch.setattr(framed, "ask", lambda *_, cap: caps.append(cap) or b"")
    for cap in (1000, 1 << 30):
        list(UnixCarrier({"a": Path()}, 1 << 20).carry({"a": b""}, None, cap))
    assert caps == [1000, 1 << 20]
