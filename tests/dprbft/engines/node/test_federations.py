"""A site of two federations: one ledger, a part of the budget for each hub, nothing mixed up."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from node_sites import Hub, code_of, everything, hub_of

from dprbft.engines.frames import Answer
from dprbft.engines.node import listen
from dprbft.engines.node.call import SOCKET, ask
from dprbft.engines.node.daemon import KEY, LOG, Node, Served
from dprbft.messages import Code
from dprbft.secure_sum.identity import new_key, public_of, verify
from dprbft.site.directory import read_site, site_ledger
from dprbft.site.federations import membership, memberships
from panas.runtime.errors import BadInput
from panas.runtime.store import write_json


def allow(site: Path, text: str) -> None:
    """Let the owner write more into site.toml."""
    path = site / "site.toml"
    path.write_text(f"{path.read_text()}\n{text}\n")


@pytest.fixture
def trial(site: Path, tmp_path: Path) -> Path:
    """The folder of a second federation, whose hub may have epsilon 2."""
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / KEY).write_bytes(new_key())
    write_json(folder / "federation.json", {"site": "clinic", "hub": "h:1", "sites": {}})
    allow(site, '[federation.trial]\nfolder = "../trial"\nepsilon = 2.0')
    return folder


@pytest.fixture
def second(site: Path, trial: Path, told: list[Served]) -> Node:
    """What answers the second federation's hub."""
    _, member = memberships(site, read_site(site).federation)
    return Node({member.site(): site}, tell=told.append, member=member)


def other_hub(root: Path, site: Path, epsilon: float) -> Hub:
    """The second federation's hub, with a run of the name that the first one has used, too."""
    root.mkdir()
    return hub_of(root, [site], epsilon=epsilon)


def as_clinic(hub: Hub, verb: str) -> bytes:
    """A request of the second federation's hub, where the site is called clinic."""
    return replace(hub.request(verb), site="clinic").to_bytes()


def test_both_hubs_charge_one_ledger_and_their_runs_of_one_name_are_two(
    node: Node, second: Node, hub: Hub, site: Path, tmp_path: Path
):
    assert code_of(node, hub.request("hello")) is Code.DONE
    assert code_of(second, as_clinic(other_hub(tmp_path / "b", site, 2.0), "hello")) is Code.DONE
    shares = site_ledger(site).account().shares
    assert {run: share.epsilon for run, share in shares.items()} == {
        "trial-1": 4.0,
        "trial:trial-1": 2.0,
    }
    assert {p.name for p in (site / "runs").iterdir()} == {"trial-1", "trial:trial-1"}
    assert '"run": "trial:trial-1"' in (site / LOG).read_text()


def test_a_hub_that_asks_for_more_than_its_part_is_refused_and_the_other_is_not(
    node: Node, second: Node, hub: Hub, site: Path, told: list[Served], tmp_path: Path
):
    greedy = other_hub(tmp_path / "b", site, 2.5)
    before = everything(site)
    assert code_of(second, as_clinic(greedy, "hello")) is Code.NO_BUDGET
    assert "which is left of 2 for hub trial (site.toml), got 2.5" in told[-1].reason
    assert everything(site).keys() - before.keys() <= {"ledger.jsonl", "ledger.head"}
    assert code_of(node, hub.request("hello")) is Code.DONE


def test_no_hub_goes_on_with_a_run_of_another(
    node: Node, second: Node, hub: Hub, told: list[Served]
):
    assert code_of(node, hub.request("hello")) is Code.DONE
    assert code_of(second, as_clinic(hub, "ready")) is not Code.DONE
    assert "that the site has joined" in told[-1].reason
    for name in ("north", "clinic"):
        right, wrong = (node, second) if name == "north" else (second, node)
        request = replace(hub.request("hello"), site=name).to_bytes()
        assert code_of(wrong, request) is Code.ABSENT
        assert code_of(right, request) is not Code.ABSENT
    with pytest.raises(BadInput, match="give names of at most 64"):
        replace(hub.request("ready"), run="trial:trial-1")


def test_each_federation_has_a_signature_of_its_own(
    second: Node, trial: Path, site: Path, tmp_path: Path
):
    (site / KEY).write_bytes(new_key())
    frame = second.answer(as_clinic(other_hub(tmp_path / "b", site, 2.0), "hello"))
    assert frame is not None
    answer = Answer.from_bytes(frame)
    own, theirs = (public_of((folder / KEY).read_bytes()) for folder in (site, trial))
    assert verify(theirs, answer.signed_part(), answer.signature)
    assert not verify(own, answer.signed_part(), answer.signature)


def test_a_federation_that_the_owner_has_struck_out_gets_nothing_more(
    second: Node, site: Path, told: list[Served], tmp_path: Path
):
    hub = other_hub(tmp_path / "b", site, 2.0)
    assert code_of(second, as_clinic(hub, "hello")) is Code.DONE
    path = site / "site.toml"
    path.write_text(path.read_text().replace("[federation.trial]", "[federation.other]"))
    for verb in ("hello", "ready"):
        assert code_of(second, as_clinic(hub, verb)) is Code.REFUSED
        assert "expected [federation.trial] in site.toml" in told[-1].reason


def test_the_hub_of_the_own_folder_may_have_a_part_too(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    allow(site, "[federation.first]\nepsilon = 3.0")
    assert code_of(node, hub.request("hello")) is Code.NO_BUDGET
    assert "left of 3 for hub first" in told[-1].reason


def test_sections_that_cannot_be_are_refused(site: Path, trial: Path):
    path = site / "site.toml"
    text = path.read_text()
    for more, told in (
        ('[federation."a:b"]', "a:b"),
        ("[federation.x]\n[federation.y]", "one federation of folder"),
        ("[federation.x]\nepsilon = 0", "greater than 0"),
        ("[federation.x]\nshare = 1", "share"),
    ):
        path.write_text(f"{text}\n{more}\n")
        with pytest.raises(BadInput, match=told):
            read_site(site)
    for more in ('folder = "../trial"', f'folder = "{site}"'):
        path.write_text(f"{text}\n[federation.x]\n{more}\n")
        with pytest.raises(BadInput, match="got one twice"):
            memberships(site, read_site(site).federation)
    path.write_text(text)
    (trial / "federation.json").unlink()
    named = read_site(site).federation
    assert membership(site, named, "run").is_own  # the site's own federation goes on
    with pytest.raises(BadInput, match=r"\[federation.trial\] of site.toml names"):
        membership(site, named, "trial:run").site()


def test_one_process_answers_at_a_socket_for_each_federation(
    node: Node, second: Node, hub: Hub, site: Path, trial: Path, tmp_path: Path
):
    ready = threading.Event()
    sockets = (node, site / SOCKET, ready.set, [(second, trial / SOCKET)])
    threading.Thread(target=listen.run_node, args=sockets, daemon=True).start()
    assert ready.wait(10)
    theirs = as_clinic(other_hub(tmp_path / "b", site, 2.0), "hello")
    for path, request in ((site, hub.request("hello").to_bytes()), (trial, theirs)):
        assert (path / SOCKET).stat().st_mode & 0o777 == 0o600
        assert Answer.from_bytes(ask(path / SOCKET, request, 20)).code == Code.DONE
