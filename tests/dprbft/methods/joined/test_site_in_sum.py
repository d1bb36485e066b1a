"""A site in a secure sum: what it refuses, and that it answers the same again."""

import json
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from summed_runs import Direct, begun, joined_by, summed_config

from dprbft.messages import Broadcast, Code, Verb
from dprbft.methods.joined import exchange as joined
from dprbft.methods.joined import secure_sum
from dprbft.methods.joined.budget import planned_release
from dprbft.methods.serve import Machine, serve
from dprbft.methods.side import Side
from dprbft.paths import (
    masked_file,
    refusal_file,
    server_folder,
    settings_file,
    sum_file,
    sum_folder,
    sum_refusals_file,
)
from dprbft.run.directory import OpenRun
from dprbft.run.exchange import server_files
from dprbft.run.stages import join_stage
from dprbft.run.view import RunView
from dprbft.secure_sum.messages import Offer, Parts, SumPlan, Survivors
from dprbft.secure_sum.release import noise_of
from dprbft.site.site import open_site
from panas.privacy.accounting.events import Gaussian
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import in_steps
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, read_tensors

CONFIG = summed_config()


def asked(engine: Direct, verb: Verb, site: int, content: bytes) -> tuple[Code, bytes]:
    reply = serve(engine.sites[site], Machine(), verb, content)
    return reply.code, reply.release


def why(engine: Direct, site: int) -> str:
    return str(read_json(refusal_file(engine.sites[site].home))["reason"])


@pytest.fixture
def greeted(tmp_path: Path) -> Direct:
    """Sites that have said hello, and nothing else."""
    run = tmp_path / "r"
    engine = begun(run, CONFIG)
    join_stage(OpenRun(run, CONFIG, engine))
    return engine


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """Sites that have joined."""
    run = tmp_path_factory.mktemp("whole") / "r"
    engine = begun(run, CONFIG)
    joined_by(engine, run, CONFIG)
    return engine


@pytest.fixture(scope="module")
def unanswered(tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """Sites whose sum is open, and who have not been told the server's answer."""
    run = tmp_path_factory.mktemp("unanswered") / "r"
    engine = begun(run, CONFIG, gone={Verb.FINISH: {0, 1, 2, 3}})
    joined_by(engine, run, CONFIG)
    return engine


def offer_of(engine: Direct, site: int = 0) -> Offer:
    before = Broadcast(0, torch.zeros(10, 8), torch.zeros(10)).to_bytes()
    code, content = asked(engine, Verb.READY, site, before)
    assert code is Code.DONE
    return Offer.from_bytes(content)


def test_a_plan_that_breaks_a_promise_is_refused(greeted: Direct):
    offer = offer_of(greeted)
    plan = SumPlan.new(1, (0, 1, 2, 3), 1, offer.noise_multiplier)
    for wrong, told in (
        (replace(plan, noise_multiplier=offer.noise_multiplier * 0.999), "which the budget needs"),
        (replace(plan, noise_multiplier=0.0), "which the budget needs"),
        (replace(plan, missing=0), "of which 1 or more may be missing"),
        (replace(plan, sites=(0, 1, 2), missing=0), "at least 4 sites"),
        (replace(plan, round=2), "of this run's round"),
        (replace(plan, sites=(1, 2, 3, 4)), "of this run's round and sites"),
        (replace(plan, sites=(0, 1, 2, 9)), "of this run's round and sites"),
    ):
        assert asked(greeted, Verb.KEYS, 0, wrong.to_bytes()) == (Code.REFUSED, b"")
        assert told in why(greeted, 0)
    assert not sum_file(greeted.sites[0].home).exists()
    assert asked(greeted, Verb.KEYS, 0, plan.to_bytes())[0] is Code.DONE


def test_a_plan_that_bears_fewer_colluding_sites_than_the_owner_asks_for_is_refused(
    greeted: Direct,
):
    """Of ten sites two may collude by rule, of the nine that would send one."""
    config = summed_config(federation={"clients": 10})
    site = replace(open_site(greeted.sites[0]), config=config)
    event = planned_release(site)
    assert isinstance(event, Gaussian)
    plans = [SumPlan.new(1, tuple(range(n)), n // 5, event.noise_multiplier) for n in (9, 10)]
    path = settings_file(greeted.sites[0].folder)
    path.write_text(path.read_text().replace("secure_missing = 0", "secure_missing = 2"))
    with pytest.raises(BadInput, match=r"at least 2 sites may help the server \(t\), .* got 1;"):
        secure_sum.keys(site, plans[0].to_bytes())
    assert not sum_file(site.home).exists()
    assert secure_sum.keys(site, plans[1].to_bytes())


@pytest.mark.slow
def test_a_plan_may_be_replaced_until_a_vector_is_masked(greeted: Direct, whole: Direct):
    offer = offer_of(greeted)
    one, two = (SumPlan.new(1, (0, 1, 2, 3), 1, offer.noise_multiplier) for _ in range(2))
    first = asked(greeted, Verb.KEYS, 0, one.to_bytes())
    assert asked(greeted, Verb.KEYS, 0, one.to_bytes()) == first
    second = asked(greeted, Verb.KEYS, 0, two.to_bytes())
    assert (second[0], second[1] == first[1]) == (Code.DONE, False)
    assert asked(whole, Verb.KEYS, 0, two.to_bytes()) == (Code.REFUSED, b"")
    assert "cannot begin anew" in why(whole, 0)


@pytest.mark.slow
def test_every_verb_gives_the_same_bytes_again(unanswered: Direct):
    charges = len(open_site(unanswered.sites[0]).account.entries)
    said = {(v, c) for v, site, c in unanswered.asked if site == 0}
    for verb, content in said:
        if verb in (Verb.KEYS, Verb.SHARE, Verb.ROUND, Verb.UNMASK):
            first, again = (asked(unanswered, verb, 0, content) for _ in range(2))
            assert first == again
            assert first[0] is Code.DONE
            if verb is Verb.ROUND:
                assert first[1] == masked_file(unanswered.sites[0].home, 1).read_bytes()
    assert len(open_site(unanswered.sites[0]).account.entries) == charges


def test_a_second_unmasking_is_refused_and_noted(unanswered: Direct):
    home = unanswered.sites[1].home
    for sites in ((0, 1, 2), (1, 2, 3)):
        content = Survivors(sites).to_bytes()
        assert asked(unanswered, Verb.UNMASK, 1, content) == (Code.REFUSED, b"")
    notes = [json.loads(line) for line in sum_refusals_file(home).read_text().splitlines()]
    assert [note["asked"] for note in notes] == [[0, 1, 2], [1, 2, 3]]
    assert all("got a second with other sites" in note["reason"] for note in notes)
    assert asked(unanswered, Verb.UNMASK, 1, Survivors((0, 1, 2, 3)).to_bytes())[0] is Code.DONE
    assert len(sum_refusals_file(home).read_text().splitlines()) == 2


def test_refusals_do_not_fill_the_disk(unanswered: Direct, monkeypatch: pytest.MonkeyPatch):
    home = unanswered.sites[2].home
    many = Survivors(tuple(range(10_000))).to_bytes()
    assert asked(unanswered, Verb.UNMASK, 2, many) == (Code.REFUSED, b"")
    size = sum_refusals_file(home).stat().st_size
    assert size < 1 << 15
    monkeypatch.setattr("panas.runtime.store.MOST_NOTES", size)
    assert asked(unanswered, Verb.UNMASK, 2, many) == (Code.REFUSED, b"")
    assert sum_refusals_file(home).stat().st_size == size


def secrets_of(state: secure_sum.SumState) -> list[bytes]:
    """Whatever of a site's part in a sum could take a mask off."""
    party = state.party
    return [*astuple(party._seeds), *party._held.values(), *party._sent.values()]


def spelt(secret: bytes) -> list[bytes]:
    """A secret as a file may hold it, also as a part of a longer one."""
    text = secret.hex().encode()
    return [secret, text, text.hex().encode()]


@pytest.mark.slow
def test_secrets_are_erased_once_the_server_has_answered(run: Path):
    engine = begun(run, CONFIG, gone={Verb.FINISH: {0, 1, 2, 3}})
    joined_by(engine, run, CONFIG)
    site = open_site(engine.sites[0])
    before = secure_sum.SumState.read(site)
    assert before is not None
    secrets = [s for secret in secrets_of(before) for s in spelt(secret)]
    assert len(secrets) == 3 * (3 + 4 + 4)
    content = sum_file(site.home).read_bytes()
    assert sum(s in content for s in secrets) >= 3 + 4 + 4

    answer = server_files(RunView(run, CONFIG)).broadcast(1).to_bytes()
    assert asked(engine, Verb.FINISH, 0, answer)[0] is Code.DONE
    files = {p: p.read_bytes() for p in site.paths.folder.rglob("*") if p.is_file()}
    assert not [p for p, content in files.items() for s in secrets if s in content]
    after = secure_sum.SumState.read(site)
    assert after is not None
    assert (after.plan, after.masked) == (before.plan, before.masked)
    assert after.party._survivors == before.party._survivors == (0, 1, 2, 3)

    assert asked(engine, Verb.FINISH, 0, answer)[0] is Code.DONE  # as to a server that goes on
    assert {p: p.read_bytes() for p in files} == files


@pytest.mark.slow
def test_a_sum_that_is_over_is_opened_no_second_time(whole: Direct):
    home = whole.sites[3].home
    for sites in ((0, 1, 2, 3), (0, 1, 3)):
        reply = asked(whole, Verb.UNMASK, 3, Survivors(sites).to_bytes())
        assert reply == (Code.REFUSED, b"")
        assert "that is over, whose secrets are erased" in why(whole, 3)
    assert len(sum_refusals_file(home).read_text().splitlines()) == 2
    said = {v: c for v, site, c in whole.asked if site == 3}
    assert asked(whole, Verb.SHARE, 3, said[Verb.SHARE]) == (Code.REFUSED, b"")
    other = SumPlan.new(1, (0, 1, 2, 3), 1, offer_of(whole, 3).noise_multiplier)
    assert asked(whole, Verb.KEYS, 3, other.to_bytes()) == (Code.REFUSED, b"")
    sent = masked_file(whole.sites[3].home, 1).read_bytes()
    assert asked(whole, Verb.ROUND, 3, said[Verb.ROUND]) == (Code.DONE, sent)


@pytest.mark.slow
def test_a_site_that_was_left_out_erases_its_secrets_as_well(run: Path):
    engine = begun(run, CONFIG, gone={Verb.SHARE: {2}})
    joined_by(engine, run, CONFIG)
    state = secure_sum.SumState.read(open_site(engine.sites[2]))
    assert state is not None
    assert (state.masked, secrets_of(state)) == (b"", [b"", b"", b""])
    other = SumPlan.new(1, (0, 1, 2, 3), 1, state.plan.noise_multiplier)
    assert asked(engine, Verb.KEYS, 2, other.to_bytes()) == (Code.REFUSED, b"")


def test_no_site_asks_for_a_noise_in_which_the_sum_is_lost():
    for noise in (1e7, 1e300):
        with pytest.raises(BadInput, match="noise multiplier from 0 to"):
            Offer.from_bytes(Offer(True, noise).to_bytes())


def test_no_release_leaves_without_a_mask_where_the_sum_alone_is_trusted(greeted: Direct):
    before = Broadcast(0, torch.zeros(10, 8), torch.zeros(10)).to_bytes()
    assert asked(greeted, Verb.ROUND, 0, before) == (Code.REFUSED, b"")
    offer = offer_of(greeted)
    plan = SumPlan.new(1, (0, 1, 2, 3), 1, offer.noise_multiplier)
    asked(greeted, Verb.KEYS, 0, plan.to_bytes())
    for content in (before, Parts({}).to_bytes(), Parts({1: b"x", 2: b"y", 3: b"z"}).to_bytes()):
        assert asked(greeted, Verb.ROUND, 0, content) == (Code.REFUSED, b"")
    site = open_site(greeted.sites[0])
    assert not any(e.charge.phase == "release" for e in site.account.entries)


@pytest.mark.slow
def test_shares_that_do_not_open_are_refused_before_anything_is_charged(run: Path):
    engine = begun(run, CONFIG, gone={Verb.ROUND: {0, 1, 2, 3}})
    with pytest.raises(BadInput):
        joined_by(engine, run, CONFIG)
    content = next(c for v, site, c in engine.asked if v is Verb.ROUND and site == 0)
    parts = dict(Parts.from_bytes(content).parts)
    for i in (1, 2):
        parts[i] = bytes([parts[i][0] ^ 1]) + parts[i][1:]
    assert asked(engine, Verb.ROUND, 0, Parts(parts).to_bytes()) == (Code.REFUSED, b"")
    events = open_site(engine.sites[0]).account.entries
    assert not any(e.charge.phase == "release" for e in events)


@pytest.mark.slow
def test_a_site_of_another_trust_or_method_takes_no_part(tmp_path: Path):
    for method in ("joined", "local", "fedavg"):
        config = summed_config(federation={"method": method}, privacy={"trust": "server"})
        run = tmp_path / method
        engine = begun(run, config)
        join_stage(OpenRun(run, config, engine))
        plan = SumPlan.new(1, (0, 1, 2, 3), 1, 1.0)
        for verb in (Verb.KEYS, Verb.SHARE, Verb.UNMASK):
            assert asked(engine, verb, 0, plan.to_bytes()) == (Code.REFUSED, b"")


@pytest.mark.slow
def test_the_head_is_that_of_a_plain_sum_with_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, drawn = tmp_path / "r", list[np.ndarray]()

    def sampler(sigma: int, size: int) -> np.ndarray:
        rng = np.random.default_rng(len(drawn))
        drawn.append(np.rint(sigma * rng.standard_normal(size)).astype(np.int64))
        return drawn[-1]

    original = secure_sum.add_to_sum

    def repeating(*args: Any, **named: Any) -> Any:
        return original(*args, **named, sampler=sampler)

    monkeypatch.setattr("dprbft.methods.joined.secure_sum.add_to_sum", repeating)
    engine = begun(run, CONFIG)
    joined_by(engine, run, CONFIG)
    plan = SumPlan.from_bytes(next(c for v, _, c in engine.asked if v is Verb.KEYS))
    noise, exact = noise_of(plan, 8, 10), np.zeros(126, np.int64)
    for paths, shares in zip(engine.sites, drawn, strict=True):
        site = open_site(paths)
        rows = Rows(site.phi(site.data.train.inputs()), site.data.train.y)
        exact += in_steps(moments.numbers(rows, 10), noise.step) + shares
    total = moments.from_numbers(torch.from_numpy(exact * noise.step), 10, noise.scale(4))
    view = RunView(run, CONFIG)
    side = Side(CONFIG, view.facts, view.public, view.feature_map)
    head = server_files(RunView(run, CONFIG)).broadcast(1)
    assert torch.equal(joined.sum_round(side, total, 1).weight, head.weight)


def noise_seen_by_colluders(run: Path, monkeypatch: pytest.MonkeyPatch, weaken: int = 1) -> float:
    """The last site's noise, as all others find it by taking their own numbers off the sum, over
    what the site's local cost says, as a ratio of variances; `weaken` divides its share."""
    added, original = dict[int, np.ndarray](), secure_sum.add_to_sum

    def noted(request: Any, rows: Any, **named: Any) -> Any:
        def weak(sigma: int, size: int) -> np.ndarray:
            return discrete_gaussian(sigma // weaken, size)

        sampler = {"sampler": weak} if request.site == 3 else {}
        summand = original(request, rows, **named, **sampler)
        added[request.site] = summand.steps
        return summand

    monkeypatch.setattr("dprbft.methods.joined.secure_sum.add_to_sum", noted)
    engine = begun(run, CONFIG)
    joined_by(engine, run, CONFIG)
    site = open_site(engine.sites[3])
    plan = SumPlan.from_bytes(next(c for v, _, c in engine.asked if v is Verb.KEYS))
    step = noise_of(plan, 8, 10).step
    sums, _ = read_tensors(sum_folder(server_folder(run), 1) / "sum.safetensors")
    others = torch.from_numpy(sum(added[i] for i in range(3)) * step)
    left = sums["B"].flatten() - others[-90:-10]
    rows = Rows(site.phi(site.data.train.inputs()), site.data.train.y)
    left = left - moments.numbers(rows, 10)[-90:-10]
    (sent,) = (e.charge for e in site.account.entries if e.charge.phase == "release")
    assert sent.trust is not None
    assert sent.sensitivity is not None
    return float(left.square().mean()) / (sent.trust.local * sent.sensitivity) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("weaken", [1, 3])
def test_all_others_together_see_the_noise_that_the_local_cost_says(
    weaken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And a share of a third of the noise is seen."""
    ratio = noise_seen_by_colluders(tmp_path / "r", monkeypatch, weaken)
    # Of 80 numbers the mean square is within 5 standard errors of its expectation.
    error = 5 * (2 / 80) ** 0.5
    assert abs(ratio - 1) < error if weaken == 1 else ratio < 1 - error
