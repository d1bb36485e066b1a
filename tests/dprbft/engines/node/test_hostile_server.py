"""A server that asks for what it must not have: refused at the site, and nothing is left of it."""

import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_sites import CLASSES, Hub, code_of, everything, hub_of, owned_site

from dprbft.config.schema import RunConfig
from dprbft.engines.frames import Request, sha256
from dprbft.engines.node.daemon import Node, Served
from dprbft.engines.node.public import begun_elsewhere
from dprbft.messages import Broadcast, Code, Hello, facts_text
from dprbft.methods.serve import SILENT
from dprbft.paths import ledger_file, map_file, settings_file
from dprbft.site.joining import join
from panas.features.map import common_map, write_map
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas.runtime.store import pack_tensors
from panas.training.distillation import SHORT_STEPS, STEPS

WIDTH = 16


@pytest.fixture
def hub(tmp_path: Path, site: Path) -> Hub:
    return hub_of(tmp_path, [site], network="stays")


def head(round: int = 0, classes: int = CLASSES, value: float = 0.0) -> bytes:
    weight = torch.full((classes, WIDTH), value)
    return Broadcast(round, weight, torch.zeros(classes)).to_bytes()


def hello_with(hub: Hub, *, to: dict[str, Any] | None = None, **changes: Any) -> Request:
    """A hello of other settings, by section and key, or with other fields."""
    request = hub.request("hello")
    hello = Hello.from_bytes(request.content)
    if to is not None:
        record = json.loads(hello.config)
        for section, values in to.items():
            record[section] = (record[section] | values) if isinstance(values, dict) else values
        changes["config"] = RunConfig.model_validate(record).model_dump_json()
    return replace(request, content=replace(hello, **changes).to_bytes())


def entries(site: Path) -> list[str]:
    return [e.id for e in Ledger(ledger_file(site)).account().entries]


POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"methods": ["dprbft", "fedavg"]}, "got joined"),
    ({"releases": ["moments"]}, "sends moments and label-histogram"),
    ({"releases": []}, "allows, got a run that sends"),
    ({"epsilon_per_run": 3.9}, "epsilon 3.9 at most"),
    ({"versions": ["0.0", "99"]}, "led by panas 0.0 or 99"),
    ({"trust": "secure-sum"}, "got one without"),
]


@pytest.mark.parametrize(("policy", "why"), POLICIES)
def test_what_the_owner_does_not_allow_is_refused_with_a_reason_there_alone(
    policy: dict[str, Any], why: str, tmp_path: Path
):
    told: list[Served] = []
    site = owned_site(tmp_path / "north", **policy)
    hub, before = hub_of(tmp_path, [site]), everything(site)
    assert code_of(Node({"north": site}, tell=told.append), hub.request("hello")) is Code.REFUSED
    assert why in told[-1].reason
    assert everything(site) == before
    assert not (site / "runs").exists()


@contextmanager
def decided(site: Path, **policy: Any) -> Iterator[None]:
    """The owner's settings with other lines, for a while."""
    path = settings_file(site)
    before = path.read_text()
    path.write_text(tomli_w.dumps(tomllib.loads(before) | policy))
    yield
    path.write_text(before)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "why"), [*POLICIES, ({"epsilon": 5.0}, "budget for life")])
def test_what_the_owner_forbids_later_is_refused_from_then_on(
    policy: dict[str, Any],
    why: str,
    node: Node,
    hub: Hub,
    site: Path,
    told: list[Served],
    watched: list[str],
):
    assert code_of(node, hub.request("hello")) is Code.DONE
    verbs = {"ready": head(), "round": head(), "finish": head(1), "search": b"", "train": b""}
    watched.clear()
    with decided(site, **policy):
        for verb, content in verbs.items():
            assert code_of(node, hub.request(verb, content)) is Code.REFUSED
            assert why in told[-1].reason
    assert not [path for path in watched if path.endswith(("data.npz", "releases"))]
    assert entries(site) == []
    assert code_of(node, hub.request("round", head())) is Code.DONE
    with decided(site, **policy):  # also what was sent once is not sent again
        assert code_of(node, hub.request("round", head())) is Code.REFUSED
        assert code_of(node, hub.request("export")) is Code.REFUSED


@pytest.mark.slow
def test_what_the_owner_allows_is_joined(tmp_path: Path):
    allowed = {"methods": ["joined"], "epsilon_per_run": 4.0, "versions": ["0"]}
    site = owned_site(tmp_path / "north", **allowed)
    assert code_of(Node({"north": site}), hub_of(tmp_path, [site]).request("hello")) is Code.DONE


SUMMED = {"trust": "secure-sum", "network": "protected"}


@pytest.mark.parametrize(("least", "code"), [(4, Code.DONE), (5, Code.REFUSED)])
def test_a_sum_over_too_few_sites_is_refused_where_the_owner_wants_more(
    least: int, code: Code, tmp_path: Path
):
    site = owned_site(tmp_path / "north", trust="secure-sum", secure_minimum=least)
    hub = hub_of(tmp_path, [site])
    among = {"sites": [], "remote": ["north", "b", "c", "d"], "clients": 4, "secure_minimum": 4}
    request = hello_with(hub, to={"federation": among, "privacy": SUMMED})
    assert code_of(Node({"north": site}), request) is code


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize(
    ("least", "missing", "code"),
    [(1, None, Code.DONE), (2, None, Code.REFUSED), (2, 2, Code.DONE), (1, 0, Code.REFUSED)],
)
def test_a_sum_that_bears_fewer_colluding_sites_than_the_owner_asks_for_is_refused(
    trust: str, least: int, missing: int | None, code: Code, tmp_path: Path
):
    told: list[Served] = []
    site = owned_site(tmp_path / "north", trust=trust, secure_missing=least)
    names = ["north", *"bcdefgh"]  # by rule one of eight
    among: dict[str, Any] = {"sites": [], "remote": names, "clients": 8, "secure_missing": missing}
    request = hello_with(hub_of(tmp_path, [site]), to={"federation": among, "privacy": SUMMED})
    assert code_of(Node({"north": site}, tell=told.append), request) is code
    if code is Code.REFUSED:
        reason = told[-1].reason
        assert f"at least {least} sites may help the server" in reason
        assert f"got {missing or least - 1}; raise federation.secure_missing" in reason
        assert "\n" not in reason


def test_a_secure_sum_must_name_the_sites_whose_keys_are_known(
    node: Node, hub: Hub, told: list[Served]
):
    unnamed = {"remote": [], "clients": 4, "secure_minimum": 4}
    request = hello_with(hub, to={"federation": unnamed, "privacy": SUMMED})
    assert code_of(node, request) is Code.REFUSED
    assert "federation.remote" in told[-1].reason
    among = unnamed | {"remote": ["north", "b", "c", "d"]}
    request = hello_with(hub, to={"federation": among, "privacy": SUMMED})
    assert code_of(node, request) is Code.DONE
    assert code_of(node, hub.request("ready")) is Code.REFUSED  # the site has no keys
    assert "node.key" in told[-1].reason


@pytest.mark.slow
def test_a_run_that_began_without_a_file_gets_none_later(node: Node, hub: Hub, told: list[Served]):
    full, path = hub.request("hello"), hub.run.with_suffix(".map")
    write_map(path, common_map(hub.view.facts, *[hub.view.facts.no_samples()] * 2, WIDTH))
    made = sha256(path.read_bytes())
    less = hello_with(hub, public="", map=made)
    assert code_of(node, replace(less, files={})) is Code.DONE
    assert code_of(node, full) is Code.REFUSED
    assert "has begun with" in told[-1].reason


def test_a_run_that_was_begun_on_this_machine_is_not_a_hubs(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    join(hub.view.sites[0], hub.view.hello(0))  # as `panas run` does it here
    before = everything(site)
    for verb, content in (("ready", head()), ("round", head()), ("search", b"")):
        assert code_of(node, hub.request(verb, content)) is Code.REFUSED
        assert "begun on this machine" in told[-1].reason
    assert everything(site) == before
    own = Node({"north": site}, shared=hub.run)
    assert code_of(own, hub.request("ready", head())) is Code.DONE


def test_a_site_keeps_its_number_in_a_run(node: Node, hub: Hub, told: list[Served]):
    two = {"federation": {"remote": ["north", "south"], "clients": 2}}
    assert code_of(node, hello_with(hub, to=two)) is Code.DONE
    request = replace(hello_with(hub, to=two, site=1), number=1)
    assert code_of(node, request) is Code.REFUSED
    assert "another name of the run" in told[-1].reason


def test_an_unknown_method_in_site_toml_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="to be of"):
        owned_site(tmp_path / "north", methods=["fedall"])


@pytest.mark.parametrize(
    "change",
    [
        {"config": "{}"},
        {"config": "no json"},
        {"config": "[" * 5000},
        {"facts": "{}"},
        {"facts": '{"class_names":1}'},
        {"public": "/etc/passwd"},
        {"map": "../../site.toml"},
        {"unlabelled": "unlabelled"},  # which did not come along
        {"public": ""},  # and came along all the same
        {"run": "trial-2"},
        {"site": 1},
    ],
)
def test_a_hello_of_other_parts_is_refused(
    change: dict[str, Any], node: Node, hub: Hub, site: Path, told: list[Served]
):
    before = everything(site)
    assert code_of(node, hello_with(hub, **change)) is Code.REFUSED
    assert everything(site) == before
    assert told[-1].reason.startswith("expected")


def other_facts(hub: Hub, **changes: Any) -> str:
    return json.dumps(json.loads(facts_text(hub.view.facts)) | changes, sort_keys=True)


LARGE: list[dict[str, Any]] = [
    {"network": {"features": 10**6}},
    {"network": {"width": 10**6}},
    {"search": {"widths": [10**6]}},
    {"search": {"max_blocks": 10**4}},
    {"seed": 1 << 70},
]
"""Of a run larger than any that serves."""
FACTS: list[dict[str, Any]] = [
    {"bits": 9},  # at 4a98628 eight hellos with 9 to 16 bits told the brightest private pixel
    {"bits": 64},
    {"dtype": "float32"},
    {"unit": False},
    {"shape": [1, 4, 16]},
    {"shape": [1, 1 << 20, 1 << 20]},
    {"shape": [1, 8, -8]},
    {"shape": "1, 8, 8"},
    {"class_names": ["0", "1", "2"]},
    {"class_names": ["0", "1", "2", "3", "3"]},
    {"class_names": 4},
    {"columns": [{"name": "a", "kind": "number", "centre": 0.0, "reach": 0.0}]},
    {"columns": 3},
]
"""Other than the owner's."""
TURNS: list[dict[str, Any]] = [
    {
        "federation": {"remote": [], "clients": clients, "method": "dprbft", "rounds": 100},
        "privacy": {"network": "protected"},
        "network": {"features": None},
        "search": {"student_steps": SHORT_STEPS},
        "training": {"student_steps": STEPS},
    }
    for clients in (10**9, 10**6)
]
"""Of a run of more turns than memory."""
NOWHERE: list[dict[str, Any]] = [
    {"federation": {"remote": []} | instead, **settings}
    for instead in ({}, {"client_data": ["x.npz"]}, {"sites": ["x"]})
    for settings in ({}, {"privacy": {"strict": True}})
]
"""Of a run that names no sites elsewhere."""


@pytest.mark.parametrize(
    ("settings", "facts", "why"),
    [
        *((large, {}, "of at most") for large in LARGE),
        *(({}, facts, "expected") for facts in FACTS),
        *((settings, {}, "expected") for settings in (*NOWHERE, *TURNS)),
        ({"privacy": {"allow_unprotected": True}}, {}, "allow_unprotected"),
    ],
    ids=str,
)
def test_what_cannot_be_a_run_of_this_site_is_refused_unread(
    settings: dict[str, Any],
    facts: dict[str, Any],
    why: str,
    node: Node,
    hub: Hub,
    site: Path,
    told: list[Served],
    watched: list[str],
):
    before = everything(site)
    request = hello_with(hub, to=settings, facts=other_facts(hub, **facts))
    watched.clear()
    assert code_of(node, request) is Code.REFUSED
    assert why in told[-1].reason
    assert not [path for path in watched if path.endswith("data.npz")]
    assert everything(site) == before


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"{}", "map", "NaN", "30", "label"])
def test_public_files_that_do_not_fit_the_run_are_refused_and_not_kept(
    content: bytes | str, node: Node, hub: Hub, site: Path
):
    before, request = everything(site), hub.request("hello")
    if isinstance(content, str):
        content = _other_samples(hub, content)
    assert code_of(node, replace(request, files={"public": content})) is Code.REFUSED
    assert everything(site) == before


def _other_samples(hub: Hub, what: str) -> bytes:
    """A file that decodes, and does not fit the run."""
    if what == "map":
        return map_file(hub.run).read_bytes()
    samples = hub.view.public
    tensors = {"x": samples.x, "y": samples.y}
    if what == "label":
        tensors["y"] = torch.full_like(samples.y, samples.classes)
    else:
        tensors["x"] = torch.full(samples.x.shape, float(what))
    return pack_tensors(tensors, {})


@pytest.mark.parametrize("map", ["", "0" * 64, "map"])
def test_a_map_that_is_not_the_one_made_by_rule_is_refused(
    map: str, node: Node, hub: Hub, site: Path, told: list[Served]
):
    before, request = everything(site), hub.request("hello")
    hello = replace(Hello.from_bytes(request.content), map=map)
    assert code_of(node, replace(request, content=hello.to_bytes())) is Code.REFUSED
    assert "feature map" in told[-1].reason
    assert everything(site) == before


def test_no_map_of_a_hub_reaches_a_site(node: Node, hub: Hub, site: Path):
    request = hub.request("hello")
    assert set(request.files) == {"public"}
    assert code_of(node, request) is Code.DONE
    made = site / "runs/trial-1/public/map.safetensors"
    assert made.read_bytes() == map_file(hub.run).read_bytes()
    files = {**request.files, "map": map_file(hub.run).read_bytes()}
    assert code_of(node, replace(request, files=files)) is Code.REFUSED


OPENED: list[str] = []
WATCHING: list[bool] = []


def _note_opened(event: str, arguments: Any) -> None:
    if WATCHING and event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename"):
        OPENED.append(str(arguments[0]))


@pytest.fixture
def watched() -> Iterator[list[str]]:
    """All paths that this process opens, lists or makes."""
    if not OPENED:
        sys.addaudithook(_note_opened)
    OPENED.clear()
    WATCHING.append(True)
    yield OPENED
    WATCHING.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    "named",
    [
        {"data": {"public_data": "PLANTED/secret.npz"}},
        {"data": {"unlabelled_data": "PLANTED/secret.npz"}},
        {"data": {"dataset": "PLANTED/secret.npz", "data_root": "PLANTED"}},
        {"federation": {"facts": "PLANTED/facts.json"}},
    ],
)
def test_no_path_in_a_runs_settings_is_opened_at_a_site(
    named: dict[str, Any], node: Node, hub: Hub, site: Path, tmp_path: Path, watched: list[str]
):
    owned_site(tmp_path / "planted-here")
    (tmp_path / "planted-here" / "secret.npz").write_bytes(
        (tmp_path / "planted-here" / "data.npz").read_bytes()
    )
    text = json.dumps(named).replace("PLANTED", str(tmp_path / "planted-here"))
    request = hello_with(hub, to=json.loads(text))
    watched.clear()
    assert code_of(node, request) is Code.DONE
    assert code_of(node, hub.request("round", head())) is Code.DONE
    assert any(str(site) in path for path in watched)
    assert [path for path in watched if "planted-here" in path] == []


@pytest.mark.slow
def test_a_hub_does_not_learn_by_refusals_what_samples_have_cost_elsewhere(tmp_path: Path):
    """Whether samples that another ledger was charged for are refused, their owner decides."""
    sites = {name: owned_site(tmp_path / name) for name in ("north", "lax", "strict")}
    codes = {}
    for name, policy in ("north", {}), ("lax", {}), ("strict", {"strict": True}):
        (root := tmp_path / f"hub-{name}").mkdir()
        hub, node = hub_of(root, [sites[name]], network="stays", strict=True), Node(sites)
        with decided(sites[name], **policy):
            codes[name] = code_of(node, hub.request("hello"))
        if name == "north":
            assert code_of(node, hub.request("round", head())) is Code.DONE
    assert codes == {"north": Code.DONE, "lax": Code.DONE, "strict": Code.ABSENT}


def test_a_run_without_files_that_was_begun_here_is_not_a_hubs(hub: Hub):
    paths, hello = hub.view.sites[0], Hello.from_bytes(hub.view.hello(0))
    bare = replace(hello, public="", unlabelled="", map="")
    assert not begun_elsewhere(paths, bare)


def test_a_round_is_answered_once_and_for_one_broadcast_of_the_right_shape(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    assert code_of(node, hub.request("round", head())) is Code.REFUSED  # before any hello
    assert not (site / "runs").exists()
    assert code_of(node, hub.request("hello")) is Code.DONE
    for wrong in (head(classes=5), head(value=float("nan")), head(round=1), b"", b"x" * 100):
        assert code_of(node, hub.request("round", wrong)) is Code.ABSENT
    assert code_of(node, hub.request("round", head(), number=1)) is Code.REFUSED
    assert entries(site) == []
    assert code_of(node, hub.request("round", head())) is Code.DONE
    paid = entries(site)
    assert paid
    assert code_of(node, hub.request("round", head(value=1.0))) is Code.ABSENT
    assert "another" in told[-1].reason
    assert code_of(node, hub.request("round", head())) is Code.DONE
    assert code_of(node, hub.request("leave")) is Code.DONE  # too late: it changes nothing
    assert (site / "runs" / "trial-1" / "run.json").exists()
    assert entries(site) == paid


def named(hub: Hub, run: str, epsilon: float = 4.0) -> Request:
    """A hello of a run of another name."""
    request = hello_with(hub, to={"privacy": {"epsilon": epsilon}}, run=run)
    return replace(request, run=run)


def left(request: Request) -> Request:
    """The leave after a hello."""
    return replace(request, verb="leave", files={})


@pytest.mark.slow
def test_a_hub_cannot_fill_the_ledger_with_names(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    with decided(site, run_limit=3):
        for run in ("one", "two"):
            assert code_of(node, named(hub, run)) is Code.DONE
        assert code_of(node, left(named(hub, "two"))) is Code.DONE
        assert code_of(node, named(hub, "two", 3.0)) is Code.DONE  # another share: another line
        before = everything(site)
        for request in (named(hub, "three"), named(hub, "three", 0.5)):
            assert code_of(node, request) is Code.REFUSED
            assert "at most 3 beginnings of runs" in told[-1].reason
        assert everything(site) == before
        assert code_of(node, left(named(hub, "two", 3.0))) is Code.DONE
        assert code_of(node, named(hub, "two")) is Code.REFUSED
        for run, share in (("one", 4.0), ("two", 3.0)):  # known ones go on
            assert code_of(node, named(hub, run, share)) is Code.DONE
    assert code_of(node, named(hub, "three")) is Code.DONE


@pytest.mark.slow
def test_a_run_that_charges_counts_once(node: Node, hub: Hub, site: Path):
    with decided(site, run_limit=2):
        assert code_of(node, hub.request("hello")) is Code.DONE
        assert code_of(node, hub.request("round", head())) is Code.DONE
        assert len(entries(site)) == 1
        assert code_of(node, named(hub, "second", 0.1)) is Code.DONE
        assert code_of(node, named(hub, "third", 0.1)) is Code.REFUSED


@pytest.mark.slow
def test_a_hub_cannot_fill_the_disk_with_public_files(
    node: Node, hub: Hub, site: Path, told: list[Served]
):
    assert code_of(node, named(hub, "one")) is Code.DONE
    each = sum(p.stat().st_size for p in (site / "runs").rglob("*") if p.is_file())
    with decided(site, disk_limit=1.1 * each / 2**30):
        before = everything(site)
        assert code_of(node, named(hub, "two")) is Code.REFUSED
        assert "disk_limit in site.toml" in told[-1].reason
        assert everything(site) == before
        assert code_of(node, named(hub, "one")) is Code.DONE
    computed = site / "runs/one/report.json"  # its size tells of the site's samples
    computed.write_bytes(bytes(10 * each))
    with decided(site, disk_limit=2.5 * each / 2**30):
        assert code_of(node, named(hub, "two")) is Code.DONE


def test_no_run_is_a_path(node: Node, hub: Hub, site: Path, tmp_path: Path):
    before = everything(tmp_path)
    for name in (b'"../abcd"', b'"/tmp/abc"', b'".hidden"', b'"a/b/c/d"'):
        frame = hub.request("hello").to_bytes().replace(b'"trial-1"', name[:8] + b'"')
        assert code_of(node, frame) is None
    with pytest.raises(BadInput):
        hub.request("hello", run="../x")
    assert everything(tmp_path) == before


FIELDS = ("run", "site", "verb", "nonce", "number", "message", "files", "type")
JUNK: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["../x", "trial-2", "hello", "train", "0" * 32, "public", {}, [], 0, 1, -1]),
    st.dictionaries(st.text(max_size=4), st.integers(-5, 5), max_size=2),
)


def mutated(frame: bytes, draw: Any) -> bytes:
    """A frame with some bytes, a field of its header, or a field of its message changed."""
    how = draw(st.sampled_from(["bytes", "header", "message", "cut"]))
    size = int.from_bytes(frame[:4], "big")
    if how == "bytes":
        at = draw(st.integers(0, min(len(frame) - 1, 4000)))
        return frame[:at] + draw(st.binary(max_size=4)) + frame[at + draw(st.integers(0, 4)) :]
    if how == "cut":
        return frame[: draw(st.integers(0, len(frame) - 1))]
    about = json.loads(frame[4 : 4 + size])
    rest = frame[4 + size :]
    if how == "header":
        about[draw(st.sampled_from(FIELDS))] = draw(JUNK)
    elif about["message"]:
        message, tail = rest[: about["message"]], rest[about["message"] :]
        try:
            record = json.loads(message)
        except ValueError:
            record = None
        if record is None:
            at = draw(st.integers(0, len(message) - 1))
            message = message[:at] + draw(st.binary(min_size=1, max_size=3)) + message[at + 1 :]
        else:
            record[draw(st.sampled_from(sorted(record)))] = draw(JUNK)
            message = json.dumps(record).encode()
        about["message"], rest = len(message), message + tail
    head = json.dumps(about, sort_keys=True, separators=(",", ":")).encode()
    return len(head).to_bytes(4, "big") + head + rest


def is_meant(frame: bytes, original: Request) -> bool:
    """Whether a mutant may be answered: it differs in nothing that counts, or in the head alone."""
    try:
        return _asks(Request.from_bytes(frame), original)
    except BadInput:
        return False


def _asks(found: Request, original: Request) -> bool:
    if found.verb == "leave" or (
        found.verb in ("ready", "finish") and found.number == original.number
    ):
        return True  # what they bring is looked at, and changes nothing here any more
    if found.verb == "hello" == original.verb:
        said = Hello.from_bytes(found.content), Hello.from_bytes(original.content)
        found = replace(found, content=replace(said[0], version=said[1].version).to_bytes())
    return replace(found, nonce=original.nonce) == original


@pytest.mark.slow
@pytest.mark.parametrize("examples", [60, 600])
def test_mutated_requests_are_refused_and_change_nothing(
    examples: int, node: Node, hub: Hub, site: Path, tmp_path: Path
):
    requests = [hub.request("hello"), hub.request("round", head()), hub.request("ready", head())]
    requests += [hub.request("finish", head(1)), hub.request("leave"), hub.request("train")]
    assert [code_of(node, r) for r in requests[:2]] == [Code.DONE, Code.DONE]
    ledger, outside = ledger_file(site).read_bytes(), set(everything(tmp_path))
    answers: list[Code | None] = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def attack(data: Any) -> None:
        original = data.draw(st.sampled_from(requests))
        frame = mutated(original.to_bytes(), data.draw)
        code = code_of(node, frame)
        if not any(is_meant(frame, request) for request in requests):
            answers.append(code)
            done = [Code.DONE] if original.verb in SILENT else []  # whatever it brings
            assert code in (None, Code.REFUSED, Code.ABSENT, *done), frame[:300]
        assert ledger_file(site).read_bytes() == ledger
        left = {name for name in everything(tmp_path) if not name.endswith("refused.json")}
        assert left == outside

    attack()
    assert len(answers) > examples / 2
    assert code_of(node, requests[1]) is Code.DONE  # it answers as before
