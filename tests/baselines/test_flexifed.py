"""FlexiFed: what is averaged over whom, against a naive average that goes by pairs of sites."""

from typing import Any

import numpy as np
import pytest
import torch
from sample_gradients import assert_equal, data
from torch import Tensor

from baselines import flexifed
from baselines.flexifed import alike, sharing
from baselines.networks.vgg import vgg
from dprbft.config.files import build_config
from dprbft.methods.side import Side
from dprbft.updates import Update
from panas.data.facts import Facts
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

A = {"a": (3,), "b": (2, 2), "c": (4,), "d": (5,)}
FACTS = Facts(class_names=("0", "1", "2"), shape=(1, 8, 8), dtype="uint8")


def side_of(strategy: str, clients: int = 5, **options: Any) -> Side:
    sizes = {"width": 2, "hidden": 3, "strategy": strategy} | options
    federation = {"method": "flexifed", "clients": clients, "options": sizes}
    config = build_config({"federation": federation})
    return Side(config, FACTS, FACTS.no_samples())


def sent_by(side: Side) -> list[dict[str, Tensor]]:
    """What sites send: networks of their depth with weights of their own, in their order."""
    sizes, g = flexifed.Options.model_validate(side.config.federation.options), torch.Generator()
    sent = []
    for site in range(side.config.federation.clients):
        depth = sizes.depths[site % len(sizes.depths)]
        network = vgg(depth, FACTS.shape, FACTS.classes, sizes.width, sizes.hidden, "group")
        state = network.state_dict()
        sent.append({k: torch.randn(t.shape, generator=g) for k, t in state.items()})
    return sent


def answered(side: Side, sent: list[dict[str, Tensor]]) -> dict[int, dict[str, Tensor]]:
    """Each site's network after the server's round: what it is sent, over its own."""
    updates = [Update(i, 1, flexifed.Bundle(dict(reversed(s.items())))) for i, s in enumerate(sent)]
    memory = flexifed.server_round(side, flexifed.server_start(side), updates, stream(0))
    orders = flexifed.orders(side, memory, range(len(sent)), 2)
    return {i: {**own, **orders[i].arrays} for i, own in enumerate(sent)}


def begin_alike(sent: list[dict[str, Tensor]]) -> int:
    """Naively: how many entries all networks have in common from the first on."""
    rows, count = [[(k, tuple(t.shape)) for k, t in s.items()] for s in sent], 0
    while all(len(r) > count and r[count] == rows[0][count] for r in rows):
        count += 1
    return count


def naive(strategy: str, sent: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """The same by going over all pairs of sites, from the first layer on."""
    sums = [{k: t.clone() for k, t in s.items()} for s in sent]
    counts = [dict.fromkeys(s, 1) for s in sent]
    base = begin_alike(sent)
    for i, mine in enumerate(sent):
        for j, other in enumerate(sent):
            if i == j:
                continue
            common = begin_alike([mine, other])
            for place, name in enumerate(mine):
                same = common == len(mine) == len(other)
                shared = {
                    "max": place < common,
                    "clustered": place < base or same,
                    "basic": place < base,
                }
                if shared[strategy]:
                    sums[i][name] += other[name]
                    counts[i][name] += 1
    return [{k: t / counts[i][k] for k, t in total.items()} for i, total in enumerate(sums)]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["basic", "clustered", "max"])
def test_layers_are_averaged_as_by_pairs(strategy: str):
    side = side_of(strategy, clients=6)
    sent = sent_by(side)
    values = answered(side, sent)
    for site, expected in enumerate(naive(strategy, sent)):
        assert values[site].keys() == expected.keys()
        for name, array in expected.items():
            torch.testing.assert_close(values[site][name], array)


@pytest.mark.slow
def test_strategies_share_more_and_more():
    counts = []
    for strategy in ("basic", "clustered", "max"):
        side = side_of(strategy, clients=6)
        sent = sent_by(side)
        values = answered(side, sent)
        kept = [torch.equal(values[i][k], own[k]) for i, own in enumerate(sent) for k in own]
        counts.append(len(kept) - sum(kept))
    assert 0 < counts[0] < counts[1] < counts[2]


def test_alike_ends_at_another_shape_or_name():
    assert alike(A, A) == 4
    assert alike(A, {**A, "c": (5,)}) == 2
    assert alike(A, {"a": (3,), "x": (2, 2), "c": (4,)}) == 1
    assert alike(A, {}) == 0
    wider = {1: A, 2: {**A, "c": (5,)}}
    assert sharing("max", wider)[2] == {"a": (1, 2), "b": (1, 2), "c": (2,), "d": (2,)}
    assert sharing("basic", wider)[2] == {"a": (1, 2), "b": (1, 2)}
    assert sharing("clustered", wider)[1] == {"a": (1, 2), "b": (1, 2), "c": (1,), "d": (1,)}


def test_deeper_networks_share_what_follows_the_common_beginning():
    result = flexifed._groups(side_of("max", clients=4))
    layers = [len(set(names.values())) for names in result.values()]
    assert result[11]["features.0.weight"] == (11, 13, 16, 19)
    assert result[13]["features.3.weight"] == (13, 16, 19)
    assert result[16]["features.20.weight"] == (16, 19)
    assert result[11]["features.4.weight"] == (11,)
    assert layers == [2, 3, 4, 4]


@pytest.mark.parametrize("strategy", ["basic", "clustered", "max"])
def test_networks_of_one_depth_are_averaged_whole(strategy: str):
    side = side_of(strategy, clients=3, depths=[13])
    sent = sent_by(side)
    values = answered(side, sent)
    for name in sent[0]:
        mean = torch.stack([s[name] for s in sent]).mean(0)
        assert all(torch.allclose(values[i][name], mean, atol=1e-6) for i in range(3))


def test_absent_sites_get_the_average_of_those_who_were_there():
    side = side_of("max", clients=2, depths=[11, 13])
    sent, start = sent_by(side), flexifed.server_start(side)
    update = Update(0, 1, flexifed.Bundle(sent[0]))
    memory = flexifed.server_round(side, start, [update], np.random.default_rng(0))
    other = flexifed.orders(side, memory, [1], 2)[1].arrays
    assert torch.equal(other["features.0.weight"], sent[0]["features.0.weight"])
    name = "features.3.weight"
    assert torch.equal(other[name], start.arrays[f"13.{name}"])


def test_sites_begin_with_the_same_layers_where_they_are_alike():
    orders = flexifed.orders(
        side_of("max"), flexifed.server_start(side_of("max")), range(5), round=1
    )
    assert torch.equal(orders[0].arrays["features.0.weight"], orders[3].arrays["features.0.weight"])
    assert torch.equal(orders[2].arrays["features.7.weight"], orders[3].arrays["features.7.weight"])


def test_an_update_of_another_network_is_refused():
    side = side_of("max", clients=2)
    sent = sent_by(side)
    wrong = Update(0, 1, flexifed.Bundle(sent[1]))
    with pytest.raises(BadInput, match="expected an update"):
        flexifed.server_round(side, flexifed.server_start(side), [wrong], stream(0))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 3, 5)])
@pytest.mark.parametrize("depth", [11, 19])
def test_a_vgg_serves_images_and_tables(depth: int, shape: tuple[int, int, int]):
    network = vgg(depth, shape, 3, 2, 5, "group")
    assert network(torch.zeros(2, *shape)).shape == (2, 3)
    weights = [p for p in network.parameters() if p.dim() > 1]
    assert len(weights) == depth
    assert [n for n, _ in network.named_modules()] == [
        n for n, _ in vgg(depth, (3, 16, 16), 3, 2, 5, "group").named_modules()
    ]


def test_gradients_of_samples_are_those_of_a_loop():
    network = vgg(11, (1, 8, 8), 3, 4, 5, "group")
    assert assert_equal(network, *data(3, 1, 8, 8)).by_rules
