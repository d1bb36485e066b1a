"""Charges for blocks of steps: no more than are planned, and each before its first step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_methods import FREE, method_config

from baselines.common.spending import Mechanism
from baselines.searches.dp_fnas import Prepaid, Steps, paid_step, plan_steps
from dprbft.site.site import Site
from panas.privacy.accounting.events import SampledGaussian, Unprotected

WHAT = Mechanism("dp-sgd", 1.0, subset="search")


def site_of(make_site: Callable[..., Site], run: Path, **privacy: Any) -> Site:
    return make_site(method_config("fedavg", {}, privacy, limit=60, clients=1), run)


def steps_of(number: int, at_once: int) -> Steps:
    return Steps(
        subset="search", samples=20, number=number, batch_size=1000, clip=1.0, at_once=at_once
    )


@pytest.mark.parametrize(("number", "at_once", "blocks"), [(7, 3, 3), (10, 10, 1), (11, 10, 2)])
def test_blocks_cover_all_steps_and_hardly_more(number: int, at_once: int, blocks: int) -> None:
    steps = steps_of(number, at_once)
    assert steps.blocks == blocks
    assert steps.block <= at_once
    assert number <= steps.block * steps.blocks < number + blocks


def test_steps_are_paid_in_advance_until_the_plan_ends(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    site = site_of(make_site, tmp_path / "r", epsilon=8.0)
    account, charges = plan_steps(site, steps_of(5, 2)), []
    for step in range(6):
        with paid_step(site, account, WHAT, step) as paid:
            assert paid is not None
            charges.append(len(site.account.entries))
            assert paid.receipt == site.account.entries[-1].id
            account = Prepaid.from_json(paid.account.to_json())
    assert charges == [1, 1, 2, 2, 3, 3]
    assert 7.9 < site.account.spent_on("search") <= 8
    assert site.account.spent_on("train") == 0
    with paid_step(site, account, WHAT, 7) as paid:
        assert paid is None  # nothing is left
    assert len(site.account.entries) == 3


def test_a_charge_that_nobody_kept_leaves_more_noise_to_the_rest(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    site = site_of(make_site, tmp_path / "r", epsilon=8.0)
    account = plan_steps(site, steps_of(4, 1))
    with paid_step(site, account, WHAT, 1):
        pass  # the process dies here
    for step in range(4):
        with paid_step(site, account, WHAT, step) as paid:
            assert paid is not None
            account = paid.account
    events = [e.event for e in site.account.entries]
    sigmas = [e.noise_multiplier for e in events if isinstance(e, SampledGaussian)]
    assert len(sigmas) == 5
    assert min(sigmas[1:]) > sigmas[0]
    assert site.account.spent_on("search") <= 8


def test_a_given_noise_is_charged_without_a_budget(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    site = site_of(make_site, tmp_path / "r", **FREE)
    with paid_step(site, plan_steps(site, steps_of(2, 2), 1.5), WHAT, 1) as paid:
        assert paid is not None
    with paid_step(site, plan_steps(site, steps_of(2, 2)), WHAT, 1) as paid:
        assert paid is not None
        assert paid.account.plan is None
    first, second = [e.event for e in site.account.entries]
    assert first == SampledGaussian(1.0, 1.5, 2)
    assert isinstance(second, Unprotected)
