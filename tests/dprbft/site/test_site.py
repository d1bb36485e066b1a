"""A site's state, and the plan that follows from what its budget has left."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import fresh_state

from dprbft.config.schema import RunConfig, participants
from dprbft.methods.rounds.plan import current_plan
from dprbft.methods.rounds.state import Kept, RoundScores, State
from dprbft.methods.rounds.training import train_round
from dprbft.site.site import Site
from panas.architecture.head import Head
from panas.architecture.network import weights_of
from panas.privacy.accounting.events import Gaussian
from panas.privacy.calibration import epsilon_of, release_multiplier
from panas.privacy.ledger.charge import Charge
from panas.runtime.errors import BadInput, BudgetExhausted

Tiny = Callable[..., RunConfig]
MakeSite = Callable[..., Site]


def state_of(site: Site, **changes: Any) -> State:
    state = fresh_state(site, 0.5)
    doubled = {name: 2 * weight for name, weight in state.head.items()}
    return dataclasses.replace(state, kept_head=doubled, **changes)


@pytest.fixture
def site(tiny: Tiny, make_site: MakeSite, tmp_path: Path) -> Site:
    return make_site(tiny(federation__rounds=2), tmp_path)


def charge(site: Site, event: Gaussian, phase: str = "training") -> None:
    site.ledger.charge(
        Charge(
            event=event,
            phase=phase,
            mechanism="test",
            recipient="nobody",
            sensitivity=1.0,
        ),
    )


def test_a_state_survives_its_bytes(site: Site):
    state = state_of(site, histogram=(1.5, 2.0), scores=RoundScores(local=0.25), kept=Kept(round=3))
    back = State.from_bytes(state.to_bytes(), Path("state"))
    assert back.to_json() == state.to_json()
    assert (back.kept, back.scores, back.settings) == (state.kept, state.scores, state.settings)
    for group in ("bottom", "head", "kept_bottom", "kept_head"):
        mine, theirs = getattr(state, group), getattr(back, group)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[k], theirs[k]) for k in mine)
    bottom, head = back.networks(site)
    _, kept = back.kept_networks(site)
    assert torch.equal(kept.linear.weight, 2 * head.linear.weight)
    x = site.data.test.inputs()
    assert bottom(x).shape == (len(x), site.spec.width)


@pytest.mark.slow
def test_a_plan_survives_the_bytes(site: Site):
    plan = current_plan(site, state_of(site))
    state = State.from_bytes(state_of(site, plan=plan).to_bytes(), Path("s"))
    assert state.plan == plan
    assert state_of(site).plan is None


def test_a_damaged_state_is_refused_by_name(site: Site):
    content = bytearray(state_of(site).to_bytes())
    content[-5] ^= 1
    with pytest.raises(BadInput, match="round-001"):
        State.from_bytes(bytes(content), Path("checkpoint/round-001"))
    with pytest.raises(BadInput):
        State.from_bytes(b"nothing", Path("state"))


def test_opening_a_site_opens_its_account_once(site: Site, make_site: MakeSite, tmp_path: Path):
    before = site.ledger.path.read_bytes()
    again = make_site(site.config, tmp_path)
    assert site.ledger.path.read_bytes() == before
    assert again.budget == site.budget


@pytest.mark.slow
def test_a_client_that_trains_alone_plans_for_no_release(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    config = tiny(federation__method="local", federation__rounds=2)
    site = make_site(config, tmp_path)
    account = site.ledger.account()
    assert account.relation == "add-or-remove-one"
    assert account.subsets == ("train", "search")
    plan = current_plan(site, state_of(site))
    assert plan.releases == 0
    for _ in range(plan.rounds):
        charge(site, plan.training_event)
    assert site.ledger.account().spent() > 0.98 * site.budget.epsilon


@pytest.mark.slow
def test_the_first_plan_fits_the_budget_and_what_was_spent(site: Site):
    charge(site, Gaussian(6.0), "search")
    plan = current_plan(site, state_of(site))
    assert (plan.rounds, plan.releases) == (2, 2)
    total = epsilon_of([Gaussian(6.0), *plan.events()], site.budget)
    assert 0.98 * site.budget.epsilon < total <= site.budget.epsilon


@pytest.mark.slow
def test_more_noise_than_the_least_is_kept_and_buys_sharper_releases(site: Site):
    least = current_plan(site, state_of(site))
    state = state_of(site)
    loud = dataclasses.replace(state.settings, noise_multiplier=3 * least.noise_multiplier)
    plan = current_plan(site, dataclasses.replace(state, settings=loud))
    assert plan.noise_multiplier == pytest.approx(3 * least.noise_multiplier)
    assert plan.release_noise < least.release_noise
    assert epsilon_of(plan.events(), site.budget) <= site.budget.epsilon


def test_a_plan_goes_on_while_every_charge_is_accounted_for(site: Site):
    plan = current_plan(site, state_of(site))
    rest = dataclasses.replace(plan, rounds=1, releases=1)
    charge(site, plan.release_event)
    state = state_of(site, plan=rest, charges=1)
    assert current_plan(site, state) == rest


@pytest.mark.slow
def test_a_charge_that_no_round_accounts_for_raises_all_noise_that_is_left(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    site = make_site(tiny(federation__rounds=3), tmp_path)
    plan = current_plan(site, state_of(site))
    one, rest = (dataclasses.replace(plan, rounds=k, releases=k) for k in (1, 2))
    for event in (*one.events(), *one.events()):
        charge(site, event)
    stretched = current_plan(site, state_of(site, plan=rest, charges=2))
    factor = stretched.noise_multiplier / rest.noise_multiplier
    assert factor > 1.02
    assert stretched.release_noise / rest.release_noise == pytest.approx(factor)
    spent = site.ledger.account().protected()
    assert epsilon_of([*spent, *stretched.events()], site.budget) <= site.budget.epsilon


@pytest.mark.slow
def test_a_death_in_the_first_round_raises_all_noise_alike(site: Site):
    plan = current_plan(site, state_of(site))
    charge(site, plan.training_event)
    again = current_plan(site, state_of(site))
    factor = again.noise_multiplier / plan.noise_multiplier
    assert 1.02 < factor < 3
    assert again.release_noise / plan.release_noise == pytest.approx(factor)


@pytest.mark.slow
def test_a_last_round_that_died_when_all_was_spent_is_skipped(site: Site):
    plan = current_plan(site, state_of(site))
    for event in plan.events():
        charge(site, event)
    state = state_of(site, plan=dataclasses.replace(plan, rounds=1, releases=1), charges=2)
    for _ in range(8):  # what a plan leaves may pay for one more, with much noise
        again = current_plan(site, state)
        if again is None:
            return
        for event in again.events():
            charge(site, event)
    raise AssertionError("no end")


def test_a_budget_with_nothing_left_is_refused(tiny: Tiny, make_site: MakeSite, tmp_path: Path):
    site = make_site(tiny(privacy__epsilon=0.05), tmp_path)
    charge(site, Gaussian(release_multiplier(site.budget, 1, 0.9999)))
    with pytest.raises(BudgetExhausted, match="raise epsilon"):
        current_plan(site, state_of(site))


def test_a_noise_that_the_user_fixed_is_taken_as_it_is(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    site = make_site(tiny(training__noise_multiplier=0.7), tmp_path)
    plan = current_plan(site, state_of(site))
    assert plan.noise_multiplier == 0.7
    charge(site, Gaussian(10.0))
    assert current_plan(site, state_of(site, plan=plan, charges=0)) == plan


def test_a_schedule_counts_the_rounds_that_a_client_takes_part_in(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path
):
    config = tiny(federation__clients=4, federation__participation=0.5, federation__rounds=6)
    schedules = [make_site(config, tmp_path, i).schedule() for i in range(4)]
    taken = [sum(i in c for c in participants(config)) for i in range(4)]
    assert [s.rounds for s in schedules] == [s.releases for s in schedules] == taken
    assert sum(taken) == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({}, False),
        ({"federation__train_head": True}, True),
        ({"federation__method": "local"}, True),
        ({"federation__head_init": "random"}, True),
    ],
)
def test_one_rule_says_whether_the_head_moves(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, changes: dict, moves: bool
):
    site = make_site(tiny(**changes), tmp_path)
    assert site.spec.head_moves == site.spec.head_moves == moves
    state = state_of(site)
    bottom, head = state.networks(site)
    train_round(site, state, bottom, head, 1)
    assert torch.equal(head.linear.weight, state.head["linear.weight"]) != moves


@pytest.mark.parametrize(
    "changes",
    [
        {"federation__method": "local"},
        {"privacy__release": "none"},
        {"privacy__release": "public_rows"},
        {"privacy__release": "raw_rows", "privacy__allow_unprotected": True},
    ],
)
def test_what_no_budget_can_pay_for_is_not_planned(
    tiny: Tiny, make_site: MakeSite, tmp_path: Path, changes: dict
):
    schedule = make_site(tiny(**changes), tmp_path).schedule()
    assert (schedule.rounds, schedule.releases) == (1, 0)


def test_weights_are_a_copy():
    head = Head(3, 2)
    copied = weights_of(head)
    with torch.no_grad():
        head.linear.weight.zero_()
    assert bool(copied["linear.weight"].any())
