"""Wire versions: what a version has sent is read for ever, or refused by what both ends have."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elsewhere import InThread, hub_config, make_sites, opened
from record_fixtures import FIXTURES

from dprbft.engines import frames
from dprbft.engines.frames import Answer, OtherWire, Request, check_request
from dprbft.engines.node.daemon import LOG, Node
from dprbft.messages import Code, Hello, Release, facts_text
from dprbft.paths import SitePaths
from dprbft.run.directory import Ground
from dprbft.run.events import Event, OtherVersion, SiteLeftOut
from dprbft.run.stages import begin
from dprbft.site.joining import approved
from dprbft.site.site import config_of, facts_of
from dprbft.wire import WIRE, own_version
from panas.runtime.errors import BadInput
from panas_cli.text.sentences import sentence

RECORDED = sorted(int(path.name) for path in (FIXTURES / "wire").iterdir())
SIZE = {"width": 16, "classes": 4}


def recorded(wire: int, name: str) -> bytes:
    return (FIXTURES / "wire" / str(wire) / name).read_bytes()


def rewritten(frame: bytes, **changes: Any) -> bytes:
    """A frame with other fields in its header; None leaves one out."""
    end = 4 + int.from_bytes(frame[:4], "big")
    about = json.loads(frame[4:end]) | changes
    text = frames._text({k: v for k, v in about.items() if v is not None})
    return len(text).to_bytes(4, "big") + text + frame[end:]


def test_this_wire_version_is_recorded():
    assert WIRE in RECORDED, "record it: python tests/helpers/record_fixtures.py"


def test_what_this_wire_version_has_sent_is_read_in_its_one_form():
    """It fails once settings, facts or messages have changed: then `WIRE` has to rise."""
    hello = Hello.from_bytes(Request.from_bytes(recorded(WIRE, "hello.request")).content)
    config, facts = config_of(hello.config), facts_of(hello.facts)
    assert (config.model_dump_json(), facts_text(facts)) == (hello.config, hello.facts)
    assert config.federation.method == "joined"
    answer = Answer.from_bytes(recorded(WIRE, "round.answer"))
    release = Release.from_bytes(answer.content, **SIZE)
    assert (release.kind, sorted(release.arrays)) == ("moments", ["A", "B"])
    assert Answer.from_bytes(recorded(WIRE, "hello.answer")).code == Code.DONE
    assert Request.from_bytes(recorded(WIRE, "round.request")).verb == "round"


@pytest.mark.parametrize("wire", [w for w in RECORDED if w != WIRE])
def test_what_another_wire_version_has_sent_is_refused_by_both_versions(wire: int):
    for kind, name in ((Request, "hello.request"), (Answer, "round.answer")):
        with pytest.raises(OtherWire) as e:
            kind.from_bytes(recorded(wire, name))
        here, there = ("site", "hub") if kind is Request else ("hub", "site")
        assert f"version {WIRE} (panas {own_version()} at this {here})" in str(e.value)
        assert f"got {wire} (" in str(e.value)
        assert str(e.value).endswith(f"upgrade panas at the {there}")


def test_the_older_end_is_the_one_to_upgrade():
    later = rewritten(recorded(WIRE, "hello.request"), wire=WIRE + 1, panas="9.1.0", more=1)
    with pytest.raises(OtherWire, match=rf"got {WIRE + 1} \(panas 9.1.0 .* at the site$"):
        Request.from_bytes(later)
    check_request(later, len(later))  # the whole of it is read, so that it can be answered


@pytest.mark.parametrize(
    "changes", [{"wire": -1}, {"wire": "2"}, {"wire": True}, {"panas": "x\ny", "wire": 2}]
)
def test_a_number_that_is_none_is_no_wire_version(changes: dict):
    with pytest.raises(BadInput, match="one form") as e:
        Request.from_bytes(rewritten(recorded(WIRE, "hello.request"), **changes))
    assert not isinstance(e.value, OtherWire)


def test_panas_may_differ_where_the_wire_does_not():
    for kind, name in ((Request, "hello.request"), (Answer, "round.answer")):
        frame = kind.from_bytes(rewritten(recorded(WIRE, name), panas="0.2.0"))
        assert (frame.panas, frame.to_bytes()) == ("0.2.0", rewritten(frame.to_bytes()))


def test_a_field_that_is_not_known_is_of_another_version():
    hello = json.loads(Request.from_bytes(recorded(WIRE, "hello.request")).content)
    with pytest.raises(BadInput, match=rf"panas {own_version()} .*'colour'; upgrade panas here"):
        Hello.from_bytes(json.dumps(hello | {"colour": "red"}).encode())
    release = Answer.from_bytes(recorded(WIRE, "round.answer")).content
    # Of the same length: one of its fields has another name.
    with pytest.raises(BadInput, match=r"'histogram_n.*; upgrade panas here"):
        Release.from_bytes(release.replace(b"histogram_noise", b"histogram_nois3"), **SIZE)


def versions_of(site: str) -> dict[str, Any]:
    return {"b": {"panas": "0.0.9"}, "c": {"panas": "9.1.0", "wire": WIRE + 1}}.get(site, {})


@pytest.mark.slow
def test_neighbours_of_one_wire_version_work_together_and_others_are_told_of(tmp_path: Path):
    """Site b has another panas, site c another wire; the hub leads without c, and says why."""
    heard, run = list[Event](), tmp_path / "trial"

    def change(site: str, verb: str, answer: bytes) -> bytes:
        return rewritten(answer, **versions_of(site))

    carrier = InThread(make_sites(tmp_path), change)
    assert begin(opened(run, hub_config(tmp_path), carrier, heard), Ground.of(run)) == [0, 1]
    lines = [sentence(event) for event in heard]
    (told,) = {event.line for event in heard if isinstance(event, OtherVersion)}
    assert f"warning: c: {told}" in lines
    assert f"expected wire version {WIRE} (panas {own_version()} at this hub)" in told
    assert told.endswith(f"got {WIRE + 1} (panas 9.1.0 at the site); upgrade panas at the hub")
    assert {(e.site, e.why) for e in heard if isinstance(e, SiteLeftOut)} == {("c", "version")}
    kept = [json.loads(line) for line in (run / "server/refused.jsonl").read_text().splitlines()]
    assert {(line["site"], line["reason"]) for line in kept} == {("c", told)}


def test_a_node_answers_a_hub_of_another_wire_version_and_notes_why(tmp_path: Path):
    sites = make_sites(tmp_path)
    asked = Request("trial", "a", 0, "hello", "0" * 32, b"{}")
    before = (sites["a"] / "site.toml").read_bytes()
    frame = rewritten(asked.to_bytes(), wire=WIRE + 1, panas="9.1.0")
    answer = Node({"a": sites["a"]}).answer(frame)
    assert answer is not None
    read = Answer.from_bytes(answer)
    assert (read.code, read.nonce, read.content) == (Code.REFUSED, asked.nonce, b"")
    assert "panas 9.1.0 at the hub); upgrade panas at the site" in (sites["a"] / LOG).read_text()
    assert (sites["a"] / "site.toml").read_bytes() == before
    assert not (sites["a"] / "runs").exists()
    # To whom, is not known.
    for changes in ({"nonce": 7}, {"run": None}, {"site": "../x"}):
        assert Node({"a": sites["a"]}).answer(rewritten(frame, **changes)) is None


def test_settings_of_another_version_are_refused_by_its_number(tmp_path: Path):
    hello = Hello.from_bytes(Request.from_bytes(recorded(WIRE, "hello.request")).content)
    settings = json.loads(hello.config)
    settings["search"]["speed"] = 3
    other = replace(hello, config=json.dumps(settings), version="9.1.0")
    paths = SitePaths(hello.site, "a", make_sites(tmp_path)["a"], hello.run)
    with pytest.raises(BadInput, match=rf"panas {own_version()} has.* of panas 9.1.0; use one"):
        approved(paths, other)
