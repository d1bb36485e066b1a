"""PerFedRLNAS: what is sent to whom, what the server makes of it, and what the reward costs."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_methods import method_config

from baselines import perfedrlnas
from baselines.perfedrlnas import answers, choice_of, window
from dprbft.config.schema import RunConfig
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Turn
from dprbft.paths import ledger_file
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.privacy.accounting.events import Gaussian, SampledGaussian
from panas.privacy.ledger.charge import Charge, Receipt
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream

OPTIONS = {"scale": 0.2, "last": 4, "epochs": 1, "batch_size": 1000}
FACTS = Facts(class_names=("0", "1", "2"), shape=(1, 8, 8), dtype="uint8")


def config_of(**options: Any) -> RunConfig:
    return method_config("perfedrlnas", OPTIONS | options, limit=225, clients=3)


def side_of(**options: Any) -> Side:
    return Side(config_of(**options), FACTS, FACTS.no_samples())


def changed(order: Bundle, seed: int) -> Bundle:
    """What a site might send: other weights, of the shapes that it was sent."""
    g = torch.Generator().manual_seed(seed)
    arrays = {k: torch.randn(t.shape, generator=g) for k, t in order.arrays.items()}
    return Bundle(arrays, {"samples": 10 * (seed + 1), "reward": 0.2 * seed})


def test_a_round_of_the_server_is_the_explicit_masked_sum():
    side = side_of()
    memory = perfedrlnas.server_start(side)
    orders = perfedrlnas.orders(side, memory, range(3), 1)
    sent = {i: changed(orders[i], i) for i in range(2)}
    updates = [Update(i, 1, bundle) for i, bundle in sent.items()]
    after = perfedrlnas.server_round(side, memory, updates, stream(0)).part("network")
    for name, old in memory.part("network").items():
        total, weights = torch.zeros_like(old), torch.zeros_like(old)
        for bundle in sent.values():
            if name in bundle.arrays:
                paths = window(old.shape, bundle.arrays[name].shape)
                total[paths] += bundle.record["samples"] * bundle.arrays[name]
                weights[paths] += bundle.record["samples"]
        expected = torch.where(weights > 0, total / weights, old)
        torch.testing.assert_close(after[name], expected)


def test_policies_of_those_who_sent_a_reward_move_and_others_do_not():
    side = side_of(baseline="best")
    memory = perfedrlnas.server_start(side)
    orders = perfedrlnas.orders(side, memory, range(3), 1)
    without = Bundle(orders[2].arrays, {"samples": 5})
    updates = [Update(i, 1, changed(orders[i], i)) for i in range(2)] + [Update(2, 1, without)]
    logits = perfedrlnas.server_round(side, memory, updates, stream(0)).part("policies")["logits"]
    assert logits[0].any()
    assert logits[1].any()
    assert not logits[2].any()


def test_sites_are_sent_what_their_policy_drew_and_in_the_end_its_likeliest():
    side = side_of()
    memory = perfedrlnas.server_start(side)
    for round in (1, 2):
        orders = perfedrlnas.orders(side, memory, range(3), round)
        for site in range(3):
            assert tuple(orders[site].record["choice"]) == choice_of(
                side.config, memory, site, round
            )
    drawn = {choice_of(side.config, memory, site, r) for site in range(3) for r in (1, 2)}
    assert len(drawn) > 1
    arrays = dict(memory.arrays)
    arrays["policies.logits"] = arrays["policies.logits"].clone()
    arrays["policies.logits"][1, -1] = 3.0
    last = perfedrlnas.orders(side, Bundle(arrays), range(3), 3)
    assert last[1].record["choice"] == [*last[0].record["choice"][:-1], 2]
    assert set(last[0].record["choice"]) == {0}


def test_right_answers_are_counted_by_units():
    logits = torch.eye(3)[torch.tensor([0, 1, 2, 2, 0])]
    y = torch.tensor([0, 1, 2, 0, 1])
    x = torch.zeros(5, 1, 2, 2, dtype=torch.uint8)
    assert answers(logits, Samples(x, y, 3)).tolist() == [3.0, 2.0]
    groups = torch.tensor([7, 9, 9, 9, 4])
    right, wrong = answers(logits, Samples(x, y, 3, groups)).tolist()
    assert right == pytest.approx(1 + 2 / math.sqrt(5))
    assert wrong == pytest.approx(1 + 1 / math.sqrt(5))


class First(Ledger):
    """A ledger on which training fits, and no release."""

    def charge(self, charge: Charge, *, resumes: bool = False) -> Receipt:
        if charge.phase == "release":
            raise BudgetExhausted("expected room for the next charge, got none; raise --epsilon")
        return super().charge(charge, resumes=resumes)


def turn_of(site: Site) -> Turn:
    side = Side(site.config, site.facts, site.public)
    memory, start = perfedrlnas.site_start(site), perfedrlnas.server_start(side)
    order = Order(1, perfedrlnas.orders(side, start, [0], 1)[0])
    return perfedrlnas.site_round(site, memory, order)


MakeSite = Callable[..., Site]


@pytest.mark.slow
def test_a_round_charges_weights_and_reward(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(config_of(), tmp_path / "r")
    scales: list[tuple[int, ...]] = []

    def normal(self: SystemNoise, *shape: int) -> torch.Tensor:
        scales.append(shape)
        return torch.full(shape, 0.25, dtype=torch.float64)

    monkeypatch.setattr("baselines.perfedrlnas.SystemNoise.normal", normal)
    turn = turn_of(site)
    events = {e.id: e for e in site.account.entries}
    assert [type(events[r].event) for r in turn.receipts] == [SampledGaussian, Gaussian]
    training, reward = (events[r].charge for r in turn.receipts)
    assert (training.subset, reward.subset) == ("train", "train")
    assert (reward.sensitivity, reward.phase) == (math.sqrt(2), "release")
    assert isinstance(reward.event, Gaussian)
    assert turn.update.record["samples"] == site.units
    assert scales[-1] == (2,)
    units, noise = site.data.validation.units, 0.25 * math.sqrt(2) * reward.event.noise_multiplier
    right = turn.update.record["reward"] * (units + 2 * noise) - noise
    assert right == pytest.approx(np.round(right), abs=1e-6)
    assert set(turn.update.record) == {"samples", "reward"}
    assert site.account.spent() <= 8


def test_the_noise_of_a_reward_is_that_of_its_charge_and_its_range_is_kept(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(config_of(), tmp_path / "r")
    monkeypatch.setattr(
        "baselines.perfedrlnas.SystemNoise.normal",
        lambda self, *shape: torch.full(shape, 1e-9 if shape != (2,) else -1e6).double(),
    )
    assert turn_of(site).update.record["reward"] == 0.0


def test_without_room_for_a_reward_none_is_sent(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(), tmp_path / "r")
    turn = turn_of(replace(site, ledger=First(ledger_file(site.paths.folder), site.paths.run)))
    assert set(turn.update.record) == {"samples"}
    assert len(turn.receipts) == 1
