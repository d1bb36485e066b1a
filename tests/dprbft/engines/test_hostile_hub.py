"""A hub that sends anything to a real node: `python -m benchmarks.hostile_hub` at a small size."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.hostile_hub.attack import Outcome, attacked
from benchmarks.hostile_hub.drafts import Draft
from benchmarks.hostile_hub.episodes import Attack
from benchmarks.hostile_hub.nodes import Heard, NodeHere
from benchmarks.hostile_hub.sites import KINDS, Kind
from dprbft.engines.frames import Request, new_nonce
from dprbft.engines.node import daemon

SEED = 3
"""Of an attack that asks whether a value is in the table, and for whole runs."""


def told(outcome: Outcome) -> str:
    return "\n".join(str(f) for f in outcome.failures)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "messages",
    [pytest.param(30, marks=pytest.mark.slow), pytest.param(150, marks=pytest.mark.thorough)],
)
def test_a_hostile_hub_learns_and_breaks_nothing(messages: int, kind: Kind, tmp_path: Path):
    methods = {"table": ["joined", "local"], "pictures": ["fedavg", "local"]}[kind]
    outcome = attacked(tmp_path, kind, messages, SEED, processes=False, methods=methods)
    assert not outcome.failures, told(outcome)
    assert outcome.messages == messages
    assert outcome.granted
    assert outcome.charges
    assert outcome.codes["REFUSED"] > messages // 8


@pytest.mark.thorough
def test_the_same_of_nodes_in_processes_of_their_own(tmp_path: Path):
    outcome = attacked(tmp_path, "table", 60, seed=5)
    assert not outcome.failures, told(outcome)
    assert outcome.codes["closed"]


def test_one_seed_gives_one_attack():
    request = Request("r", "north", 0, "round", new_nonce(), b"xyz" * 9)
    hello = replace(request, verb="ready", content=b"")
    attacks = [list(Attack({"m": [hello, request]}, 1).messages(40)) for _ in range(2)]
    first, second = [[(str(m), len(m.frame)) for m in messages] for messages in attacks]
    assert first == second


def test_a_draft_that_nobody_changed_is_the_request():
    request = Request("r", "north", 0, "round", new_nonce(), b"xyz")
    again = Request.from_bytes(Draft.of(request).to_bytes())
    assert replace(again, nonce=request.nonce) == request


@pytest.mark.slow
def test_a_difference_between_the_two_nodes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A node that answers otherwise where a row is there fails the attack."""
    ask = NodeHere.heard

    def planted(node: NodeHere, frame: bytes, seconds: float) -> Heard:
        heard, more = ask(node, frame, seconds), node.owned.site.parent.name == "b"
        return replace(heard, size=heard.size + 1) if more and heard.code == "DONE" else heard

    monkeypatch.setattr(NodeHere, "heard", planted)
    outcome = attacked(tmp_path, "table", 12, 3, processes=False, methods=["local"])
    assert {"size"} <= {f.kind for f in outcome.failures}


@pytest.mark.slow
def test_an_error_at_a_node_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A node that fails at the first message of a run fails the attack."""
    ask = NodeHere.heard

    def planted(node: NodeHere, frame: bytes, seconds: float) -> Heard:
        assert node.node is not None
        with monkeypatch.context() as only:
            only.setattr(daemon, "serve", lambda *request: 1 / 0)
            return ask(node, frame, seconds)

    monkeypatch.setattr(NodeHere, "heard", planted)
    outcome = attacked(tmp_path, "table", 12, 3, processes=False, methods=["local"])
    assert "unknown code" in {f.kind for f in outcome.failures}
