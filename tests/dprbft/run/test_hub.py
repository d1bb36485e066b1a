"""A run whose sites are elsewhere: the same as one here, and what it does where sites fail."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elsewhere import (
    NAMES,
    InThread,
    Recorded,
    charges,
    hub_config,
    lead,
    make_sites,
    opened,
    repeat_noise,
)

from dprbft.config.files import build_config, load_config, without_unread
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Verb
from dprbft.paths import SitePaths, network_picture, predictor_file, read_sites, server_folder
from dprbft.run.directory import Ground, OpenRun, prepare
from dprbft.run.events import Event, HeadShared, RoundEnded, SiteDone, SiteLeftOut, SiteMissed
from dprbft.run.hub import answer_caps
from dprbft.run.stages import begin, exchange_stage, join_stage, search_stage
from dprbft.run.summary import summarise
from dprbft.server.records import read_rounds
from dprbft.site.data import load_samples
from panas.runtime.errors import BadInput
from panas.runtime.store import read_lines


def head_of(run: Path) -> bytes:
    return (server_folder(run) / "round-001/broadcast.safetensors").read_bytes()


def left_out(heard: list[Event]) -> list[tuple[str, str, str]]:
    return [(e.site, e.stage, e.why) for e in heard if isinstance(e, SiteLeftOut)]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_a_hub_comes_to_the_head_and_ledgers_of_a_run_on_one_machine(
    whole: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    repeat_noise(monkeypatch)
    here, there = make_sites(tmp_path / "here"), make_sites(tmp_path / "there")
    config, heard = hub_config(tmp_path / "there", protected=whole), list[Event]()
    run = tmp_path / "hub" / "trial"
    carry = lead if whole else exchange_stage
    carry(opened(run, config, InThread(there), heard))
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "state"))  # both have sites of the same keys
    changed = {"remote": (), "sites": [str(path) for path in here.values()]}
    federation = config.federation.model_dump() | changed
    local = build_config(without_unread(config.model_dump() | {"federation": federation}))
    alone = tmp_path / "one" / "trial"
    prepare(alone, local, resume=False)
    with InProcess(read_sites(alone)) as engine:
        carry(OpenRun(alone, local, engine))
    assert head_of(run) == head_of(alone)
    assert charges(there) == charges(here)
    assert all(charges(there).values())
    assert left_out(heard) == []
    assert HeadShared(3) in heard
    if whole:
        check_whole(run, there, heard)
        # On one machine a report draws them: `tests/dprbft/site/test_pictures.py`.
        assert not any(png for folder in here.values() for png in folder.rglob("*.png"))


def check_whole(run: Path, there: Mapping[str, Path], heard: list[Event]) -> None:
    done = {(e.site, e.stage) for e in heard if isinstance(e, SiteDone)}
    assert done == {(name, stage) for name in NAMES for stage in ("search", "tune", "train")}
    for i, (name, folder) in enumerate(there.items()):
        home = SitePaths(i, name, folder, "trial").home
        assert predictor_file(home).is_file()
        assert network_picture(home).is_file()
    check_summary(summarise(run, load_config(run)), run)


def check_summary(summary: dict[str, Any], run: Path) -> None:
    assert summary["finished"]
    assert summary["absent"] == []
    assert [s["name"] for s in summary["sites"]] == list(NAMES)
    for site in summary["sites"]:
        assert site["through"] == ["join", "search", "tune", "train"]
        assert 0 < site["epsilon_of_releases"] <= 8
    assert 0 <= summary["head"]["accuracy"] <= 1
    # Nothing of a site that is no release: no accuracy, no path.
    told = json.dumps(summary)
    assert told.count("accuracy") == 1
    assert str(run.parents[1]) not in told


@pytest.mark.slow
def test_what_a_site_refuses_costs_it_the_run_and_nobody_else(tmp_path: Path):
    sites = make_sites(tmp_path)
    path = sites["b"] / "site.toml"
    path.write_text(path.read_text().replace("moments", "class_sums"))
    heard, run, config = list[Event](), tmp_path / "trial", hub_config(tmp_path)
    opened_run = opened(run, config, InThread(sites), heard)
    begin(opened_run, Ground.of(run))
    search_stage(opened_run)
    (record,) = read_rounds(server_folder(run))
    assert (record.sites, record.absent) == ((0, 2), (1,))
    assert set(left_out(heard)) >= {("b", "start", "refused"), ("b", "join", "refused")}
    assert {why for _, _, why in left_out(heard)} == {"refused"}
    assert charges(sites)["b"] == []
    summary = summarise(run, config)
    assert (summary["finished"], summary["absent"]) == (False, ["a", "b", "c"])


def test_too_few_sites_leave_nothing_behind(tmp_path: Path):
    sites, run = make_sites(tmp_path), tmp_path / "runs" / "trial"
    carrier = InThread(sites, before=lambda site, verb: site == "a")
    ground = Ground.of(run)
    with pytest.raises(BadInput, match=r"at least 2 of 3 sites .* b \(absent\), c \(absent\)"):
        begin(opened(run, hub_config(tmp_path), carrier), ground)
    assert not run.exists()
    assert carrier.asked == [("a", "hello"), ("a", "leave")]
    assert charges(sites)["a"] == []


@pytest.mark.slow
def test_a_site_that_sends_junk_counts_as_absent_and_is_told_of(tmp_path: Path):
    sites, heard = make_sites(tmp_path), list[Event]()

    def change(site: str, verb: str, answer: bytes) -> bytes:
        return answer[:-1] if (site, verb) == ("c", "round") else answer

    run, config = tmp_path / "trial", hub_config(tmp_path)
    opened_run = opened(run, config, InThread(sites, change), heard)
    search_stage(opened_run)
    (record,) = read_rounds(server_folder(run))
    assert (record.sites, record.absent) == ((0, 1), (2,))
    assert left_out(heard) == [("c", "join", "reply")]
    (line,) = read_lines(server_folder(run) / "refused.jsonl")
    assert (line["site"], line["verb"]) == ("c", "round")
    assert line["reason"].startswith("expected an answer")
    # It was charged for what it sent; it takes the head, and goes on with the others.
    assert {e.site for e in heard if isinstance(e, SiteDone)} == set(NAMES)


@pytest.mark.thorough
def test_a_site_that_goes_and_comes_back_is_made_good(tmp_path: Path):
    sites, heard, away = make_sites(tmp_path), list[Event](), set[str]()

    def before(site: str, verb: str) -> bool:
        if (site, verb) == ("b", "search"):
            away.add("b")
        return site not in away

    run, config = tmp_path / "trial", hub_config(tmp_path)
    lead(opened(run, config, InThread(sites, before=before), heard))
    assert ("b", "search", "absent") in left_out(heard)
    assert summarise(run, config)["absent"] == ["b"]
    away.add("nobody")
    away.remove("b")
    spent, carrier = charges(sites), InThread(sites)
    lead(opened(run, config, carrier, resume=True))
    summary = summarise(run, config)
    assert (summary["absent"], summary["finished"]) == ([], True)
    assert {name: c[: len(spent[name])] for name, c in charges(sites).items()} == spent
    again = {(site, verb) for site, verb in carrier.asked if verb in ("search", "tune", "round")}
    assert again == {("b", "search"), ("b", "tune")}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dprbft", "fedavg"])
def test_methods_of_rounds_go_on_without_a_view_of_sites(method: str, tmp_path: Path):
    sites = make_sites(tmp_path)
    for folder in sites.values():  # what the method sends has to be named
        path = folder / "site.toml"
        path.write_text(path.read_text().replace('"moments"', f'"moments", "{method}"'))
    changes = {
        "federation": {"method": method, "rounds": 2},
        "training": {"epochs": 1, "warm_epochs": 1, "batch_size": 1000},
    }
    config = hub_config(tmp_path, protected=True, changes=changes)
    run, heard, missed = tmp_path / "trial", list[Event](), set[int]()

    def before(site: str, verb: str) -> bool:
        """Site c misses the first round."""
        if (site, verb) == ("c", "round") and not missed:
            missed.add(1)
            return False
        return True

    lead(opened(run, config, InThread(sites, before=before), heard))
    first, second = read_rounds(server_folder(run))
    assert (first.sites, first.absent, second.sites) == ((0, 1), (2,), (0, 1, 2))
    assert SiteMissed("c", 1, "absent") in heard
    assert RoundEnded(2, 2, None) in heard
    summary = summarise(run, config)
    assert (summary["absent"], summary["finished"], summary["head"]) == ([], True, None)
    assert all(charges(sites).values())


@pytest.mark.slow
def test_a_hub_cannot_find_out_by_public_samples_which_a_site_has(tmp_path: Path):
    sites = make_sites(tmp_path)
    open_to_all, theirs = np.load(tmp_path / "public.npz"), np.load(tmp_path / "data/a.npz")
    both = {k: np.concatenate([open_to_all[k], theirs[k][:1]]) for k in ("x", "y")}
    np.savez(tmp_path / "public.npz", **both)
    run = opened(tmp_path / "r", hub_config(tmp_path), InThread(sites))
    with pytest.warns(UserWarning, match="some of its samples among them"):  # for a's owner
        assert begin(run, Ground.of(run.folder)) == [0, 1, 2]


def test_facts_other_than_an_owner_declares_are_refused_before_the_data_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    sites = make_sites(tmp_path)
    path = sites["a"] / "facts.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"class_names": [*facts["class_names"], "more"]}))
    heard: list[Event] = []
    run = opened(tmp_path / "r", hub_config(tmp_path), InThread(sites), heard)
    read = []
    monkeypatch.setattr(
        "dprbft.site.data.load_samples",
        lambda folder, *rest: read.append(folder.name) or load_samples(folder, *rest),
    )
    assert begin(run, Ground.of(run.folder)) == [1, 2]
    assert "a" not in read
    assert "a" in [site for site, _, _ in left_out(heard)]


def files_to(site: str, carrier: Recorded) -> list[set[str]]:
    """Names of the files with each hello to a site."""
    return [set(r.files) for r in carrier.down if (r.site, r.verb) == (site, "hello")]


WHOLE, BRIEF = {"public"}, {"public.sha256"}


@pytest.mark.slow
def test_public_files_cross_once_and_all_that_is_carried_is_counted(tmp_path: Path):
    sites, run = make_sites(tmp_path), tmp_path / "trial"
    carrier = Recorded(InThread(sites))
    hub = opened(run, hub_config(tmp_path), carrier)
    join_stage(hub)
    shutil.rmtree(sites["a"] / "runs")  # it gets them again
    exchange_stage(hub)
    exchange_stage(hub)
    assert files_to("b", carrier) == [WHOLE, BRIEF, BRIEF]
    assert files_to("a", carrier) == [WHOLE, BRIEF, WHOLE, BRIEF]
    again = opened(run, hub_config(tmp_path), carrier, resume=True)
    exchange_stage(again)  # another process cannot know what they have
    assert files_to("c", carrier) == [WHOLE, BRIEF, BRIEF, WHOLE]
    list(again.engine.call(Verb.READY, {0: b""}))  # with it the last greetings are written down
    record = summarise(run, again.config)["communication"]
    assert record["carried_down_bytes"] == sum(len(r.to_bytes()) for r in carrier.down)
    assert record["carried_up_bytes"] == sum(len(answer) for _, answer in carrier.up)


def test_a_run_that_all_sites_refuse_leaves_nothing_of_what_was_carried(tmp_path: Path):
    sites, run = make_sites(tmp_path), tmp_path / "trial"
    for paths in sites.values():
        path = paths / "site.toml"
        path.write_text(path.read_text().replace("moments", "class_sums"))
    hub = opened(run, hub_config(tmp_path), InThread(sites))
    with pytest.raises(BadInput, match="too few without"):
        begin(hub, Ground(run, (run,), frozenset(), new=True))
    assert not run.exists()


def test_every_verb_has_a_most_for_its_answer_and_most_say_nothing(tmp_path: Path):
    make_sites(tmp_path)
    config = hub_config(tmp_path)
    prepare(tmp_path / "run", config, resume=False)
    caps = answer_caps(tmp_path / "run", config)
    assert {*caps} == {*Verb}
    assert {verb for verb, cap in caps.items() if cap} == {Verb.ROUND}
    assert caps[Verb.ROUND] < 1 << 20
