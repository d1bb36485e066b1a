"""Keys and nodes in Flower's own state."""

import datetime
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from dprbft.engines.flower.door.nodes import Nodes
from dprbft.secure_sum.identity import flower_headers, new_key, public_of
from panas.runtime.errors import BadInput


@pytest.fixture
def nodes() -> Nodes:
    state = InMemoryLinkState(NoOpFederationManager(), ObjectStoreFactory().store())
    made = Nodes()
    made.app = SimpleNamespace(
        state=SimpleNamespace(linkstate_factory=SimpleNamespace(state=lambda: state))
    )
    return made


def now(seconds: float = 0.0) -> str:
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)).isoformat()


def test_a_registered_key_is_a_node_by_the_name_of_its_site(nodes: Nodes):
    key, other = new_key(), new_key()
    nodes.register({"north": public_of(key)})
    assert nodes.states() == {"north": "registered"}
    node = nodes.node_of(flower_headers(key, now(1.5)))
    assert node == nodes.infos()["north"].node_id
    assert nodes.node_of(flower_headers(other, now())) is None
    assert nodes.node_of({}) is None
    assert nodes.skews() == {"north": pytest.approx(1.5, abs=0.5)}


def test_a_key_is_registered_once_and_for_one_site(nodes: Nodes):
    public = public_of(new_key())
    nodes.register({"north": public})
    nodes.register({"north": public, "south": public_of(new_key())})
    assert set(nodes.states()) == {"north", "south"}
    for keys in ({"north": public, "west": public}, {"west": b"no key"}):
        with pytest.raises(BadInput, match="expected a key of site west"):
            nodes.register(keys)
        assert "north" in nodes.states()


def test_a_site_that_is_named_no_more_and_an_old_key_are_let_in_no_more(nodes: Nodes):
    gone = list[int]()
    nodes.gone = gone.append
    north, south, west = new_key(), new_key(), new_key()
    first = {"north": public_of(north), "south": public_of(south), "west": public_of(west)}
    nodes.register(first)
    known = {name: int(info.node_id) for name, info in nodes.infos().items()}
    for key in (north, south, west):
        assert nodes.node_of(flower_headers(key, now())) is not None
    renewed = new_key()
    nodes.register({"north": public_of(renewed), "west": first["west"]})
    assert gone == [known["north"], known["south"]]
    assert nodes.states().keys() == {"north", "west"}
    assert nodes.skews().keys() == {"west"}
    assert nodes.infos()["west"].node_id == known["west"]
    for key, is_in in ((north, False), (south, False), (west, True), (renewed, True)):
        assert (nodes.node_of(flower_headers(key, now())) is not None) == is_in
    with pytest.raises(BadInput, match="expected a key of site south that no other has, or has"):
        nodes.register({"west": first["west"], "south": first["south"]})
    assert nodes.states().keys() == {"west"}


def test_a_node_that_was_killed_can_connect_anew(nodes: Nodes):
    nodes.register({"north": public_of(new_key())})
    state, node = nodes._state, nodes.infos()["north"].node_id
    assert state.activate_node(node, 30.0)
    assert not state.activate_node(node, 30.0)
    nodes.sign_off(node)
    assert state.activate_node(node, 30.0)
    assert nodes.states() == {"north": "online"}


def test_a_reply_has_come_once_all_its_parts_have(nodes: Nodes, monkeypatch: pytest.MonkeyPatch):
    kept = {"r": b"root", "p": b""}
    monkeypatch.setattr(nodes._state.object_store, "get", kept.get)
    assert nodes.has(["r"])
    assert not nodes.has(["r", "p"])
    assert not nodes.has(["r", "unknown"])
