"""What a hub counts of its runs, and the lines that it writes."""

import json
from pathlib import Path

import pytest
from elsewhere import InThread, hub_config, make_sites
from exposition import read_metrics, value_of

from dprbft.config.hub import HubSettings
from dprbft.engines.flower.door.nodes import Nodes
from dprbft.engines.flower.door.sockets import Hall
from dprbft.engines.flower.door.watching import Watching
from dprbft.engines.watch import hub
from dprbft.engines.watch.hub import RunEvent, count
from dprbft.engines.watch.metrics import Metrics
from dprbft.run.directory import Ground, prepare
from dprbft.run.exchange import exchange
from dprbft.run.hub import Wire, open_hub
from dprbft.run.stages import begin
from panas.runtime.errors import BadInput

CALL = RunEvent(
    kind="call",
    run="first",
    verb="round",
    down=100,
    up=7,
    codes={"a": "DONE", "b": "REFUSED", "c": "ABSENT"},
)


def test_an_event_crosses_as_bytes():
    for event in (CALL, RunEvent(kind="round_ended", run="r", round=2, seconds=0.5)):
        assert RunEvent.from_bytes(event.to_bytes()) == event
    for junk in (b"", b"[]", b"{", b'{"kind": "call"}', b'{"kind": "call", "run": "r", "x": 1}'):
        with pytest.raises(BadInput, match="expected an event"):
            RunEvent.from_bytes(junk)


def test_a_call_is_counted_by_site_verb_and_code():
    metrics = Metrics(hub.FAMILIES)
    count(metrics, CALL)
    text = metrics.text()
    assert value_of(text, hub.BYTES.name, direction="out", verb="round") == 100
    assert value_of(text, hub.BYTES.name, direction="in", verb="round") == 7
    assert value_of(text, hub.ANSWERS.name, site="b", verb="round", code="REFUSED") == 1
    assert value_of(text, hub.ABSENT.name, site="c") == 1
    assert value_of(text, hub.REFUSED.name, by="site", kind="refused") == 1
    assert value_of(text, hub.BEGUN.name) == 0


def test_a_call_is_one_line_and_each_site_that_refused_one_more():
    call, refused, absent = CALL.lines()
    assert (call.level, call.about["asked"], call.about["done"]) == ("info", 3, 1)
    assert (refused.event, refused.level, refused.about["site"]) == ("site refused", "warning", "b")
    assert (absent.event, absent.about["site"]) == ("site absent", "c")


class Known(Nodes):
    """Nodes without Flower."""

    def __init__(self) -> None:
        super().__init__()
        self.now = {"a": "online", "b": "offline"}

    def states(self) -> dict[str, str]:
        return self.now

    def skews(self) -> dict[str, float]:
        return {"a": -0.5}


def test_the_port_and_the_sites_are_looked_at_when_asked(tmp_path: Path):
    hall, nodes, lost = Hall(), Known(), list[str]()
    watching = Watching(tmp_path / "hub.log", nodes, hall, lost.append)
    hall.closed["idle"] += 3
    watching.heard(CALL)
    text = watching.text()
    assert value_of(text, hub.SITES.name) == 2
    assert value_of(text, hub.CONNECTED.name, site="a") == 1
    assert value_of(text, hub.CONNECTED.name, site="b") == 0
    assert value_of(text, hub.SKEW.name, site="a") == -0.5
    assert value_of(text, hub.REFUSED.name, by="port", kind="idle") == 3
    del nodes.now["b"]  # it was removed
    series = read_metrics(watching.text())
    assert (hub.CONNECTED.name, frozenset({("site", "b")})) not in series
    lines = [json.loads(line) for line in (tmp_path / "hub.log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["call", "site refused", "site absent"]
    assert lost == []
    (tmp_path / "hub.log").unlink()
    Watching(tmp_path / "none" / "hub.log", Known(), hall, lost.append).heard(CALL)
    assert "hub.log could not be written" in lost[0]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[RunEvent], Path]:
    """What is told of a run up to its shared head: b refuses, and c answers once too often."""
    folder = tmp_path_factory.mktemp("watched")
    places, events = make_sites(folder), list[RunEvent]()
    path = places["b"] / "site.toml"
    path.write_text(path.read_text().replace("moments", "class_sums"))

    def change(site: str, verb: str, answer: bytes) -> bytes:
        return b"" if (site, verb) == ("c", "round") else answer

    run, config = folder / "trial", hub_config(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PANAS_STATE", str(folder / "state"))  # other tests have sites of these keys
        prepare(run, config, resume=False)
        settings = HubSettings(names=("a", "b", "c"), minimum=1)
        wire = Wire(InThread(places, change), watch=events.append)
        opened = open_hub(run, config, settings, wire)
        there = begin(opened, Ground.of(run))
        exchange(opened, frozenset(there))
    return events, folder


def of_kind(events: list[RunEvent], kind: str) -> list[RunEvent]:
    return [event for event in events if event.kind == kind]


@pytest.mark.slow
def test_a_run_is_told_of_round_by_round(seen: tuple[list[RunEvent], Path]):
    events, _ = seen
    (begun,), (ended,) = of_kind(events, "round_begun"), of_kind(events, "round_ended")
    assert (begun.round, ended.round, begun.run) == (1, 1, "trial")
    assert 0 < ended.seconds < 60
    assert events.index(begun) < events.index(ended)
    calls = {event.verb: event for event in of_kind(events, "call")}
    assert calls["hello"].codes == {"a": "DONE", "b": "REFUSED", "c": "DONE"}
    assert calls["round"].codes == {"a": "DONE", "c": "ABSENT"}
    assert min(calls["round"].down, calls["round"].up) > 1000
    (refused,) = of_kind(events, "refused")
    assert (refused.site, refused.verb, refused.late) == ("c", "round", False)
    assert refused.reason.startswith("expected an answer")


@pytest.mark.slow
def test_nothing_of_a_site_or_a_path_is_in_what_a_hub_counts_or_writes(
    seen: tuple[list[RunEvent], Path],
):
    events, folder = seen
    metrics = Metrics(hub.FAMILIES)
    for event in events:
        count(metrics, event)
    lines = "".join(line.json() for event in events for line in event.lines())
    for text in (metrics.text(), lines):
        assert str(folder) not in text
        assert ".npz" not in text
    assert read_metrics(metrics.text())
