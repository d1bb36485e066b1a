"""The wire: what crosses in a whole run, and that nothing can be hidden in it at either end."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from deaths import carry_out
from recorded_wire import RecordedWire

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Broadcast, Code, Hello, Release, Reply, Verb
from dprbft.methods.serve import Machine, serve
from dprbft.paths import read_sites, rounds_file, server_folder
from dprbft.run.directory import prepare
from dprbft.run.view import RunView
from dprbft.server.checkpoint import ServerFiles
from dprbft.site.site import Site
from panas.data.facts import Facts
from panas.runtime.errors import BadInput
from panas.runtime.store import read_lines

WIDTH, CLASSES = 16, 10
SIZE = {"width": WIDTH, "classes": CLASSES}
HEARS_HEAD = (Verb.READY, Verb.ROUND, Verb.FINISH)


def recorded(run: Path, config: RunConfig) -> RecordedWire:
    """A whole run, and all that crossed in it."""
    prepare(run, config, resume=False)
    with InProcess(read_sites(run)) as engine:
        wire = RecordedWire(engine)
        carry_out(run, config, wire)
    return wire


@pytest.mark.slow
@pytest.mark.parametrize("release", ["moments", "none"])
def test_a_whole_run_crosses_as_hellos_broadcasts_releases_and_codes(
    release: str, tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny(
        federation__clients=3,
        federation__participation=0.6,
        federation__rounds=2,
        privacy__release=release,
    )
    wire, view = recorded(tmp_path, config), RunView(tmp_path, config)
    for verb, site, content in wire.down:
        if verb is Verb.HELLO:
            hello = Hello.from_bytes(content)
            assert (hello.to_bytes(), hello.site) == (content, site)
            assert RunConfig.model_validate_json(hello.config) == config
            assert Facts.from_json(json.loads(hello.facts)) == view.facts
        elif verb in HEARS_HEAD:
            assert Broadcast.from_bytes(content, **SIZE).to_bytes() == content
        else:
            assert content == b""
    sent: dict[tuple[int, int], bytes] = {}
    assert {field.name for field in fields(Reply)} == {"code", "release"}
    for verb, site, reply in wire.up:
        assert reply.code is Code.DONE
        if verb is Verb.ROUND and release != "none":
            message = Release.from_bytes(reply.release, **SIZE)
            assert (message.to_bytes(), message.site) == (reply.release, site)
            assert (message.round, site) not in sent
            sent[message.round, site] = reply.release
        else:
            assert reply.release == b""
    # Nothing else was sent, and nothing else is kept.
    rounds = dict(enumerate(participants(config), start=1))
    everyone = {(r, i) for r, sites in rounds.items() for i in sites}
    assert sent.keys() == (everyone if release != "none" else set())
    kept = {
        (r, i): path.read_bytes()
        for r, i in everyone
        if (path := server_folder(tmp_path) / f"round-00{r}" / f"site-000{i}.safetensors").exists()
    }
    assert kept == sent
    told = sum(line["up_bytes"] for line in read_lines(rounds_file(server_folder(tmp_path))))
    assert told == sum(len(content) for content in sent.values())


@pytest.mark.slow
def test_only_participants_are_asked_in_a_round(tiny: Callable[..., RunConfig], tmp_path: Path):
    config = tiny(
        federation__clients=3, federation__participation=0.3, federation__rounds=3, seed=1
    )
    wire = recorded(tmp_path, config)
    for verb in (Verb.ROUND, Verb.FINISH):
        asked = [
            (Broadcast.from_bytes(content, **SIZE).round + (verb is Verb.ROUND), site)
            for v, site, content in wire.down
            if v is verb
        ]
        wanted = [(r, i) for r, c in enumerate(participants(config), start=1) for i in c]
        assert asked == wanted


Header = dict[str, Any]


def headed(content: bytes, change: Callable[[Header], Header], pad: bytes = b"") -> bytes:
    """Safetensors with another header, and the same numbers after it."""
    end = 8 + int.from_bytes(content[:8], "little")
    text = json.dumps(change(json.loads(content[8:end])), separators=(",", ":")).encode() + pad
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[end:]


def told(content: bytes, change: Callable[[str], str]) -> bytes:
    """The same message whose JSON text is another."""

    def changed(header: Header) -> Header:
        return header | {"__metadata__": {"message": change(header["__metadata__"]["message"])}}

    return headed(content, changed)


def more(text: str, field: Mapping[str, Any]) -> str:
    return json.dumps(json.loads(text) | dict(field))


def turned(text: str) -> str:
    return json.dumps(dict(reversed(json.loads(text).items())))


TAMPERED: dict[str, Callable[[bytes], bytes]] = {
    "an unknown field": lambda c: told(c, lambda text: more(text, {"accuracy": 0.5})),
    "a field twice": lambda c: told(c, lambda text: '{"round": 7, ' + text[1:]),
    "other metadata": lambda c: headed(
        c, lambda h: h | {"__metadata__": h["__metadata__"] | {"note": "x"}}
    ),
    "another order of fields": lambda c: told(c, turned),
    "another order of arrays": lambda c: headed(c, lambda h: dict(reversed(h.items()))),
    "spaces in the message": lambda c: told(c, lambda text: text + "  "),
    "spaces after the header": lambda c: headed(c, lambda h: h, b" " * 8),
    "bytes at the end": lambda c: c + b"\0" * 8,
    "another array": lambda c: with_array(c),
}

TAMPERED_HELLO: dict[str, Callable[[bytes], bytes]] = {
    "an unknown field": lambda c: more(c.decode(), {"note": "x"}).encode(),
    "a field twice": lambda c: b'{"site": 7, ' + c[1:],
    "another order of fields": lambda c: turned(c.decode()).encode(),
    "spaces": lambda c: c + b" ",
    "no spaces": lambda c: json.dumps(json.loads(c), separators=(",", ":")).encode(),
}


def with_array(content: bytes) -> bytes:
    """One more array of zeros after all others."""

    def changed(header: Header) -> Header:
        end = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
        return header | {"zz": {"dtype": "F32", "shape": [2], "data_offsets": [end, end + 8]}}

    return headed(content, changed) + b"\0" * 8


BROADCAST = Broadcast(1, torch.ones(CLASSES, WIDTH), torch.zeros(CLASSES))
ARRAYS = {"A": torch.ones(WIDTH * (WIDTH + 1) // 2), "B": torch.ones(CLASSES, WIDTH)}
RELEASE = Release(0, 1, "moments", 1.5, "0" * 32, ARRAYS)
HELLO = Hello(0, "run", "{}", "{}", "", "", "")


def test_the_tools_of_this_test_change_nothing_by_themselves():
    for content in (BROADCAST.to_bytes(), RELEASE.to_bytes()):
        assert told(content, lambda text: text) == headed(content, lambda h: h) == content


@pytest.mark.parametrize("how", TAMPERED)
def test_another_form_of_the_same_message_is_refused(how: str):
    for sent in (BROADCAST, RELEASE, RELEASE.compressed("int8")):
        content = TAMPERED[how](sent.to_bytes())
        assert content != sent.to_bytes()
        with pytest.raises(BadInput):
            type(sent).from_bytes(content, **SIZE)


@pytest.mark.parametrize("how", TAMPERED_HELLO)
def test_another_form_of_the_same_hello_is_refused(how: str):
    assert Hello.from_bytes(HELLO.to_bytes()) == HELLO
    content = TAMPERED_HELLO[how](HELLO.to_bytes())
    assert content != HELLO.to_bytes()
    with pytest.raises(BadInput):
        Hello.from_bytes(content)


@pytest.mark.slow
def test_both_ends_refuse_what_may_hide_something(
    tiny: Callable[..., RunConfig], make_site: Callable[..., Site], tmp_path: Path
):
    """Nothing is charged or kept for such a message, and the right one still serves."""
    site, view = make_site(tiny(), tmp_path / "r"), RunView(tmp_path / "r", tiny())
    files = ServerFiles(tmp_path / "server", **SIZE)

    def ask(verb: Verb, content: bytes) -> Reply:
        return serve(site.paths, Machine(), verb, content)

    inside = {
        name: lambda c, name=name: more(c.decode(), {name: json.loads(c)[name] + " "}).encode()
        for name in ("config", "facts")
    }
    for change in (*TAMPERED_HELLO.values(), *inside.values()):
        assert ask(Verb.HELLO, change(view.hello(0))) == Reply(Code.REFUSED)
    for verb in (Verb.SEARCH, Verb.TUNE):
        assert ask(verb, b"") == Reply(Code.DONE)
    first = Broadcast(0, BROADCAST.weight, BROADCAST.bias).to_bytes()
    assert ask(Verb.READY, first) == Reply(Code.DONE)
    before = site.ledger.path.read_bytes()
    for change in TAMPERED.values():
        assert ask(Verb.ROUND, change(first)) == Reply(Code.REFUSED)
    assert site.ledger.path.read_bytes() == before
    reply = ask(Verb.ROUND, first)
    for change in TAMPERED.values():
        with pytest.raises(BadInput):
            files.put_release(1, 0, change(reply.release))
        assert not files.has_release(1, 0)
        assert ask(Verb.FINISH, change(BROADCAST.to_bytes())) == Reply(Code.REFUSED)
    files.put_release(1, 0, reply.release)
    assert ask(Verb.FINISH, BROADCAST.to_bytes()) == Reply(Code.DONE)
