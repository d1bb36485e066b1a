"""Algorithm 2 from end to end: every choice of heads, releases and participation."""

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from ledgers import accounts, assert_kept, contents
from whole_run import check_whole, release_in, state_of

from dprbft.config.schema import RunConfig
from dprbft.messages import Broadcast
from dprbft.paths import last_model_file, read_sites, round_folder, rounds_file, server_folder
from dprbft.site.results.scores import read_scores
from panas.privacy.accounting.events import Event, PostProcessing, SampledGaussian, Unprotected
from panas.runtime.errors import BudgetExhausted
from panas.runtime.store import read_json, read_lines
from panas.training.checkpoint import load_network

FREE = {"privacy__allow_unprotected": True}


def slow(changes: dict) -> Any:
    return pytest.param(changes, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        slow({"federation__clients": 1}),
        slow({"federation__clients": 3, "federation__participation": 0.4, "federation__rounds": 2}),
        pytest.param(
            {"privacy__release": "class_sums", "federation__head": "local"}, marks=pytest.mark.slow
        ),
        slow({"federation__head": "shared", "federation__head_init": "random"}),
        pytest.param(
            {"federation__warm_start": "none", "federation__train_head": True},
            marks=pytest.mark.slow,
        ),
        {"federation__method": "local", "training__momentum": 0.5},
        slow({"privacy__epsilons": [1.0, 8.0], "training__batch_size": 10_000}),
        slow({"privacy__epsilon": math.inf, **FREE}),
        pytest.param(
            {"privacy__release": "raw_rows", "network__unit": False, **FREE}, marks=pytest.mark.slow
        ),
        slow({"privacy__search": "unaccounted", **FREE}),
        slow({"privacy__release": "public_rows"}),
        slow({"privacy__release": "none"}),
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
    assert check_whole(tmp_path / "r", config) == []


@pytest.mark.thorough
def test_passes_that_were_tuned_are_those_that_train_and_are_charged(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    # The configuration's own single pass is not on the menu.
    config = tiny(
        federation__rounds=2,
        tuning__trials=2,
        tuning__initial=1,
        tuning__epochs=(2, 4),
        tuning__batch_sizes=(20,),
        tuning__noise_factor=(1.0, 1.0),
    )
    carry(tmp_path / "r", config)
    assert check_whole(tmp_path / "r", config) == []
    for account, paths in zip(accounts(tmp_path / "r"), read_sites(tmp_path / "r"), strict=True):
        state = state_of(paths)
        epochs, plan = state.settings.epochs, state.plan
        assert epochs in (2, 4)
        assert plan is not None
        assert plan.epochs == epochs
        trained = [e for e in account.events("training") if isinstance(e, SampledGaussian)]
        assert [e.steps for e in trained] == [math.ceil(epochs / plan.rate - 1e-9)] * 2
        assert 0.9 * account.budget.epsilon < account.spent() <= account.budget.epsilon


def events_of(run: Path, phase: str) -> list[list[Event]]:
    return [account.events(phase) for account in accounts(run)]


@pytest.mark.slow
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
        lines = read_lines(rounds_file(server_folder(run)))
        assert all((r["up_bytes"] == r["down_bytes"] == 0) == (kind == "none") for r in lines)
        width, classes = config.network.width, 10
        before, after = (
            Broadcast.from_bytes(
                (round_folder(server_folder(run), k) / "broadcast.safetensors").read_bytes(),
                width=width,
                classes=classes,
            )
            for k in (0, 2)
        )
        assert torch.equal(before.weight, after.weight) == (kind == "none")


@pytest.mark.slow
def test_personalised_budgets_are_each_spent_and_none_exceeded(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    carry(tmp_path / "r", tiny(privacy__epsilons=[1.0, 8.0]))
    for account, epsilon in zip(accounts(tmp_path / "r"), (1.0, 8.0), strict=True):
        assert account.budget.epsilon == epsilon
        assert 0.9 * epsilon < account.spent() <= epsilon


@pytest.mark.thorough
def test_more_than_twenty_clients(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(
        federation__clients=22,
        federation__participation=0.3,
        data__limit=900,
        federation__min_samples=20,
    )
    carry(tmp_path / "r", config)
    assert check_whole(tmp_path / "r", config) == []


@pytest.mark.thorough
def test_bytes_are_those_of_the_messages(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], tmp_path: Path
):
    config = tiny(federation__head_init="random", federation__rounds=2)
    carry(tmp_path / "r", config)
    first, second = read_lines(rounds_file(server_folder(tmp_path / "r")))
    for line in (first, second):
        sent = [release_in(tmp_path / "r", line["round"], i).stat().st_size for i in range(2)]
        assert line["up_bytes"] == sum(sent)
    assert first["down_bytes"] == 2 * second["down_bytes"]  # the random head had to be sent
    carry(tmp_path / "l", tiny(federation__method="local"))
    (line,) = read_lines(rounds_file(server_folder(tmp_path / "l")))
    assert (line["up_bytes"], line["down_bytes"]) == (0, 0)


@pytest.mark.slow
def test_a_budget_that_runs_out_keeps_the_models_of_the_last_whole_round(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], run: Path
):
    config = tiny(training__noise_multiplier=1.2, training__batch_size=16, federation__rounds=200)
    with pytest.raises(BudgetExhausted, match="last valid model"):
        carry(run, config)
    last = len(read_lines(rounds_file(server_folder(run))))
    assert 1 <= last < 200
    for account, paths in zip(accounts(run), read_sites(run), strict=True):
        assert account.spent() <= account.budget.epsilon
        saved = load_network(last_model_file(paths.home))
        assert saved.notes["round"] == last
        assert all(bool(torch.isfinite(p).all()) for p in saved.bottom.parameters())
    before = contents(run)
    with pytest.raises(BudgetExhausted):
        carry(run, config)
    assert_kept(before)


@pytest.mark.slow
def test_the_server_keeps_every_round_and_no_accuracy(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], run: Path
):
    carry(run, tiny(federation__rounds=2))
    server = server_folder(run)
    assert read_json(server / "latest.json") == {"round": 2}
    kept = {str(p.relative_to(server)) for p in server.rglob("*.*")}
    sites = [f"site-000{i}.safetensors" for i in range(2)]
    answers = [f"round-{r:03d}/broadcast.safetensors" for r in range(3)]
    received = [f"round-{r:03d}/{name}" for r in (1, 2) for name in (*sites, "absent.json")]
    assert kept == {"latest.json", "rounds.jsonl", *answers, *received}
    text = rounds_file(server).read_text()
    scores = [score for paths in read_sites(run) for score in read_scores(paths.home)]
    assert len(scores) == 2 * 3
    assert not any(name in text for name in ("accuracy", *asdict(scores[0]).keys() - {"round"}))


@pytest.mark.slow
def test_raw_rows_and_a_search_on_private_samples_are_charged_as_unprotected(
    tiny: Callable[..., RunConfig], carry: Callable[..., None], run: Path
):
    config = tiny(
        privacy__release="raw_rows", privacy__search="unaccounted", network__unit=False, **FREE
    )
    carry(run, config)
    for account in accounts(run):
        assert account.events("search") == account.events("release") == [Unprotected()]
        mechanisms = [e.charge.mechanism for e in account.entries if e.charge.phase == "training"]
        assert mechanisms.count("count") == 1  # no histogram tells how many samples there are
        assert account.spent("training") <= account.budget.epsilon
        assert account.spent() == math.inf
