"""Sites that come, go and get new keys: what is written, who must agree, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest

from dprbft.engines.deploy import accept as accepting
from dprbft.engines.deploy.accept import accept, look_at
from dprbft.engines.deploy.certificates import Pair, new_authority
from dprbft.engines.deploy.change import add, remove, renew, renew_key, with_sites
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.keys import own_key, renewed_key
from dprbft.engines.deploy.log import (
    LOG,
    Change,
    append,
    change_of,
    extended,
    parsed,
    read_log,
    sites_after,
)
from dprbft.engines.deploy.settings import flower_hub, read_federation
from dprbft.secure_sum.identity import new_key, public_of
from dprbft.secure_sum.signing import check_own_key
from panas.runtime.errors import BadInput

NAMES = ("a", "b")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment, whose hub shows sites its log."""
    out = tmp_path / "f"
    make_deployment(out, Deployment(sites=NAMES))
    monkeypatch.setattr(accepting, "ask_log", lambda *_: (out / "hub" / LOG).read_bytes())
    return out


def authority_of(out: Path) -> Pair:
    return Pair(*((out / "ca" / n).read_bytes() for n in ("ca.crt", "ca.key")))


def events(out: Path) -> list[tuple[str, str]]:
    log = read_log(out / "hub" / LOG, authority_of(out).certificate)
    return [(change.event, change.site) for change in log.changes]


BEGUN = [("added", "a"), ("added", "b")]


def test_a_new_site_is_in_the_hub_and_in_the_log_and_has_all_that_it_needs(out: Path):
    folder = add(out, "c")
    hub = flower_hub(out / "hub")
    assert hub.settings.names == ("a", "b", "c")
    assert events(out) == [*BEGUN, ("added", "c")]
    federation = read_federation(folder)
    assert (federation.site, federation.hub, federation.sites) == ("c", hub.address, hub.keys)
    check_own_key(folder)
    old = {p.name for p in (out / "sites/a").iterdir()}
    assert {p.name for p in folder.iterdir()} == old
    assert (folder / "node.key").stat().st_mode & 0o077 == 0


def test_a_site_that_made_its_key_is_let_in_by_its_public_half(out: Path, tmp_path: Path):
    public = own_key(tmp_path / "c")
    folder = add(out, "c", public)
    assert not (folder / "node.key").exists()
    shutil.copytree(folder, tmp_path / "c", dirs_exist_ok=True)
    check_own_key(tmp_path / "c")


def test_no_other_site_knows_a_new_one_until_its_owner_accepts(out: Path):
    site, before = out / "sites/a", read_federation(out / "sites/a")
    add(out, "c")
    assert read_federation(site) == before
    log, news = look_at(site)
    assert log is not None
    (line,) = news
    assert line.startswith("c is new (SHA256:")
    with pytest.raises(BadInput, match="expected the log that was looked at"):
        accept(site, log.head[:31])
    remove(out, "b")  # after the owner has looked
    with pytest.raises(BadInput, match="says what is there now"):
        accept(site, log.head)
    assert read_federation(site) == before
    log, news = look_at(site)
    assert log is not None
    assert [line.partition(" (")[0] for line in news] == ["c is new", "b is removed"]
    assert set(accept(site, log.head[:32])) == {"a", "c"} == set(read_federation(site).sites)
    assert look_at(site)[1] == []


def test_a_removed_site_is_out_of_the_hub_and_its_key_never_comes_back(out: Path):
    key = read_federation(out / "sites/b").sites["b"]
    hub = remove(out, "b")
    assert (hub.settings.names, hub.settings.minimum) == (("a",), 1)
    assert events(out) == [*BEGUN, ("removed", "b")]
    with pytest.raises(BadInput, match="expected a new key, got SHA256"):
        add(out, "c", key)
    with pytest.raises(BadInput, match="stop the hub instead"):
        remove(out, "a")
    with pytest.raises(BadInput, match="expected a site of this federation, got 'b'"):
        remove(out, "b")
    assert events(out) == [*BEGUN, ("removed", "b")]


def test_a_new_key_of_a_site_keeps_all_else_that_is_its_own(out: Path):
    site = out / "sites/a"
    for name in ("site.toml", "ledger.jsonl"):
        (site / name).write_text(name)
    others = read_federation(site).sites["b"]
    add(out, "c")
    renew_key(out, "a")
    check_own_key(site)
    federation = read_federation(site)
    assert federation.sites["a"] == flower_hub(out / "hub").keys["a"]
    assert (federation.sites["b"], set(federation.sites)) == (others, {"a", "b"})
    assert [(site / name).read_text() for name in ("site.toml", "ledger.jsonl")] == [
        "site.toml",
        "ledger.jsonl",
    ]
    assert "a has a new key (SHA256:" in look_at(out / "sites/b")[1][1]


def test_a_site_makes_its_new_key_itself(out: Path):
    site = out / "sites/a"
    public = renewed_key(site)
    check_own_key(site)
    log, _ = look_at(site)
    assert log is not None
    with pytest.raises(BadInput, match="expected the key of a in the hub's log"):
        accept(site, log.head)
    renew_key(out, "a", public)
    assert look_at(site)[1] == []
    with pytest.raises(BadInput, match="expected a site of this federation, got 'z'"):
        renew_key(out, "z")
    with pytest.raises(BadInput, match="found none; leave out --new"):
        renewed_key(out / "hub")


def test_a_new_certificate_is_a_line_and_changes_no_site(out: Path):
    renew(out, 30)
    assert events(out) == [*BEGUN, ("certificate", "")]
    assert look_at(out / "sites/a")[1] == []


@pytest.mark.parametrize("name", ["a", "b/c", "", "x" * 65])
def test_a_name_that_cannot_be_changes_nothing(name: str, out: Path):
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with pytest.raises(BadInput):
        add(out, name)
    after = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert {p: c for p, c in after.items() if not p.name.endswith(".lock")} == before


def test_after_a_death_before_hub_toml_the_same_command_goes_on(out: Path, tmp_path: Path):
    hub_file, public = out / "hub/hub.toml", own_key(tmp_path / "c")
    before = hub_file.read_text()
    add(out, "c", public)
    shutil.rmtree(out / "sites/c")
    after = hub_file.read_text()
    hub_file.write_text(before)
    add(out, "c", public)
    assert (hub_file.read_text(), events(out)) == (after, [*BEGUN, ("added", "c")])
    remove(out, "c")
    hub_file.write_text(after)
    remove(out, "c")
    assert (hub_file.read_text(), events(out)[3:]) == (before, [("removed", "c")])


def test_only_where_the_authority_is_can_anything_change(out: Path):
    (out / "ca/ca.key").write_bytes(new_authority(1).key)
    for change in (lambda: add(out, "c"), lambda: remove(out, "b"), lambda: renew_key(out, "a")):
        with pytest.raises(BadInput, match="authority of this hub"):
            change()
    assert events(out) == BEGUN


def test_a_deployment_of_an_older_version_begins_its_log(out: Path):
    (out / "hub" / LOG).unlink()
    (out / "sites/a" / LOG).unlink()
    add(out, "c")
    assert events(out) == [*BEGUN, ("added", "c")]
    assert [line[:8] for line in look_at(out / "sites/a")[1]] == ["c is new"]


def test_settings_that_a_person_wrote_stay(out: Path):
    path = out / "hub/hub.toml"
    text = path.read_text().replace("deadline = 3600.0", "deadline = 7.0  # mine")
    path.write_text(text)
    add(out, "c")
    assert "deadline = 7.0  # mine" in path.read_text()
    keys = flower_hub(out / "hub").keys
    moved = f'{text}\n[sockets]\na = "a"\nb = "b"\n'
    for other in (moved, text.replace('names = ["', 'names = [\n"')):
        path.write_text(other)
        for change in (
            lambda: add(out, "d"),
            lambda: remove(out, "b"),
            lambda: renew_key(out, "a"),
        ):
            with pytest.raises(BadInput, match="bring it into that form"):
                change()
        assert path.read_text() == other
    assert events(out) == [*BEGUN, ("added", "c")]
    assert with_sites(text, {n: keys[n] for n in NAMES}, path).strip() == text.strip()


def forged(out: Path, how: str) -> bytes:
    """The hub's log after its hub, or another, has put a site in."""
    path, mine = out / "hub" / LOG, authority_of(out)
    log = read_log(path, mine.certificate)
    lines = path.read_bytes().splitlines(keepends=True)
    change = change_of("added", "evil", public_of(new_key()))
    match how:
        case "signed by another":
            other = Pair(mine.certificate, new_authority(1).key)
            return b"".join(extended(log, other, [change]).lines)
        case "a line changed":
            return b"".join([lines[0].replace(b'"site": "a"', b'"site": "z"'), *lines[1:]])
        case "a line left out":
            return b"".join(lines[1:])
        case "another key in a line":
            record = json.loads(lines[0]) | {"public": change.public}
            return b"".join([json.dumps(record).encode() + b"\n", *lines[1:]])
        case "cut in a line":
            return b"".join(lines)[:-3]
    raise AssertionError(how)


FORGED = ["signed by another", "a line changed", "a line left out", "another key in a line"]


@pytest.mark.parametrize("how", [*FORGED, "cut in a line"])
def test_a_log_that_a_hub_has_changed_is_refused(
    how: str, out: Path, monkeypatch: pytest.MonkeyPatch
):
    content = forged(out, how)
    monkeypatch.setattr(accepting, "ask_log", lambda *_: content)
    with pytest.raises(BadInput, match="that its authority has signed"):
        look_at(out / "sites/a")


def test_a_site_notices_another_log_of_the_same_authority(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whoever holds ca.key can write another log, but not to a site that has seen this one."""
    log = read_log(out / "hub" / LOG, authority_of(out).certificate)
    changes = [log.changes[0], change_of("added", "b", public_of(new_key()))]
    other = extended(type(log)(), authority_of(out), changes)
    shorter = extended(type(log)(), authority_of(out), changes[:1])
    for each in (other, shorter):
        content = b"".join(each.lines)
        monkeypatch.setattr(accepting, "ask_log", lambda *_, content=content: content)
        with pytest.raises(BadInput, match="goes on from the 2 lines"):
            look_at(out / "sites/a")
    monkeypatch.setattr(accepting, "ask_log", lambda *_: None)
    with pytest.raises(BadInput, match="show the federation's log, got none"):
        look_at(out / "sites/a")


def test_a_line_that_was_not_written_to_its_end_is_written_anew(out: Path):
    path, authority = out / "hub" / LOG, authority_of(out)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n": 3, "eve')
    log = read_log(path, authority.certificate)
    append(path, extended(log, authority, [Change("certificate", "", "SHA256:00")]), log)
    assert len(parsed(path.read_bytes(), authority.certificate, "here").changes) == 3


def test_changes_that_cannot_follow_each_other_are_refused():
    key = public_of(new_key())
    for impossible in (
        [change_of("removed", "a", key)],
        [change_of("renewed", "a", key)],
        [change_of("added", "a", key)] * 2,
    ):
        with pytest.raises(BadInput, match="that follow each other"):
            sites_after(impossible)
