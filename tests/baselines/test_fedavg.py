"""FedAvg: one site is local training, several are averaged; naive code says what that means."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_methods import FREE, method_config, side_of
from torch import nn
from torch.nn import functional as F

from baselines import fedavg
from baselines.networks.cnns import convolutional
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.methods import update_method
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream

MakeSite = Callable[..., Site]
LR = 0.05


def config_of(clients: int) -> RunConfig:
    options = {"learning_rate": LR, "batch_size": 16, "widths": [4], "hidden": 8}
    sections = {"network": {"norm": "group"}}
    how: dict[str, Any] = {"clients": clients, "limit": 80 * clients, "sections": sections}
    return method_config("fedavg", options, FREE, **how)


def test_one_site_is_local_training_step_by_step(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(1), tmp_path / "r")
    side, train = side_of(site), site.data.train
    server, memory = fedavg.server_start(side), fedavg.site_start(site)
    alone: nn.Module = convolutional(site.spec.shape, site.spec.classes, [4], 8, "group")
    alone.load_state_dict(dict(server.arrays))
    for number in (1, 2):
        order = Order(number, fedavg.orders(side, server, [0], number)[0])
        turn = fedavg.site_round(site, memory, order)
        update = Update(0, number, turn.update, turn.receipts)
        server = fedavg.server_round(side, server, [update], np.random.default_rng(0))
        memory = turn.memory
        rng = stream(site.config.seed, "client", 0, "round", number, "train")
        for batch in torch.from_numpy(rng.permutation(len(train))).split(16):
            if len(batch) > 1:
                loss = F.cross_entropy(alone(train.inputs(batch)), train.y[batch])
                grads = torch.autograd.grad(loss, list(alone.parameters()))
                with torch.no_grad():
                    for p, g in zip(alone.parameters(), grads, strict=True):
                        p -= LR * g
        for name, wanted in alone.state_dict().items():
            torch.testing.assert_close(server.arrays[name], wanted)


def test_the_server_averages_by_samples_and_keeps_its_weights_if_nobody_sends(
    make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(2), tmp_path / "r")
    side = side_of(site)
    memory = fedavg.server_start(side)
    shapes = {name: w.shape for name, w in memory.arrays.items()}
    rng = torch.Generator().manual_seed(0)
    sent = [
        Update(
            i,
            1,
            Bundle({n: torch.randn(s, generator=rng) for n, s in shapes.items()}, {"samples": n_i}),
            ("r",),
        )
        for i, n_i in enumerate((30, 90))
    ]
    averaged = fedavg.server_round(side, memory, sent, np.random.default_rng(0))
    for name in shapes:
        a, b = (u.bundle.arrays[name] for u in sent)
        torch.testing.assert_close(averaged.arrays[name], (30 * a + 90 * b) / 120)
    kept = fedavg.server_round(side, memory, [], np.random.default_rng(0))
    assert all(torch.equal(kept.arrays[n], memory.arrays[n]) for n in shapes)


@pytest.mark.parametrize("method", ["fedavg", "fedgh", "fedproto"])
def test_a_network_that_takes_too_much_memory_is_refused_before_a_charge(
    method: str, make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = {"data": {"limit": 80}, "federation": {"method": method, "clients": 1}}
    site = make_site(build_config(config), tmp_path / "r")
    monkeypatch.setattr("baselines.networks.cnns.MOST_WEIGHTS", 100)
    with pytest.raises(BadInput, match="a layer of at most"):
        update_method(method).site_start(site)
    assert not site.account.entries


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "feathers", "decnas", "dp_fnas"])
def test_a_plan_that_no_budget_pays_for_is_refused_before_samples_are_counted(
    method: str, make_site: MakeSite, tmp_path: Path
):
    of_steps = method == "dp_fnas"  # its rounds have a number of steps, and no epochs
    length = {"rounds": 400} if of_steps else {"rounds": 4, "options": {"epochs": 10**4}}
    federation = {"method": method, "clients": 1} | length
    privacy = {"epsilon": 0.01 if of_steps else 0.1, "delta": 1e-3}
    config = build_config({"data": {"limit": 80}, "federation": federation, "privacy": privacy})
    site = make_site(config, tmp_path / "r")
    with pytest.raises(BudgetExhausted, match="noise above 100 times"):
        update_method(method).site_start(site)
    assert not site.account.entries
