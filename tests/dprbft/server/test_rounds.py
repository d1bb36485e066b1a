"""Algorithm 2 from end to end: every choice of heads, releases and participation; resuming."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ledgers import accounts, assert_kept, contents

from dprbft.config.schema import RunConfig, participants
from dprbft.engines import verbs as work
from dprbft.messages import Broadcast, Release
from dprbft.paths import last_model_file, model_file, release_file, rounds_file
from dprbft.server import checkpoint, rounds
from dprbft.server.checkpoint import load_states
from dprbft.simulation.federation import load_federation
from panas.privacy.accounting.events import Event, PostProcessing, SampledGaussian, Unprotected
from panas.runtime.errors import BudgetExhausted
from panas.runtime.store import read_json, read_lines
from panas.training.checkpoint import load_network
from panas.training.evaluate import accuracy

FREE = {"privacy__allow_unprotected": True}


def check_whole(run: Path, config: RunConfig) -> None:
    """What holds after every run that ended well."""
    f = config.federation
    lines = read_lines(rounds_file(run))
    assert [r["round"] for r in lines] == list(range(1, f.rounds + 1))
    assert [[c["id"] for c in r["clients"]] for r in lines] == participants(config)
    federation = load_federation(config)
    for account, data in zip(accounts(run), federation.clients, strict=True):
        assert account.spent_protected() <= account.budget.epsilon
        saved = load_network(model_file(run, data.id))
        kept = load_states(run, f.clients)[data.id].kept
        assert saved.notes == {"client": data.id, "round": kept.round}
        assert accuracy(saved.bottom, saved.head, data.test) == kept.accuracy
        load_network(last_model_file(run, data.id))
        took_part = any(data.id in c for c in participants(config))
        sends = took_part and f.method != "local" and config.privacy.release != "none"
        assert release_file(run, data.id).exists() == sends
        if sends:
            width, classes = config.network.width, federation.classes
            content = release_file(run, data.id).read_bytes()
            release = Release.from_bytes(content, width=width, classes=classes)
            assert release.kind == config.privacy.release
            assert release.receipt in {e.id for e in account.entries}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"federation__clients": 1},
        {"federation__clients": 3, "federation__participation": 0.4, "federation__rounds": 2},
        {"privacy__release": "class_sums", "federation__head": "local"},
        {"federation__head": "shared", "federation__head_init": "random"},
        {"federation__warm_start": "none", "federation__train_head": True},
        {"federation__method": "local", "training__momentum": 0.5},
        {"privacy__epsilons": [1.0, 8.0], "training__batch_size": 10_000},
        {"privacy__epsilon": math.inf, **FREE},
        {"privacy__release": "raw_rows", "network__unit": False, **FREE},
        {"privacy__search": "unaccounted", **FREE},
        {"privacy__release": "public_rows"},
        {"privacy__release": "none"},
    ],
    ids=lambda c: "-".join(f"{v}" for v in c.values() if not isinstance(v, bool)) or "default",
)
def test_every_variant_trains_and_keeps_its_budget(
    changes: dict,
    tiny: Callable[..., RunConfig],
    carry: Callable[..., None],
    tmp_path: Path,
):
    config = tiny(**changes)
    carry(tmp_path / "r", config)
    check_whole(tmp_path / "r", config)


@pytest.mark.slow
def test_passes_that_were_tuned_are_those_that_train_and_are_charged(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    # The configuration's own single pass is not on the menu.
    config = tiny(
        federation__rounds=2,
        tuning__trials=3,
        tuning__initial=2,
        tuning__epochs=(2, 4),
        tuning__batch_sizes=(20,),
        tuning__noise_factor=(1.0, 1.0),
    )
    carry(tmp_path / "r", config)
    check_whole(tmp_path / "r", config)
    states = load_states(tmp_path / "r", 2)
    for account, state in zip(accounts(tmp_path / "r"), states, strict=True):
        epochs, plan = state.settings.epochs, state.plan
        assert epochs in (2, 4)
        assert plan is not None
        assert plan.epochs == epochs
        trained = [e for e in account.events("training") if isinstance(e, SampledGaussian)]
        assert [e.steps for e in trained] == [math.ceil(epochs / plan.rate - 1e-9)] * 2
        assert 0.9 * account.budget.epsilon < account.spent() <= account.budget.epsilon


def events_of(run: Path, phase: str) -> list[list[Event]]:
    return [account.events(phase) for account in accounts(run)]


def test_public_rows_and_no_release_leave_the_whole_budget_to_training(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    for kind in ("public_rows", "none"):
        run, config = tmp_path / kind, tiny(privacy__release=kind, federation__rounds=2)
        carry(run, config)
        expected = [PostProcessing()] * 2 if kind == "public_rows" else []
        assert events_of(run, "release") == [expected] * 2
        for account in accounts(run):
            assert account.spent("release") == 0
            assert 0.95 * account.budget.epsilon < account.spent() <= account.budget.epsilon
        lines = read_lines(rounds_file(run))
        assert all((r["up_bytes"] == r["down_bytes"] == 0) == (kind == "none") for r in lines)
        first = work.initial_broadcast(work.Task(config.model_dump_json(), run, 0, "cpu"))
        sent = (run / "checkpoint" / "round-002" / "broadcast.safetensors").read_bytes()
        width, classes = config.network.width, 10
        before, after = (
            Broadcast.from_bytes(b, width=width, classes=classes) for b in (first, sent)
        )
        assert torch.equal(before.weight, after.weight) == (kind == "none")


def test_personalised_budgets_are_each_spent_and_none_exceeded(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    carry(tmp_path / "r", tiny(privacy__epsilons=[1.0, 8.0]))
    for account, epsilon in zip(accounts(tmp_path / "r"), (1.0, 8.0), strict=True):
        assert account.budget.epsilon == epsilon
        assert 0.9 * epsilon < account.spent() <= epsilon


@pytest.mark.slow
def test_more_than_twenty_clients(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(
        federation__clients=22,
        federation__participation=0.3,
        data__limit=None,
        federation__min_samples=20,
    )
    carry(tmp_path / "r", config)
    check_whole(tmp_path / "r", config)


@pytest.mark.slow
def test_bytes_are_those_of_the_messages(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(federation__head_init="random", federation__rounds=2)
    carry(tmp_path / "r", config)
    first, second = read_lines(rounds_file(tmp_path / "r"))
    sizes = [release_file(tmp_path / "r", i).stat().st_size for i in range(2)]
    assert second["up_bytes"] == pytest.approx(sum(sizes), abs=100)  # the header's digits vary
    assert first["down_bytes"] == 2 * second["down_bytes"]  # the random head had to be sent
    carry(tmp_path / "l", tiny(federation__method="local"))
    (line,) = read_lines(rounds_file(tmp_path / "l"))
    assert (line["up_bytes"], line["down_bytes"]) == (0, 0)


class Stop(BaseException):
    """A death that no handler of the package knows."""


def interrupt(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, call: int, *, after: bool = False
) -> None:
    """Die at the k-th call of a function, before or after it has done its work."""
    original, count = getattr(owner, name), [0]

    def dying(*args: object, **named: object) -> object:
        count[0] += 1
        if count[0] == call and not after:
            raise Stop
        result = original(*args, **named)
        if count[0] == call:
            raise Stop
        return result

    monkeypatch.setattr(owner, name, dying)


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (work, "local_round", 1, True),
        (rounds, "write_checkpoint", 3, False),
        pytest.param(work, "start", 2, False, marks=pytest.mark.slow),
        pytest.param(work, "finish_round", 3, False, marks=pytest.mark.slow),
        pytest.param(rounds, "write_checkpoint", 2, False, marks=pytest.mark.slow),
        pytest.param(checkpoint, "write_json", 4, False, marks=pytest.mark.slow),
        pytest.param(checkpoint, "write_json", 3, True, marks=pytest.mark.slow),
    ],
)
def test_a_death_anywhere_is_resumed_and_stays_paid_for(
    owner: object,
    name: str,
    call: int,
    after: bool,
    tiny: Callable[..., RunConfig],
    carry: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    run, config = tmp_path / "r", tiny(federation__rounds=2)
    with monkeypatch.context() as m:
        interrupt(m, owner, name, call, after=after)
        # Models are written in a `finally`, which a real death would not reach.
        m.setattr(rounds, "write_models", lambda *args: None)
        with pytest.raises(Stop):
            carry(run, config)
    before, spent = contents(run), [a.spent() for a in accounts(run)]
    carry(run, config)
    assert_kept(before)
    for account, least in zip(accounts(run), spent, strict=True):
        assert least <= account.spent() <= account.budget.epsilon
    check_whole(run, config)


@pytest.mark.slow
def test_noise_grows_after_charges_without_a_round(
    tiny: Callable[..., RunConfig],
    carry: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    run, config = tmp_path / "r", tiny(federation__rounds=3)
    with monkeypatch.context() as m:
        interrupt(m, rounds, "write_checkpoint", 3)  # in round 2, when everything of it is charged
        with pytest.raises(Stop):
            carry(run, config)
    carry(run, config)
    for account in accounts(run):
        for phase in ("training", "release"):
            sigmas = [e.noise_multiplier for e in account.events(phase)]
            assert len(sigmas) == 4
            assert sigmas[0] == sigmas[1]
            assert sigmas[2] == sigmas[3] > 1.02 * sigmas[1]
        assert account.spent() <= account.budget.epsilon


def test_a_budget_that_runs_out_keeps_the_models_of_the_last_whole_round(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    run = tmp_path / "r"
    config = tiny(training__noise_multiplier=0.9, training__batch_size=16, federation__rounds=200)
    with pytest.raises(BudgetExhausted, match="last valid model"):
        carry(run, config)
    lines = read_lines(rounds_file(run))
    assert 1 <= len(lines) < 200
    last = len(lines)
    for account, data in zip(accounts(run), load_federation(config).clients, strict=True):
        assert account.spent() <= account.budget.epsilon
        saved = load_network(last_model_file(run, data.id))
        assert saved.notes["round"] == last
        assert all(bool(torch.isfinite(p).all()) for p in saved.bottom.parameters())
    before = contents(run)
    with pytest.raises(BudgetExhausted):
        carry(run, config)
    assert_kept(before)


def test_rounds_and_checkpoint_agree(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    run = tmp_path / "r"
    carry(run, tiny(federation__rounds=2))
    assert read_json(run / "checkpoint" / "latest.json") == {"round": 2}
    assert [p.name for p in (run / "checkpoint").glob("round-*")] == ["round-002"]
    kept = read_json(run / "checkpoint" / "round-002" / "rounds.json")["rounds"]
    assert kept == [json.loads(x) for x in rounds_file(run).read_text().splitlines()]


def test_raw_rows_and_a_search_on_private_samples_are_charged_as_unprotected(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    run = tmp_path / "r"
    config = tiny(
        privacy__release="raw_rows", privacy__search="unaccounted", network__unit=False, **FREE
    )
    carry(run, config)
    for account in accounts(run):
        assert account.events("search") == account.events("release") == [Unprotected()]
        assert account.spent("training") <= account.budget.epsilon
        assert account.spent() == math.inf
