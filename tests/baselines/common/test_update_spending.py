"""A site's plan for its rounds: within every budget, also after a death, on each subset apart."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from site_data import with_data

from baselines.common.spending import (
    Mechanism,
    Planned,
    Spending,
    after_round,
    begin,
    charged,
    current,
)
from dprbft.config.files import build_config
from dprbft.site.site import Client
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted

Site = Callable[..., Client]
TRAIN = Mechanism("dp-sgd", 1.0)
RELEASE = Mechanism("class-sums", math.sqrt(2), phase="release")
FULL = Planned(batch_size=1000, clip=1.0, epochs=1, releases=3)


def client_of(site: Site, run: Path, **privacy: Any) -> Client:
    federation = {"method": "fedavg", "clients": 1, "rounds": 3}
    return site(
        build_config({"data": {"limit": 60}, "federation": federation, "privacy": privacy}), run
    )


def spend(client: Client, spending: Spending, number: int, *, releases: int = 1) -> Spending:
    """A round: training, and a release."""
    spending = current(client, spending)
    assert spending.plan is not None
    with charged(client, TRAIN, spending.plan.training_event, number):
        pass
    for _ in range(releases):
        with charged(client, RELEASE, spending.plan.release_event, number):
            pass
    return after_round(client, spending, releases=releases)


def test_what_is_planned_is_what_is_spent(site: Site, tmp_path: Path):
    client = client_of(site, tmp_path / "r")
    spending = begin(client, FULL)
    assert Spending.from_json(spending.to_json()) == spending
    first = spending.plan
    for number in (1, 2, 3):
        spending = spend(client, spending, number)
    assert first is not None
    assert spending.plan == replace(first, rounds=0, releases=0)
    assert spending.skips
    assert 0.95 * 8 < client.account.spent() <= 8


def test_without_a_budget_there_is_no_plan(site: Site, tmp_path: Path):
    client = client_of(site, tmp_path / "r", epsilon=math.inf, allow_unprotected=True)
    spending = begin(client, FULL)
    assert spending.plan is None
    assert not spending.skips
    with charged(client, TRAIN, None, 1):
        pass
    assert current(client, spending) == spending
    assert client.account.spent() == math.inf


def test_what_a_dead_process_charged_makes_the_rest_noisier(site: Site, tmp_path: Path):
    client = client_of(site, tmp_path / "r")
    spending = begin(client, FULL)
    assert spending.plan is not None
    before = spending.plan
    with charged(client, TRAIN, before.training_event, 1):
        pass  # and the process dies before it releases
    for number in (1, 2, 3):
        spending = spend(client, spending, number)
    assert spending.plan is not None
    assert spending.plan.noise_multiplier > 1.02 * before.noise_multiplier
    assert spending.plan.release_noise > 1.02 * before.release_noise
    assert client.account.spent() <= 8


def test_what_nothing_is_left_for_is_skipped(site: Site, tmp_path: Path):
    client = client_of(site, tmp_path / "r")
    spending = begin(client, replace(FULL, rounds=1, releases=0))
    assert spending.plan is not None
    for _ in range(5):  # a process charges all that is left, and dies
        now = current(client, spending)
        if not now.skips:
            with charged(client, TRAIN, now.plan.training_event, 1):
                pass
    assert current(client, spending).skips
    assert client.account.spent() <= 8

    def go_on() -> None:
        for _ in range(20):  # new plans, of what is left beside all of it
            anew = begin(client, replace(FULL, rounds=1, releases=0)).plan
            assert anew is not None
            charged(client, TRAIN, anew.training_event, 1)

    with pytest.raises(BudgetExhausted):
        go_on()
    assert 7.9 < client.account.spent() <= 8


def test_subsets_are_planned_apart(site: Site, tmp_path: Path):
    client = client_of(site, tmp_path / "r")
    plan = replace(FULL, releases=0)
    halves = {s: begin(client, replace(plan, subset=s, samples=20)) for s in ("train", "search")}
    assert halves["train"].plan == halves["search"].plan
    for number in (1, 2, 3):
        for subset, spending in halves.items():
            now = current(client, spending)
            assert now.plan == spending.plan  # what the other half spent is no death
            assert now.plan is not None
            with charged(client, replace(TRAIN, subset=subset), now.plan.training_event, number):
                pass
            halves[subset] = after_round(client, now)
    assert 0.95 * 8 < client.account.spent() <= 8


def test_a_plan_keeps_the_share_of_the_run_and_the_budget_for_life(site: Site, tmp_path: Path):
    """Other runs have spent of the budget for life: one bound asks for more noise of training, the
    other for more of releases."""
    client = client_of(site, tmp_path / "r", epsilon=3.0)
    path = tmp_path / "life.jsonl"
    ledger = Ledger(path)
    ledger.open_account(Budget(8.0, 1e-5), subsets=("train", "search"))
    other = ledger.begin_run("other", Budget(7.5, 1e-5))
    before = Charge(
        event=Gaussian(0.69), phase="training", mechanism="dp-sgd", recipient="x", sensitivity=1
    )
    with other.charge(before):
        pass
    own = ledger.begin_run(client.place.run, Budget(3.0, 1e-5))
    client = replace(client, ledger=own)
    assert len(client.bounds()) == 2
    spending = begin(client, FULL)
    for number in (1, 2, 3):
        spending = spend(client, spending, number)
    assert client.account.spent() <= 3
    assert own.account().spent() <= 8


def test_a_ledger_that_protects_groups_is_not_charged_for_samples_without(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = client_of(site, tmp_path / "r")
    patient = replace(client.account, unit="one group: patient")
    monkeypatch.setattr(Client, "account", patient)
    with pytest.raises(BadInput, match="group"):
        charged(client, TRAIN, Gaussian(10.0), 1)
    train = replace(client.data.train, groups=torch.arange(len(client.data.train)))
    grouped = with_data(client, replace(client.data, train=train))
    charged(grouped, TRAIN, Gaussian(10.0), 1)
