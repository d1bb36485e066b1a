"""A node that does what it should: files of a hello, repeated verbs, failures, its log."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from node_sites import Hub, code_of, everything

from dprbft.engines.frames import Answer, sha256
from dprbft.engines.node import daemon
from dprbft.engines.node.daemon import KEY, LOG, Node, Served
from dprbft.messages import Code, Hello
from dprbft.paths import hello_file, public_file
from dprbft.secure_sum.identity import new_key, public_of, verify
from panas.runtime.errors import BadInput
from panas.runtime.log import Line, append


def log(site: Path) -> list[dict]:
    return [json.loads(line) for line in (site / LOG).read_text().splitlines()]


def test_the_public_files_of_a_hello_are_kept_once_and_read_there(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    assert code_of(node, hub.request("hello")) is Code.DONE
    home = site / "runs" / "trial-1"
    noted = Hello.from_bytes(hello_file(home).read_bytes())
    assert noted.public == str(public_file(home / "public"))
    kept = public_file(home / "public")
    assert kept.read_bytes() == public_file(hub.run).read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600
    before = kept.stat().st_mtime_ns
    assert code_of(node, hub.request("hello")) is Code.DONE
    assert kept.stat().st_mtime_ns == before
    other = dict(hub.request("hello").files)
    other["public"] = other["public"] + b" "
    assert code_of(node, hub.request("hello", files=other)) is Code.REFUSED
    assert "has begun with" in told[-1].reason
    assert kept.stat().st_mtime_ns == before


def test_a_hello_may_name_files_that_are_here_by_their_digests(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    whole = hub.request("hello")
    digests = {f"{n}.sha256": sha256(c).encode() for n, c in whole.files.items()}
    brief, before = replace(whole, files=digests), everything(site)
    assert code_of(node, brief) is Code.REFUSED
    assert "send them along" in told[-1].reason
    assert everything(site) == before
    assert code_of(node, whole) is Code.DONE
    assert code_of(node, brief) is Code.DONE
    both = whole.files | digests
    other = {"public.sha256": sha256(b"another file").encode()}
    for files in (both, other, {}, dict.fromkeys(digests, b"")):
        assert code_of(node, replace(whole, files=files)) is Code.REFUSED
    public_file(site / "runs/trial-1/public").write_bytes(b"damaged")
    assert code_of(node, brief) is Code.REFUSED


def test_a_hello_that_nothing_came_of_is_forgotten_whole(node: Node, hub: Hub, site: Path):
    before = everything(site)
    assert code_of(node, hub.request("hello")) is Code.DONE
    assert code_of(node, hub.request("leave")) is Code.DONE
    after = everything(site)
    assert after.keys() - before.keys() == {"ledger.jsonl", "ledger.head"}
    assert not (site / "runs").exists()


def test_answers_are_signed_where_the_site_has_a_key(node: Node, hub: Hub, site: Path):
    key = new_key()
    (site / KEY).write_bytes(key)
    frame = node.answer(hub.request("hello").to_bytes())
    assert frame is not None
    answer = Answer.from_bytes(frame)
    assert verify(public_of(key), answer.signed_part(), answer.signature)
    forged = replace(answer, code=int(Code.REFUSED))
    assert not verify(public_of(key), forged.signed_part(), answer.signature)
    (site / KEY).write_bytes(b"no key")
    assert node.answer(hub.request("hello").to_bytes()) is None  # nothing leaves unsigned
    assert log(site)[-1]["code"] == "FAILED"


def test_a_failure_is_a_code_and_its_text_stays_out_of_every_record(
    node: Node,
    hub: Hub,
    site: Path,
    told: list[Served],
    monkeypatch: pytest.MonkeyPatch,
):
    assert code_of(node, hub.request("hello")) is Code.DONE

    def fails(*_: object) -> None:
        raise ZeroDivisionError("patient Quill of 120")

    monkeypatch.setattr(daemon, "serve", fails)
    frame = node.answer(hub.request("ready").to_bytes())
    assert frame is not None
    assert Answer.from_bytes(frame).code == Code.FAILED
    last = log(site)[-1]
    assert (last["code"], last["reason"]) == ("FAILED", "ZeroDivisionError")
    assert any(line.endswith(" fails") for line in last["trace"])
    for text in (frame, (site / LOG).read_bytes(), repr(told).encode()):
        assert b"Quill" not in text


def test_every_request_is_told_with_its_reason(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    code_of(node, hub.request("hello"))
    assert code_of(node, hub.request("round", b"nonsense")) is Code.ABSENT
    assert [(t.verb, t.run, t.code) for t in told] == [
        ("hello", "trial-1", "DONE"),
        ("round", "trial-1", "ABSENT"),
    ]
    assert "broadcast" in told[-1].reason
    lines = log(site)
    assert [line["code"] for line in lines] == ["DONE", "ABSENT"]
    assert [line["level"] for line in lines] == ["info", "warning"]
    assert {line["event"] for line in lines} == {"request"}
    assert all(t.received > 0 < t.sent for t in told)


def test_a_long_log_is_put_aside(node: Node, hub: Hub, site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(daemon, "append", partial(append, longest=100))
    for _ in range(4):
        code_of(node, hub.request("train"))
    assert len(log(site)) == 1
    assert (site / f"{LOG}.1").exists()


def test_a_site_of_another_name_is_no_site_of_this_node(node: Node, hub: Hub, site: Path):
    assert code_of(node, hub.request("hello", site=0)) is Code.DONE
    assert code_of(node, hub.request("ready").to_bytes().replace(b'"north"', b'"south"')) is (
        Code.ABSENT
    )
    with pytest.raises(BadInput, match="expected site south"):
        Node({"south": site})


def test_who_hangs_up_before_its_turn_costs_nothing(node: Node, hub: Hub, told: list[Served]):
    assert node.answer(hub.request("hello").to_bytes(), lambda: True) is None
    assert told == []


def test_sites_of_a_simulation_share_what_the_run_holds(hub: Hub, site: Path):
    node, hub.elsewhere = Node({"north": site}, shared=hub.run), False
    before = set(everything(hub.run))
    assert code_of(node, hub.request("hello")) is Code.DONE
    assert set(everything(hub.run)) == before
    home = site / "runs" / "trial-1"
    assert hello_file(home).read_bytes() == hub.view.hello(0)
    other = hub.request("hello")
    changed = replace(other, files={**other.files, "map": other.files["public"]})
    fresh = replace(hub.request("hello"), files=changed.files)
    hello_file(home).unlink()
    assert code_of(node, fresh) is Code.REFUSED


def test_a_log_that_cannot_be_written_is_told_of_with_the_failure(
    node: Node, hub: Hub, told: list[Served], monkeypatch: pytest.MonkeyPatch
):
    def full(path: Path, line: Line) -> None:
        raise OSError(27, "File too large")

    def fail(*given: object) -> None:
        raise OSError(27, "File too large")

    monkeypatch.setattr(daemon, "append", full)
    monkeypatch.setattr(daemon, "serve", fail)
    assert code_of(node, hub.request("hello")) is Code.FAILED
    assert told[-1].code == "FAILED"
    assert "node.log could not be written (File too large)" in told[-1].reason
