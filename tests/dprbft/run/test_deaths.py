"""Whatever dies, a run goes on: nothing is released twice, and no ledger says too little."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deaths import SERVER, STATE, VERBS, Death, arguments, carry_out, dies
from ledgers import accounts, assert_kept, contents
from recorded_wire import RecordedWire
from whole_run import check_whole, release_in

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Release, Verb
from dprbft.paths import read_sites, rounds_file, server_folder
from dprbft.run.directory import prepare
from dprbft.site.site import Site
from panas.privacy.ledger.account import Account
from panas.runtime.errors import BudgetExhausted
from panas.runtime.store import read_lines

Tiny = Callable[..., RunConfig]

CLEAN = 1 + 2 * 2
"""Charges of a site in two rounds: a histogram, and a training and a release a round."""

METHOD = "dprbft.methods.rounds.dprbft:"
TRAINING = "dprbft.site.training:train_model_private"
SLOW = [
    Death(SERVER + "put_release", after=True),
    Death("dprbft.server.checkpoint:write_json", call=3),  # the number of the last whole round
    Death("dprbft.site.search:write_json", lost=1),  # charged, and not kept
    Death(TRAINING),  # the same charge pays for it again
    Death(STATE, "finish", call=2),
]
THOROUGH = [
    Death("dprbft.site.results.records:SearchRecord.write", call=2),
    Death(STATE, "round", after=True),
    Death(SERVER + "put_answer", after=True),
    Death(VERBS + "write_bytes", after=True, lost=2),
    Death("dprbft.site.results.records:SearchRecord.write", after=True),
    Death("dprbft.site.results.records:TuningRecord.write"),
    Death("dprbft.site.results.records:TuningRecord.write", call=2, after=True),
    Death(STATE, "ready"),
    Death(STATE, "ready", call=2, after=True),
    Death(TRAINING, after=True),
    Death(METHOD + "release", lost=1),
    Death(METHOD + "release", after=True, lost=2),
    Death(VERBS + "write_bytes", lost=2),
    Death(STATE, "round", lost=2),
    Death(STATE, "round", call=4, after=True),
    Death(METHOD + "site_finish", after=True),
    Death(VERBS + "note_round", "finish", after=True),
    Death(STATE, "finish", after=True),
    Death(VERBS + "write_report"),
    Death(SERVER + "put_release"),
    Death(SERVER + "put_release", call=2, after=True),
    Death(SERVER + "put_answer"),
    Death(SERVER + "put_broadcast", call=2),
    Death(SERVER + "end"),
    Death(SERVER + "end", after=True),
    Death("dprbft.server.checkpoint:write_rounds", call=3),
    Death("dprbft.server.checkpoint:write_rounds", call=3, after=True),
]


def begun(run: Path, config: RunConfig, death: Death) -> RecordedWire:
    """A run in this process that died; returns what had crossed."""
    prepare(run, config, resume=False)
    wire = RecordedWire(InProcess(read_sites(run)))
    with dies(death):
        carry_out(run, config, wire)
    return wire


def resumed(run: Path, config: RunConfig) -> RecordedWire:
    """The same run, carried to its end; returns what crossed since."""
    prepare(run, config, resume=True)
    with InProcess(read_sites(run)) as engine:
        wire = RecordedWire(engine)
        carry_out(run, config, wire)
    return wire


def released(wire: RecordedWire) -> Counter[tuple[int, int, bytes]]:
    """How often what crossed, by (site, round, bytes)."""
    results = Counter[tuple[int, int, bytes]]()
    for verb, site, reply in wire.up:
        if verb is Verb.ROUND and reply.release:
            message = Release.from_bytes(reply.release, width=16, classes=10)
            results[site, message.round, reply.release] += 1
    return results


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [*SLOW, *(pytest.param(d, marks=pytest.mark.thorough) for d in THOROUGH)],
    ids=str,
)
def test_a_death_anywhere_is_resumed_and_stays_paid_for(death: Death, tiny: Tiny, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__rounds=2)
    first = begun(run, config, death)
    before, spent = contents(run), [a.spent() for a in accounts(run)]
    second = resumed(run, config)
    assert_kept(before)
    assert check_whole(run, config) == []
    for account, least in zip(accounts(run), spent, strict=True):
        assert least <= account.spent() <= account.budget.epsilon
    # Only the one that died pays again, and only for what died with it.
    assert sorted(len(a.entries) - CLEAN for a in accounts(run)) == [0, death.lost]
    # Of every site and round one release has crossed, in whichever attempt.
    crossed = released(first) + released(second)
    assert sorted((site, round) for site, round, _ in crossed) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    again = set(released(first)) & set(released(second))
    assert len(again) == (death == Death(SERVER + "put_release"))  # lost on its way


def sigmas(account: Account, phase: str) -> list[float]:
    return [e.noise_multiplier for e in account.events(phase)]


@pytest.mark.slow
def test_noise_grows_after_charges_without_a_round(tiny: Tiny, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__rounds=3)
    begun(run, config, Death(STATE, "round", call=3))  # when all of it is charged
    resumed(run, config)
    died, other = accounts(run)
    for phase in ("training", "release"):
        before, lost, *rest = sigmas(died, phase)
        assert before == lost
        assert rest[0] == rest[1] > 1.02 * before
        assert len(set(sigmas(other, phase))) == 1
        assert len(sigmas(other, phase)) == 3
    assert died.spent() <= died.budget.epsilon


@pytest.mark.slow
def test_a_last_round_that_died_when_all_was_spent_is_left_out(tiny: Tiny, tmp_path: Path):
    run, config = tmp_path / "r", tiny(federation__rounds=2)
    begun(run, config, Death(STATE, "round", call=3))
    resumed(run, config)
    assert check_whole(run, config) == [(2, 0)]
    assert [len(a.entries) for a in accounts(run)] == [CLEAN, CLEAN]


@pytest.mark.thorough
def test_a_round_that_is_paid_for_is_not_refused_after_a_death(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With a noise that the user fixed, the last round that fits is asked for again."""
    # Rounds that fit depend on the noised count: of both runs it is the same here.
    monkeypatch.setattr(Site, "noised_units", lambda site: (40.0, 1.0))
    config = tiny(training__noise_multiplier=0.9, training__batch_size=16, federation__rounds=200)
    prepare(tmp_path / "whole", config, resume=False)
    with pytest.raises(BudgetExhausted):
        resumed(tmp_path / "whole", config)
    fit = len(read_lines(rounds_file(server_folder(tmp_path / "whole"))))
    run = tmp_path / "r"
    begun(run, config, Death(SERVER + "put_release", call=2 * fit, after=True))
    assert len(read_lines(rounds_file(server_folder(run)))) == fit - 1
    with pytest.raises(BudgetExhausted):
        resumed(run, config)
    assert len(read_lines(rounds_file(server_folder(run)))) == fit


KILLS = [
    Death(VERBS + "write_bytes", after=True, lost=2),
    Death("dprbft.run.stages:_own_stage", call=2),  # the server, before it tunes
    Death(SERVER + "put_release", call=2, after=True),
    Death(SERVER + "put_answer", after=True),
    Death("dprbft.server.checkpoint:write_json", call=3),
]


def charged(run: Path, site: int, round: int | None) -> int:
    """How often a site was charged for a round; None: for its search."""
    return sum(e.charge.round == round for e in accounts(run)[site].entries)


@pytest.mark.parametrize(
    "death",
    [
        pytest.param(death, marks=pytest.mark.thorough if k else pytest.mark.slow)
        for k, death in enumerate(KILLS)
    ],
    ids=str,
)
def test_a_killed_process_of_a_site_or_of_the_server_is_made_good(
    death: Death, tiny: Tiny, tmp_path: Path
):
    run, config = tmp_path / "r", tiny(federation__rounds=2)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    killed = subprocess.run(
        arguments(run, config, death), env=environment, capture_output=True, text=True, check=False
    )
    assert (tmp_path / "killed").exists()
    of_site = killed.returncode != -signal.SIGKILL
    assert of_site == ("worker process died" in killed.stderr)
    before = contents(run)
    arrived = {
        (r, i): charged(run, i, r) for r in (1, 2) for i in (0, 1) if release_in(run, r, i).exists()
    }
    resumed(run, config)
    assert_kept(before)
    assert check_whole(run, config) == []
    # Whoever had released pays for that round no more; whatever died did so in one round or stage.
    assert {at: charged(run, at[1], at[0]) for at in arrived} == arrived
    for site, account in enumerate(accounts(run)):
        assert account.spent() <= account.budget.epsilon
        again = [charged(run, site, r) - wanted for r, wanted in ((None, 1), (1, 2), (2, 2))]
        assert min(again) >= 0
        assert sum(again) == max(again) <= 2
