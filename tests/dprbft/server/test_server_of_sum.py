"""A secure sum from the server's side: missing sites, deaths, and replies that were changed."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deaths import Death, Stop, die, dies, plant
from ledgers import accounts
from summed_runs import begun, joined_by, summed_config

from dprbft.engines.protocol import SiteRefusal
from dprbft.messages import Verb
from dprbft.paths import arrived_file, server_folder, sum_folder, sum_refusals_file
from dprbft.run.exchange import server_files
from dprbft.run.view import RunView
from dprbft.secure_sum import session
from dprbft.secure_sum.graph import Graph
from dprbft.secure_sum.keys import ANNOUNCED_BYTES, DRAW_BYTES
from dprbft.secure_sum.messages import MaskedRelease, Parts, Survivors
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.release import masked_size
from dprbft.secure_sum.session import worth_summing
from dprbft.server.records import read_rounds
from dprbft.site.site import open_site
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, read_tensors

STEPS = (
    Verb.ROUND,
    Verb.UNMASK,
    *(pytest.param(verb, marks=pytest.mark.slow) for verb in (Verb.KEYS, Verb.SHARE)),
)
CONFIG = summed_config()
SIZE = masked_size(8, 10)


def variance(run: Path) -> float:
    about = read_tensors(sum_folder(server_folder(run), 1) / "sum.safetensors")[1]
    return float(about["variance"])


def releases(run: Path) -> list[int]:
    """How many releases each site was charged for."""
    return [sum(e.charge.mechanism == "moments" for e in a.entries) for a in accounts(run)]


def survivors(run: Path) -> list[int]:
    return list(read_json(sum_folder(server_folder(run), 1) / "survivors.json")["sites"])


@pytest.mark.slow
@pytest.mark.parametrize("verb", STEPS)
def test_a_missing_site_changes_nothing_but_the_noise(verb: Verb, run: Path):
    engine = begun(run, CONFIG, gone={verb: {2}})
    joined_by(engine, run, CONFIG)
    late = verb is Verb.UNMASK  # its vector is there, and n - t answers open the sum
    assert survivors(run) == ([0, 1, 2, 3] if late else [0, 1, 3])
    noise = open_site(engine.sites[0]).account.entries[1].event.noise_multiplier
    s2 = (moments.SUM_SENSITIVITY * noise) ** 2
    assert variance(run) == pytest.approx(s2 * (4 if late else 3) / 3, rel=1e-3)
    assert releases(run) == [1, 1, 1 if late else 0, 1]
    (record,) = read_rounds(server_folder(run))
    assert record.absent == (() if late else (2,))
    assert set(record.masked) == set(survivors(run))
    sites = {site for v, site, _ in engine.asked if v is Verb.FINISH}
    assert sites == {0, 1, 2, 3}  # who was missing gets the head afterwards


@pytest.mark.slow
def test_a_site_with_little_budget_is_left_out_and_gets_the_head(tmp_path: Path):
    run = tmp_path / "r"
    config = summed_config(
        federation={"clients": 5}, privacy={"trust": "secure-sum", "epsilons": [8, 8, 1, 8, 8]}
    )
    engine = begun(run, config)
    joined_by(engine, run, config)
    assert survivors(run) == [0, 1, 3, 4]
    assert releases(run) == [1, 1, 0, 1, 1]
    charged = {a.entries[-1].event.noise_multiplier for a in accounts(run) if len(a.entries) > 1}
    alone = tmp_path / "alone"
    config = summed_config()
    joined_by(begun(alone, config), alone, config)
    without = {a.entries[1].event.noise_multiplier for a in accounts(alone)}
    assert max(charged) == pytest.approx(max(without), rel=0.02)
    assert {site for v, site, _ in engine.asked if v is Verb.FINISH} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("needed", "wanted"),
    [
        ([1.0] * 6, {0, 1, 2, 3, 4, 5}),
        ([1.0] * 4 + [1.05, 1.1], {0, 1, 2, 3, 4, 5}),
        ([9.0] + [1.0] * 5, {1, 2, 3, 4, 5}),
        ([9.0, 9.0] + [1.0] * 4, {0, 1, 2, 3, 4, 5}),  # more than may be missing are not left out
        ([9.0] + [1.0] * 3, {0, 1, 2, 3}),  # fewer than 4 may not be summed
        ([1e-9] * 4 + [1.0] * 16, set(range(20))),
        ([9.0] * 2 + [1.0] * 18, set(range(2, 20))),
        ([0.0] * 5, {0, 1, 2, 3, 4}),
        ([1.0] * 3, set()),
    ],
)
def test_those_are_summed_whose_sum_has_the_least_noise_for_its_size(
    needed: list[float], wanted: set[int]
):
    t = CONFIG.federation.secure_missing_of(len(needed))
    result = worth_summing(dict(enumerate(needed)), 4, t)
    assert result == tuple(sorted(wanted))
    if wanted and max(needed):  # against all sets that may be summed

        def noise(sites: tuple[int, ...]) -> float:
            n = len(sites)
            return max(needed[i] for i in sites) ** 2 * n / (n - t) / n**2

        all_sites = range(len(needed))
        fewest = max(4, 3 * t + 1, len(needed) - t)
        sets = (s for n in range(fewest, len(needed) + 1) for s in combinations(all_sites, n))
        assert noise(result) == pytest.approx(min(map(noise, sets)))


@pytest.mark.slow
@pytest.mark.parametrize("verb", STEPS)
def test_too_many_missing_sites_stop_it_and_nothing_is_opened(verb: Verb, run: Path):
    engine = begun(run, CONFIG, gone={verb: {1, 3}})
    with pytest.raises(BadInput, match="go on with --resume") as stopped:
        joined_by(engine, run, CONFIG)
    assert "\n" not in str(stopped.value)
    assert "of at least 3 of 4 sites" in str(stopped.value)
    assert not server_files(RunView(run, CONFIG)).answered(1)
    assert not (sum_folder(server_folder(run), 1) / "sum.safetensors").exists()
    before = releases(run)
    assert before == {Verb.ROUND: [1, 0, 1, 0], Verb.UNMASK: [1, 1, 1, 1]}.get(verb, [0] * 4)
    engine.gone = {}
    joined_by(engine, run, CONFIG)
    assert releases(run) == [1, 1, 1, 1]
    lists = {content for v, _, content in engine.asked if v is Verb.UNMASK}
    assert lists == {Survivors((0, 1, 2, 3)).to_bytes()}


@pytest.mark.slow
def test_sites_that_stay_away_after_masking_leave_the_sum_closed(run: Path):
    engine = begun(run, CONFIG, gone={Verb.UNMASK: {0, 1}})
    for _ in range(2):
        with pytest.raises(BadInput, match="answers to the unmasking of at least 3 of 4"):
            joined_by(engine, run, CONFIG)
    assert releases(run) == [1, 1, 1, 1]


DOUBLE = ("SumFiles.open", "write_bytes", "SumFiles.close")
SERVER, SITE = "dprbft.server.secure_sum:", "dprbft.methods.joined.secure_sum:"
DEATHS = [
    *((SERVER + name, after) for name in DOUBLE for after in (False, True)),
    (SERVER + "total", False),
    (SERVER + "write_tensors", True),
    ("dprbft.server.checkpoint:ServerFiles.put_answer", True),
    ("dprbft.server.checkpoint:ServerFiles.end", False),
    ("dprbft.methods.joined.exchange:write_bytes", False),
    ("dprbft.methods.joined.exchange:write_bytes", True),
    (SITE + "Party.new", True),
    (SITE + "SumState.write", False),
    (SITE + "SumState.write", True),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [
        pytest.param(Death(at, call=call, after=after), marks=mark)
        for at, after in DEATHS
        for call, mark in ((1, pytest.mark.slow), (6, pytest.mark.thorough))
    ],
    ids=str,
)
def test_a_sum_goes_on_after_a_death(death: Death, run: Path, monkeypatch: pytest.MonkeyPatch):
    engine = begun(run, CONFIG)
    with monkeypatch.context() as planted:
        plant(death, die, planted.setattr)
        try:
            joined_by(engine, run, CONFIG)
        except Stop:
            pass
        else:
            assert death.call > 1  # so many calls are not made
            return
    sent = {p: p.read_bytes() for p in run.rglob("releases/*")}
    joined_by(engine, run, CONFIG)
    assert releases(run) == [1, 1, 1, 1]
    assert {p: p.read_bytes() for p in sent} == sent
    lists = {content for v, _, content in engine.asked if v is Verb.UNMASK}
    assert len(lists) == 1
    (record,) = read_rounds(server_folder(run))
    assert record.sites == (0, 1, 2, 3)


@pytest.mark.slow
def test_a_summand_that_a_death_has_lost_is_made_again_for_its_charge(run: Path):
    engine = begun(run, CONFIG)
    with dies(Death("dprbft.methods.joined.secure_sum:to_vector")):
        joined_by(engine, run, CONFIG)
    assert releases(run) == [1, 0, 0, 0]
    joined_by(engine, run, CONFIG)
    assert survivors(run) == [0, 1, 2, 3]
    assert releases(run) == [1, 1, 1, 1]
    assert all(a.spent() <= a.budget.epsilon for a in accounts(run))
    (record,) = read_rounds(server_folder(run))
    assert record.sites == (0, 1, 2, 3)


@pytest.mark.slow
def test_a_masked_vector_that_was_changed_is_found(run: Path):
    engine = begun(run, CONFIG, gone={Verb.UNMASK: {0, 1}})
    with pytest.raises(BadInput):
        joined_by(engine, run, CONFIG)
    path = arrived_file(server_folder(run), 1, 2)
    release = MaskedRelease.from_bytes(path.read_bytes(), SIZE)
    release.numbers[5] += np.uint64(1)
    path.write_bytes(release.to_bytes())
    engine.gone = {}
    with pytest.raises(BadInput, match="a masked vector was changed"):
        joined_by(engine, run, CONFIG)
    assert not server_files(RunView(run, CONFIG)).answered(1)


@pytest.mark.slow
@pytest.mark.parametrize("reply", [b"", pytest.param(bytes(5000), marks=pytest.mark.slow)])
@pytest.mark.parametrize("verb", [Verb.READY, *STEPS[1:]])
def test_what_is_no_reply_costs_its_site_alone_the_sum(verb: Verb, reply: bytes, run: Path):
    engine = begun(run, summed_config(federation={"clients": 5}), changed={(verb, 1): reply})
    joined_by(engine, run, summed_config(federation={"clients": 5}))
    assert set(survivors(run)) >= {0, 2, 3, 4}
    assert (1 in survivors(run)) == (verb is Verb.UNMASK)


def refusals(run: Path) -> list[tuple[str, str]]:
    lines = (server_folder(run) / "refused.jsonl").read_text().splitlines()
    return [(r["site"], r["reason"]) for r in map(json.loads, lines)]


@pytest.mark.slow
def test_a_wrong_share_is_refused_by_name_and_may_come_right_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All four vectors are there, and three answers are needed: of sites 0 and 1 one is wrong."""
    run, original = tmp_path / "r", Party.unmask

    def wrong(party: Party, *given: Any) -> bytes:
        content = original(party, *given)
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        return flipped if party.site in (0, 1) else content

    engine = begun(run, CONFIG)
    monkeypatch.setattr("dprbft.secure_sum.party.Party.unmask", wrong)
    with pytest.raises(BadInput, match=r"answers to the unmasking of at least 3 of 4 .* --resume"):
        joined_by(engine, run, CONFIG)
    told = refusals(run)
    shares = "expected from site {} the share that site 3 has dealt to it"
    assert told == [(f"client-00{i}", shares.format(i)) for i in (0, 1)]
    assert not server_files(RunView(run, CONFIG)).answered(1)
    monkeypatch.setattr("dprbft.secure_sum.party.Party.unmask", original)
    engine.asked.clear()
    joined_by(engine, run, CONFIG)
    assert [site for v, site, _ in engine.asked if v is Verb.UNMASK] == [0, 1]
    assert survivors(run) == [0, 1, 2, 3]
    assert releases(run) == [1, 1, 1, 1]


@pytest.mark.slow
def test_one_wrong_answer_ends_no_sum(run: Path):
    engine = begun(run, CONFIG, changed={(Verb.UNMASK, 0): b"\0\0\0\0\1" + bytes(16)})
    joined_by(engine, run, CONFIG)
    assert survivors(run) == [0, 1, 2, 3]
    shares = "expected from site 0 the share that site 1 has dealt to it"
    assert refusals(run) == [("client-000", shares)]


@pytest.mark.slow
def test_a_damaged_answer_on_the_servers_disk_is_asked_for_again(run: Path):
    engine = begun(run, CONFIG, gone={Verb.UNMASK: {0, 1}})
    with pytest.raises(BadInput):
        joined_by(engine, run, CONFIG)
    (path,) = (sum_folder(server_folder(run), 1)).glob("unmask-0002.bin")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    engine.gone = {}
    engine.asked.clear()
    joined_by(engine, run, CONFIG)
    assert [site for v, site, _ in engine.asked if v is Verb.UNMASK] == [0, 1, 2]


@pytest.mark.slow
def test_a_site_that_deals_a_wrong_share_ends_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, original = tmp_path / "r", Party.shares

    def wrong(party: Party, all_keys: Any) -> dict[int, bytes]:
        parts = original(party, all_keys)
        if party.site == 2:
            parts[1] = bytes([parts[1][0] ^ 1]) + parts[1][1:]
        return parts

    monkeypatch.setattr("dprbft.secure_sum.party.Party.shares", wrong)
    engine = begun(run, CONFIG)
    joined_by(engine, run, CONFIG)
    assert survivors(run) == [0, 1, 2, 3]
    (line,) = sum_refusals_file(engine.sites[1].home).read_text().splitlines()
    assert (json.loads(line)["verb"], json.loads(line)["asked"]) == ("round", [2])


@pytest.mark.slow
def test_a_vector_of_another_site_or_size_is_refused(run: Path):
    other = MaskedRelease(3, 1, "a" * 32, np.zeros(SIZE, np.uint64))
    engine = begun(run, CONFIG, changed={(Verb.ROUND, 1): other.to_bytes()})
    joined_by(engine, run, CONFIG)
    assert survivors(run) == [0, 2, 3]
    refused = (server_folder(run) / "refused.jsonl").read_text()
    assert "expected a masked vector of site 1" in refused


@pytest.mark.slow
def test_fewer_sites_than_the_minimum_send_nothing(run: Path):
    engine = begun(run, CONFIG, gone={Verb.READY: {0}})
    with pytest.raises(BadInput, match=r"at least 4 sites .* nothing was charged"):
        joined_by(engine, run, CONFIG)
    assert releases(run) == [0] * 4
    engine.gone = {Verb.READY: {0, 1, 2, 3}}
    with pytest.raises(BadInput):
        joined_by(engine, run, CONFIG)


@pytest.mark.slow
def test_a_refusal_names_its_site(run: Path):
    engine = begun(run, CONFIG)
    (engine.sites[2].home).mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*args: object) -> bytes:
            raise BadInput("expected another plan, got this")

        patch.setattr("dprbft.methods.joined.secure_sum._check_plan", refuse)
        with pytest.raises((BadInput, SiteRefusal), match="expected another plan"):
            joined_by(engine, run, CONFIG)
    assert releases(run) == [0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("verb", [None, *STEPS])
def test_where_holders_are_drawn_a_run_ends_as_with_all(
    verb: Verb | None, run: Path, monkeypatch: pytest.MonkeyPatch
):
    """As from 100 sites on, with six: two of three others open a secret."""
    monkeypatch.setattr(session, "graph_of", lambda sites, missing: Graph(3, 2, True))
    config = summed_config(federation={"clients": 6})
    engine = begun(run, config, gone={verb: {2}} if verb else {})
    joined_by(engine, run, config)
    there = [0, 1, 2, 3, 4, 5] if verb in (None, Verb.UNMASK) else [0, 1, 3, 4, 5]
    assert survivors(run) == there
    for asked, site, content in engine.asked:
        if asked is Verb.SHARE:
            told = Parts.from_bytes(content).parts
            assert site in told
            assert {len(part) for part in told.values()} == {ANNOUNCED_BYTES + DRAW_BYTES}
    assert releases(run) == [int(i in there) for i in range(6)]
