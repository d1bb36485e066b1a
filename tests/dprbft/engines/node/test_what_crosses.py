"""All bytes that leave three nodes in a whole run of method joined: codes and releases alone."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from elsewhere import Recorded, lead, opened
from node_sites import CLASSES, hub_config, owned_site, serving

from dprbft.config.files import build_config, without_unread
from dprbft.engines.framed import UnixCarrier
from dprbft.engines.frames import Answer
from dprbft.engines.node import daemon
from dprbft.engines.node.call import SOCKET
from dprbft.engines.node.daemon import LOG, Node
from dprbft.messages import Code, Release, Reply, Verb
from dprbft.methods.serve import serve
from dprbft.paths import SitePaths, report_file, server_folder
from dprbft.server.records import read_rounds
from panas.runtime.store import read_json

pytestmark = pytest.mark.slow
SAMPLES = {"north": 211, "east": 307, "west": 401}
WIDTH = 16
# A name, and no number: a random nonce of hexadecimal digits may hold any.
TEXT = "ZeroDivisionError in /home/hospital: patient Quill"


def fails_at_export(paths: SitePaths, machine: Any, verb: Verb, content: bytes) -> Reply:
    """As `serve`, but one site breaks in the end."""
    if paths.name == "west" and verb is Verb.EXPORT:
        raise ZeroDivisionError(TEXT)
    return serve(paths, machine, verb, content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("federation")


@pytest.fixture(scope="module")
def crossed(folder: Path) -> Iterator[Recorded]:
    """A whole run of three sites, each with a node at a socket of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(daemon, "serve", fails_at_export)
        yield carried_out(folder)


def carried_out(tmp_path: Path) -> Recorded:
    """The run, and what crossed."""
    sites = {n: owned_site(tmp_path / n, k, seed=k) for n, k in SAMPLES.items()}
    given = hub_config(tmp_path, list(sites.values()), network="stays").model_dump()
    settings = {"sites": (), "remote": list(sites)}
    config = build_config(without_unread(given), {"federation": settings})
    wire = Recorded(UnixCarrier({name: folder / SOCKET for name, folder in sites.items()}))
    with ExitStack() as nodes:
        for name, folder in sites.items():
            nodes.enter_context(serving(Node({name: folder}), folder / SOCKET))
        lead(opened(tmp_path / "trial-1", config, wire))
    return wire


def texts(answer: Answer) -> str:
    """All that is text in an answer: its header, and that of its release."""
    frame = answer.to_bytes()
    head = frame[4 : 4 + int.from_bytes(frame[:4], "big")]
    size = 8 + int.from_bytes(answer.content[:8], "little")
    return (head + answer.content[8:size]).decode()


def flat(record: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a JSON record, with the keys above them."""
    if isinstance(record, dict | list):
        parts = record.items() if isinstance(record, dict) else enumerate(record)
        for name, part in parts:
            yield from flat(part, f"{key}.{name}")
    elif isinstance(record, int | float):
        yield key, record


def test_codes_and_releases_alone_leave_a_node(crossed: Recorded, folder: Path):
    answers = [Answer.from_bytes(frame) for _, frame in crossed.up]
    asked = {(r.site, r.verb) for r in crossed.down}
    for verb in ("hello", "ready", "round", "finish", "search", "tune", "train", "export"):
        assert {(name, verb) for name in SAMPLES} <= asked
    assert {(a.site, a.verb) for a in answers if a.code} == {("west", "export")}
    assert {a.code for a in answers} == {Code.DONE, Code.FAILED}
    releases = [a for a in answers if a.content]
    assert {a.verb for a in releases} == {"round"}
    assert sorted(a.site for a in releases) == sorted(SAMPLES)
    for answer in releases:
        # In its one form, so that nothing hides in it: noised arrays and the numbers of charges.
        message = Release.from_bytes(answer.content, width=WIDTH, classes=CLASSES)
        assert sorted(message.arrays) == ["A", "B"]
        assert message.noise_multiplier is not None
        assert message.histogram is not None
    (record,) = read_rounds(server_folder(folder / "trial-1"))
    assert record.sites == (0, 1, 2)
    for _, frame in crossed.up:
        assert Answer.from_bytes(frame).to_bytes() == frame
        for secret in (str(folder), "hospital", "Quill", "ZeroDivision", "Error", "Traceback"):
            assert secret.encode() not in frame


def test_no_number_of_a_site_is_in_what_leaves_it(crossed: Recorded, folder: Path):
    told = {text for _, frame in crossed.up for text in [texts(Answer.from_bytes(frame))]}
    numbers = {n for text in told for n in re.findall(r"(?<![0-9a-f.])[0-9.]+(?![0-9a-f])", text)}
    assert numbers >= {"0", "4", "16"}  # codes and shapes are found
    for name, samples in SAMPLES.items():
        report = read_json(report_file(folder / name / "runs" / "trial-1"))
        measured = {repr(value) for key, value in flat(report) if "noise" not in key}
        assert len(measured) > 10
        long = {n for n in measured if len(n) > 3}
        assert numbers & {str(samples), *long} == set()
    assert not any("accuracy" in text for text in told)


def test_why_a_site_failed_stands_in_its_own_log_without_the_text(crossed: Recorded, folder: Path):
    lines = [json.loads(line) for line in (folder / "west" / LOG).read_text().splitlines()]
    failed = [line for line in lines if line["code"] == "FAILED"]
    assert [(line["verb"], line["reason"]) for line in failed] == [("export", "ZeroDivisionError")]
    assert any("fails_at_export" in step for step in failed[0]["trace"])
    assert "Quill" not in json.dumps(lines)
