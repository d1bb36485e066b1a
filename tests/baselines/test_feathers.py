"""FEATHERS: phases, rewards, rounds that equal plain DARTS in the limit, budget on both halves."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from noises import Ones
from tiny_methods import FREE, method_config, side_of
from torch import nn
from torch.nn import functional as F

from baselines import feathers
from baselines.feathers import after
from baselines.networks.cnns import initialise
from baselines.networks.darts import DartsSpace, SuperNetwork
from baselines.networks.mlp_space import MixedMLP, MLPSpace
from baselines.networks.searched import alphas_of, weights_but_alphas
from baselines.searches.feathers import (
    Bandit,
    Descent,
    SiteState,
    Steps,
    alternate,
    balancing,
    begin_phases,
    longest_phase,
    loss_change,
    most_measured,
    network_of,
    parts_of,
    search_rounds,
    space_of,
    weighted_loss,
)
from dprbft.config.schema import RunConfig
from dprbft.methods.updates.contract import Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.data.samples import Samples
from panas.privacy.plan import Plan
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream, torch_generator
from panas.training.sgd import OptimizerConfig

MakeSite = Callable[..., Site]
SMALL: dict[str, Any] = {
    "cells": 1,
    "channels": 2,
    "nodes": 1,
    "evaluation_cells": 1,
    "evaluation_channels": 2,
    "batch_size": 1000,
}


def config(
    rounds: int = 4,
    privacy: dict[str, Any] | None = None,
    public: float | None = None,
    **options: Any,
) -> RunConfig:
    sections = {"data": {"public_fraction": public}}
    how: dict[str, Any] = {"rounds": rounds, "baselines": True, "sections": sections}
    return method_config("feathers", SMALL | options, privacy, **how)


def samples(n: int, *shape: int, groups: list[int] | None = None) -> Samples:
    g = torch_generator(stream(0, "samples"))
    x = torch.rand(n, *(shape or (1, 4, 4)), generator=g) * 2 - 1
    y = torch.arange(n) % 3
    return Samples(x, y, 3, None if groups is None else torch.tensor(groups))


# Phases.


def test_phases_have_the_lengths_of_equation_7():
    rng, course = (
        stream(0),
        begin_phases(
            Bandit.fresh(5, rate=0.5, exploration=2.0, temperature=0.05), 200, 3, stream(1)
        ),
    )
    lengths, expected, at = [], [], 0
    for left in range(199, -1, -1):
        if course.phase == "ho":
            if not course.rewards:  # the first round of a phase
                chances = np.exp(np.array(course.bandit.estimates) / 0.05)
                chances /= chances.sum()
                entropy = -float((chances * np.log(chances)).sum())
                expected.append(max(1, math.floor(2.0 * entropy + 0.5)))
                lengths.append(0)
            lengths[-1] += 1
            result: float | None = 0.3 if course.setting == 3 else 0.1
        else:
            at, result = at + 1, None
        course = after(course, result, left, 3, rng)
    assert lengths[:-1] == expected[:-1]  # the last one is cut by the end
    assert lengths[0] == 3  # rnd(2 ln 5) = rnd(3.22)
    assert min(lengths) == 1
    assert course.bandit.best == 3
    assert at == 3 * len(lengths) - (3 - last_phase(200, lengths))


def last_phase(rounds: int, lengths: list[int]) -> int:
    return rounds - sum(lengths) - 3 * (len(lengths) - 1)


@given(
    st.integers(1, 40), st.integers(1, 6), st.integers(1, 5), st.floats(0, 3), st.integers(0, 99)
)
def test_no_stage_measures_more_than_is_planned_and_the_last_round_trains(
    rounds: int, settings: int, length: int, beta: float, seed: int
):
    rng = stream(seed)
    fresh = Bandit.fresh(settings, rate=0.7, exploration=beta, temperature=0.1)
    course, measured = begin_phases(fresh, rounds, length, rng), 0
    for left in range(rounds - 1, -1, -1):
        measured += course.phase == "ho"
        last = course.phase
        course = after(course, float(rng.normal(0, 0.3)), left, length, rng)
    assert last == "train"
    assert measured <= most_measured(rounds, longest_phase(settings, beta), length)


def test_a_setting_that_no_site_could_measure_stays_unknown():
    fresh = Bandit.fresh(3, rate=0.5, exploration=9.0, temperature=1.0)
    course = begin_phases(fresh, 10, 2, stream(0))
    first = course.setting
    for left, result in zip((9, 8, 7), (None, 0.1, 0.2), strict=True):
        course = after(course, result, left, 2, stream(0))
    assert course.phase == "train"
    assert course.bandit.measured == tuple(i != first for i in range(3))
    assert course.bandit.estimates[course.setting] == pytest.approx(0.1)


# Rewards.


def test_rewards_are_clipped_before_noise_comes_and_then_averaged():
    before, later = torch.tensor([5.0, 1.0, 0.0, 0.2]), torch.tensor([0.0, 0.5, 9.0, 0.3])
    told = loss_change(before, later, samples(4), 1.0, (2.0, Ones()))
    assert told == pytest.approx((1.0 + 0.5 - 1.0 - 0.1 + 2.0 * 1.0) / 4)
    assert loss_change(before, later, samples(4), 1.0, None) == pytest.approx(
        float((before - later).mean())
    )


def test_a_training_that_blew_up_loses_the_clip():
    before, later = torch.tensor([1.0, 1.0]), torch.tensor([math.nan, math.inf])
    assert loss_change(before, later, samples(2), 0.5, None) == -0.5
    assert loss_change(before, later, samples(2), 0.5, (0.0, Ones())) == -0.5


def test_a_group_counts_once_in_a_reward():
    before, later = torch.tensor([0.8, 0.4, 9.0]), torch.tensor([0.0, 0.0, 0.0])
    grouped = samples(3, groups=[7, 7, 2])
    told = loss_change(before, later, grouped, 1.0, (0.0, Ones()))
    assert told == pytest.approx((0.6 + 1.0) / 2)


@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=12), st.floats(0.1, 3))
def test_one_sample_moves_the_sum_of_a_reward_by_the_clip_at_most(changes: list[float], c: float):
    n, zero = len(changes), torch.zeros(len(changes))
    with_one = n * loss_change(torch.tensor(changes), zero, samples(n), c, (0.0, Ones()))
    rest = torch.tensor(changes[1:])
    without = (n - 1) * loss_change(rest, zero[1:], samples(n - 1), c, (0.0, Ones()))
    assert abs(with_one - without) <= c + 1e-5


def test_balanced_classes_count_alike():
    y = torch.tensor([0] * 8 + [1] * 2)
    weights = balancing([8.0, 2.0])
    assert weights == pytest.approx((10 / 16, 10 / 4))
    losses = weighted_loss(weights)(torch.zeros(10, 2), y)
    assert float(losses[:8].sum()) == pytest.approx(float(losses[8:].sum()))
    assert balancing([9.0, -3.0])[1] == pytest.approx(5.0)  # noise below 1 counts 1
    assert balancing([6.0, -3.0], 4.0)[1] == pytest.approx(10 / 8)


# Local rounds.


def networks() -> list[nn.Module]:
    image = SuperNetwork(DartsSpace(shape=(1, 4, 4), classes=3, cells=2, channels=2, nodes=1))
    table = MixedMLP(MLPSpace(inputs=16, classes=3, blocks=2, width=4))
    return [initialise(n, torch_generator(stream(0))) for n in (image, table)]


def naive_darts(
    model: nn.Module, own: Samples, others: Samples, rates: tuple[float, float], ahead: bool
) -> None:
    """One step of architecture and one of weights on whole sets, by autograd."""
    weights, alphas = weights_but_alphas(model), alphas_of(model)

    def descend(moving: list[nn.Parameter], on: Samples, rate: float) -> None:
        loss = F.cross_entropy(model(on.inputs()), on.y)
        grads = torch.autograd.grad(loss, moving, materialize_grads=True)
        with torch.no_grad():
            for p, g in zip(moving, grads, strict=True):
                p -= rate * g

    kept = [p.detach().clone() for p in weights]
    if ahead:
        descend(weights, own, rates[0])
    descend(alphas, others, rates[1])
    with torch.no_grad():
        for p, old in zip(weights, kept, strict=True):
            p.copy_(old)
    descend(weights, own, rates[0])


def plan_of(part: Samples) -> Plan:
    """DP-SGD on whole sets that neither clips nor noises anything one could measure."""
    return Plan(
        samples=len(part),
        batch_size=len(part),
        clip=1e4,
        noise_multiplier=1e-13,
        epochs=1,
        rounds=1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("space", [0, 1])
def test_a_round_without_noise_equals_plain_darts(private: bool, ahead: bool, space: int):
    model, oracle = networks()[space], networks()[space]
    own, others = samples(9), samples(7)

    def steps(moving: list[nn.Parameter], part: Samples, rate: float) -> Steps:
        how = Descent(
            samples=part,
            plan=plan_of(part) if private else None,
            optimizer=OptimizerConfig(learning_rate=rate, batch_size=100),
            loss=weighted_loss(()),
            rng=stream(0),
        )
        return Steps(model, moving, how)

    for _ in range(2):
        weights, alphas = weights_but_alphas(model), alphas_of(model)
        looking = steps(weights, own, 0.3) if ahead else None
        alternate(steps(weights, own, 0.3), steps(alphas, others, 0.7), looking)
        naive_darts(oracle, own, others, (0.3, 0.7), ahead)
    moved = 0.0
    for p, q, first in zip(
        model.parameters(), oracle.parameters(), networks()[space].parameters(), strict=True
    ):
        assert torch.allclose(p, q, atol=2e-5)
        assert p.requires_grad
        moved += float((p - first).detach().abs().sum())
    assert moved > 0.1


# Whole rounds.


def play(clients: list[Site], rounds: int) -> tuple[Bundle, list[list[Turn]]]:
    """Some rounds of a federation, in this process; the server's memory, and all turns."""
    side = side_of(clients[0])
    server = feathers.server_start(side)
    kept = [feathers.site_start(c) for c in clients]
    turns = []
    for number in range(1, rounds + 1):
        orders = feathers.orders(side, server, [c.id for c in clients], number)
        turns.append(
            [
                feathers.site_round(c, m, Order(number, orders[c.id]))
                for c, m in zip(clients, kept, strict=True)
            ]
        )
        kept = [t.memory for t in turns[-1]]
        updates = [
            Update(c.id, number, t.update, t.receipts)
            for c, t in zip(clients, turns[-1], strict=True)
        ]
        server = feathers.server_round(side, server, updates, stream(0, "server", number))
    return server, turns


@pytest.mark.slow
def test_one_setting_and_no_noise_is_federated_darts_step_by_step(
    make_site: MakeSite, tmp_path: Path
):
    run = config(4, FREE, learning_rates=[0.3], architecture_rates=[0.7], search_share=0.75)
    clients = [make_site(run, tmp_path / "r", i) for i in (0, 1)]
    server, turns = play(clients, 2)
    assert all(not t.update.record.keys() & {"reward"} for pair in turns for t in pair)
    oracle = network_of(run, clients[0].facts, None)
    for _ in range(2):
        ends, weights = [], []
        for site in clients:
            local, parts = network_of(run, site.facts, None), parts_of(site)
            local.load_state_dict(oracle.state_dict())
            naive_darts(local, parts.weights, parts.architecture, (0.3, 0.7), False)
            ends.append(local.state_dict())
            weights.append(len(parts.architecture))
        mean = {
            k: sum(w * e[k] for w, e in zip(weights, ends, strict=True)) / sum(weights)
            for k in ends[0]
        }
        oracle.load_state_dict(mean)
    for name, tensor in oracle.state_dict().items():
        assert torch.allclose(tensor, server.arrays[name], atol=2e-5)


@pytest.mark.slow
def test_a_round_measures_from_the_same_network_and_the_server_learns_of_it(
    make_site: MakeSite, tmp_path: Path
):
    run = config(8, FREE, learning_rates=[0.5, 1e-6], exploration=9.0, search_share=0.5)
    site = make_site(run, tmp_path / "r")
    first = feathers.server_start(side_of(site))
    server, turns = play([site], 3)
    assert [t[0].update.record.keys() == {"reward", "samples"} for t in turns] == [
        True,
        True,
        False,
    ]
    assert not turns[0][0].update.arrays
    trace = server.record["trace"]
    settings = feathers.Options.model_validate(run.federation.options).settings("search")
    told = {settings[row[3]]["learning_rate"]: row[4] for row in trace[:2]}
    assert told[0.5] > 10 * abs(told[1e-6])
    assert settings[trace[2][3]]["learning_rate"] == 0.5  # and it trains with the better one
    moved = any(not torch.equal(server.arrays[k], first.arrays[k]) for k in first.arrays)
    assert moved


@pytest.mark.slow
def test_the_chosen_network_begins_anew_and_the_report_tells_of_the_search(
    make_site: MakeSite, tmp_path: Path
):
    run = config(4, FREE, search_share=0.5)
    site = make_site(run, tmp_path / "r")
    server, turns = play([site], 2)
    assert (server.record["stage"], search_rounds(run)) == ("evaluation", 2)
    fresh = network_of(run, site.facts, server.record["architecture"]).state_dict()
    assert all(torch.equal(fresh[k], server.arrays[k]) for k in fresh)
    last = feathers.orders(side_of(site), server, [0], 5)[0]
    memory = feathers.site_finish(site, turns[-1][0].memory, Order(5, last))
    about = feathers.size(site, memory).about
    assert [row["stage"] for row in about["hyperparameters"]] == ["search", "search"]
    assert about["architecture"] == server.record["architecture"]
    parts = parts_of(site)
    assert about["search_passes"] == 2 * (len(parts.weights) + len(parts.architecture))
    logits = feathers.predictor(site, memory)(site.data.test)
    assert logits.shape == (len(site.data.test), 10)


@pytest.mark.slow
def test_what_a_round_sends_is_charged_on_its_half_within_the_budget(
    make_site: MakeSite, tmp_path: Path
):
    run = config(6, {"epsilon": 3.0}, learning_rates=[0.5, 0.2], exploration=1.0, lookahead=True)
    site = make_site(run, tmp_path / "r")
    _, turns = play([site], 6)
    by_id = {e.id: e.charge for e in site.account.entries}
    told = [[(by_id[r].mechanism, by_id[r].subset) for r in t[0].receipts] for t in turns]
    train, search, score = ("dp-sgd", "train"), ("dp-sgd", "search"), ("reward", "search")
    assert told == [
        [train, train, search, score],  # the look ahead is one more round on "train"
        [train, train, search],
        [train, train, search],
        [train, score],
        [train],
        [train],
    ]
    account = site.account
    assert [e.charge.mechanism for e in account.entries].count("count") == 1
    assert len(account.entries) == 1 + sum(map(len, told))
    for subset in ("train", "search"):
        assert 0.9 * 3 < account.spent_on(subset) <= 3
    state = SiteState.from_json(turns[-1][0].memory.record)
    assert state.weights.plan is not None
    assert state.weights.plan.rounds == 0


@pytest.mark.slow
def test_balanced_classes_are_paid_for_where_no_label_is_public(
    make_site: MakeSite, tmp_path: Path
):
    run = config(2, {"epsilon": 3.0}, balance=True, public=0.0)
    site = make_site(run, tmp_path / "r")
    _, turns = play([site], 2)
    first, *rest = site.account.entries
    assert (first.charge.mechanism, first.charge.subset) == ("label-histogram", "train")
    assert all(e.charge.mechanism != "label-histogram" for e in rest)
    assert 0.9 * 3 < site.account.spent() <= 3
    assert len(turns[-1][0].memory.record["class_weights"]) == 10


def test_public_labels_balance_classes_for_nothing(make_site: MakeSite, tmp_path: Path):
    site = make_site(config(2, {"epsilon": 3.0}, balance=True), tmp_path / "r")
    weights = feathers.site_start(site).record["class_weights"]
    assert [e.charge.mechanism for e in site.account.entries] == ["count"]
    assert weights == pytest.approx(balancing(site.public.histogram().double().tolist()))


def test_it_needs_two_rounds_and_hyperparameters(make_site: MakeSite, tmp_path: Path):
    site = make_site(config(2), tmp_path / "r")
    short = replace(side_of(site), config=config(1))
    with pytest.raises(BadInput, match=r"^expected federation.rounds of at least 2.*; raise it$"):
        feathers.check(short)
    for name in ("learning_rates", "momenta", "architecture_rates"):
        empty = replace(side_of(site), config=config(2, **{name: []}))
        with pytest.raises(BadInput, match=rf"^expected federation.options.{name} to hold"):
            feathers.check(empty)


@pytest.mark.slow
def test_tables_have_their_own_space(make_site: MakeSite, tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in rng.normal(size=(150, 2))]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["a,b,label", *rows]))
    data = {"dataset": str(table), "label": "label", "public_fraction": 0.2, "limit": None}
    run = method_config("feathers", SMALL | {"blocks": 1, "width": 4}, sections={"data": data})
    site = make_site(run, tmp_path / "r")
    assert isinstance(space_of(run, site.facts).search, MLPSpace)
    server, _ = play([site], 1)
    assert len(server.record["architecture"]["blocks"]) == 1
    assert site.account.spent() <= 8


def test_without_samples_no_loss_changes():
    none = Samples(torch.zeros(0, 1, 2, 2), torch.zeros(0, dtype=torch.int64), 2)
    assert loss_change(torch.zeros(0), torch.zeros(0), none, 1.0, None) == 0.0
