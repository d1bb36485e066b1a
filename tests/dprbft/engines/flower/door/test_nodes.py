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


def test_who_is_named_no_more_or_has_another_key_is_let_out(nodes: Nodes):
    first, second, third = (public_of(new_key()) for _ in range(3))
    assert nodes.register({"north": first, "south": second}) == []
    ids = {name: info.node_id for name, info in nodes.infos().items()}
    assert nodes.register({"north": first, "south": third}) == [ids["south"]]
    assert nodes.infos()["north"].node_id == ids["north"]
    assert nodes.infos()["south"].public_key == third
    assert nodes.register({"south": third}) == [ids["north"]]
    assert set(nodes.states()) == {"south"}


def test_a_key_is_one_site_s_and_no_other_s(nodes: Nodes):
    public = public_of(new_key())
    nodes.register({"north": public})
    for keys in ({"north": public, "west": public}, {"north": public, "west": b"no key"}):
        with pytest.raises(BadInput, match="expected a key of site west"):
            nodes.register(keys)
    assert set(nodes.states()) == {"north"}
