"""A site's plan for its rounds: within every budget, also after a death, on each subset apart."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from site_data import with_data
from tiny_methods import method_config

from baselines.common.spending import (
    Mechanism,
    Planned,
    Spending,
    after_round,
    begin,
    charged,
    current,
)
from dprbft.site.site import Site
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted

MakeSite = Callable[..., Site]
TRAIN = Mechanism("dp-sgd", 1.0)
RELEASE = Mechanism("class-sums", math.sqrt(2), phase="release")
FULL = Planned(batch_size=1000, clip=1.0, epochs=1, releases=3)


def site_of(make_site: MakeSite, run: Path, **privacy: Any) -> Site:
    return make_site(method_config("fedavg", {}, privacy, limit=60, clients=1, rounds=3), run)


def spend(site: Site, spending: Spending, number: int, *, releases: int = 1) -> Spending:
    """A round: training, and a release."""
    spending = current(site, spending)
    assert spending.plan is not None
    with charged(site, TRAIN, spending.plan.training_event, number):
        pass
    for _ in range(releases):
        with charged(site, RELEASE, spending.plan.release_event, number):
            pass
    return after_round(site, spending, releases=releases)


def test_what_is_planned_is_what_is_spent(make_site: MakeSite, tmp_path: Path):
    site = site_of(make_site, tmp_path / "r")
    spending = begin(site, FULL)
    assert Spending.from_json(spending.to_json()) == spending
    first = spending.plan
    for number in (1, 2, 3):
        spending = spend(site, spending, number)
    assert first is not None
    assert spending.plan == replace(first, rounds=0, releases=0)
    assert spending.skips
    assert 0.95 * 8 < site.account.spent() <= 8


def test_without_a_budget_there_is_no_plan(make_site: MakeSite, tmp_path: Path):
    site = site_of(make_site, tmp_path / "r", epsilon=math.inf, allow_unprotected=True)
    spending = begin(site, FULL)
    assert spending.plan is None
    assert not spending.skips
    with charged(site, TRAIN, None, 1):
        pass
    assert current(site, spending) == spending
    assert site.account.spent() == math.inf


def test_what_a_dead_process_charged_makes_the_rest_noisier(make_site: MakeSite, tmp_path: Path):
    site = site_of(make_site, tmp_path / "r")
    spending = begin(site, FULL)
    assert spending.plan is not None
    before = spending.plan
    with charged(site, TRAIN, before.training_event, 1):
        pass  # and the process dies before it releases
    for number in (1, 2, 3):
        spending = spend(site, spending, number)
    assert spending.plan is not None
    assert spending.plan.noise_multiplier > 1.02 * before.noise_multiplier
    assert spending.plan.release_noise > 1.02 * before.release_noise
    assert site.account.spent() <= 8


def test_what_nothing_is_left_for_is_skipped(make_site: MakeSite, tmp_path: Path):
    site = site_of(make_site, tmp_path / "r")
    spending = begin(site, replace(FULL, rounds=1, releases=0))
    assert spending.plan is not None
    for _ in range(5):  # a process charges all that is left, and dies
        now = current(site, spending)
        if not now.skips:
            with charged(site, TRAIN, now.plan.training_event, 1):
                pass
    assert current(site, spending).skips
    assert site.account.spent() <= 8

    def go_on() -> None:
        for _ in range(20):  # new plans, of what is left beside all of it
            anew = begin(site, replace(FULL, rounds=1, releases=0)).plan
            assert anew is not None
            charged(site, TRAIN, anew.training_event, 1)

    with pytest.raises(BudgetExhausted):
        go_on()
    assert 7.9 < site.account.spent() <= 8


def test_subsets_are_planned_apart(make_site: MakeSite, tmp_path: Path):
    site = site_of(make_site, tmp_path / "r")
    plan = replace(FULL, releases=0)
    halves = {s: begin(site, replace(plan, subset=s, samples=20)) for s in ("train", "search")}
    assert halves["train"].plan == halves["search"].plan
    for number in (1, 2, 3):
        for subset, spending in halves.items():
            now = current(site, spending)
            assert now.plan == spending.plan  # what the other half spent is no death
            assert now.plan is not None
            with charged(site, replace(TRAIN, subset=subset), now.plan.training_event, number):
                pass
            halves[subset] = after_round(site, now)
    assert 0.95 * 8 < site.account.spent() <= 8


def test_a_plan_keeps_the_share_of_the_run_and_the_budget_for_life(
    make_site: MakeSite, tmp_path: Path
):
    """Other runs have spent of the budget for life: one bound asks for more noise of training, the
    other for more of releases."""
    site = site_of(make_site, tmp_path / "r", epsilon=3.0)
    path = tmp_path / "life.jsonl"
    ledger = Ledger(path)
    ledger.open_account(Budget(8.0, 1e-5), subsets=("train", "search"))
    other = ledger.begin_run("other", Budget(7.5, 1e-5))
    before = Charge(
        event=Gaussian(0.69), phase="training", mechanism="dp-sgd", recipient="x", sensitivity=1
    )
    with other.charge(before):
        pass
    own = ledger.begin_run(site.paths.run, Budget(3.0, 1e-5))
    site = replace(site, ledger=own)
    assert len(site.bounds()) == 2
    spending = begin(site, FULL)
    for number in (1, 2, 3):
        spending = spend(site, spending, number)
    assert site.account.spent() <= 3
    assert own.account().spent() <= 8


def test_a_ledger_that_protects_groups_is_not_charged_for_samples_without(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = site_of(make_site, tmp_path / "r")
    patient = replace(site.account, unit="one group: patient")
    monkeypatch.setattr(Site, "account", patient)
    with pytest.raises(BadInput, match="group"):
        charged(site, TRAIN, Gaussian(10.0), 1)
    train = replace(site.data.train, groups=torch.arange(len(site.data.train)))
    grouped = with_data(site, replace(site.data, train=train))
    charged(grouped, TRAIN, Gaussian(10.0), 1)
