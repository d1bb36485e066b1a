"""FedGH: the header learns of class means as naive code says; in the published code it stays."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_wire import RecordedWire
from tiny_methods import method_config, side_of
from torch.nn import functional as F

from baselines import fedgh, fedgh_published
from baselines.common import five
from baselines.common.class_means import ClassMeans
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Verb
from dprbft.methods import update_method
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import train_stage
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.runtime.errors import BadInput

MakeSite = Callable[..., Site]
WIDTH = 6


def config_of(method: str = "fedgh", **options: Any) -> RunConfig:
    settings = {"kernels": 2, "hidden": [8, 5], "width": WIDTH, "batch_size": 1000, "epochs": 1}
    return method_config(method, settings | options)


def sent(site: int, classes: list[int]) -> Update:
    generator = torch.Generator().manual_seed(site)
    means = torch.randn(len(classes), WIDTH, generator=generator)
    arrays = ClassMeans(torch.tensor(classes), means, torch.ones(len(classes))).to_arrays()
    return Update(site, 1, Bundle(arrays), ("r",))


def test_the_header_takes_one_step_a_class_mean_site_by_site(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(server_learning_rate=0.3, server_epochs=2), tmp_path / "r")
    side = side_of(site)
    memory = fedgh.server_start(side)
    updates = [sent(0, [0, 4]), sent(1, [7])]
    trained = fedgh.server_round(side, memory, updates, np.random.default_rng(0))
    weight, bias = (memory.arrays[n].clone().requires_grad_() for n in ("weight", "bias"))
    for _ in range(2):
        for update in updates:
            arrays = update.bundle.arrays
            for mean, label in zip(arrays["means"], arrays["classes"], strict=True):
                loss = F.cross_entropy((weight @ mean + bias)[None], label[None])
                grads = torch.autograd.grad(loss, [weight, bias])
                with torch.no_grad():
                    weight -= 0.3 * grads[0]
                    bias -= 0.3 * grads[1]
    torch.testing.assert_close(trained.arrays["weight"], weight.detach())
    torch.testing.assert_close(trained.arrays["bias"], bias.detach())
    same = fedgh_published.server_round(side, memory, updates, np.random.default_rng(0))
    assert all(torch.equal(same.arrays[n], memory.arrays[n]) for n in memory.arrays)


@pytest.mark.parametrize("method", [fedgh, fedgh_published])
def test_other_class_means_are_refused(method: Any, make_site: MakeSite, tmp_path: Path):
    side = side_of(make_site(config_of(), tmp_path / "r"))
    with pytest.raises(BadInput, match="different classes"):
        method.server_round(
            side, method.server_start(side), [sent(0, [10])], np.random.default_rng(0)
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedgh", "fedgh_published"])
def test_in_a_run_the_header_moves_and_as_published_it_does_not(method: str, tmp_path: Path):
    config = config_of(method)
    prepare(tmp_path / "r", config, resume=False)
    with InProcess(read_sites(tmp_path / "r"), 1) as engine:
        wire = RecordedWire(engine)
        train_stage(OpenRun(tmp_path / "r", config, wire))
    told = [(v, Order.from_bytes(c)) for v, _, c in wire.down if v in (Verb.ROUND, Verb.FINISH)]
    first, last = told[0][1].bundle.arrays, told[-1][1].bundle.arrays
    moved = not torch.equal(first["weight"], last["weight"])
    assert moved == (method == "fedgh")


def turn_of(site: Site) -> tuple[Any, Any, Order]:
    method = update_method(site.config.federation.method)
    side = side_of(site)
    bundle = method.orders(side, method.server_start(side), [site.id], 1)[site.id]
    order = Order(1, bundle)
    return method, method.site_round(site, method.site_start(site), order), order


def test_sites_have_networks_of_their_own_and_one_header(make_site: MakeSite, run: Path):
    sites = [make_site(config_of(), run, i) for i in (0, 1)]
    sizes = [fedgh.size(c, fedgh.site_start(c)) for c in sites]
    assert [s.about["network"] for s in sizes] == ["CNN 1", "CNN 2"]
    # The second has half the channels in its second convolution, and 5 for 8 numbers after it.
    first = 2 * 10 + 4 * 19 + 8 * (4 * 4 + 1) + 6 * 9 + 10 * 7
    second = 2 * 10 + 2 * 19 + 5 * (2 * 4 + 1) + 6 * 6 + 10 * 7
    assert [s.parameters for s in sizes] == [first, second]


@pytest.mark.parametrize("keep", ["local", "global"])
def test_the_header_that_is_asked_for_is_kept(keep: str, make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(keep=keep), tmp_path / "r")
    _, turn, _ = turn_of(site)
    last = {"weight": torch.ones(10, WIDTH), "bias": torch.zeros(10)}
    kept = fedgh.site_finish(site, turn.memory, Order(3, Bundle(last)))
    wanted = last["weight"] if keep == "global" else turn.memory.arrays["header.weight"]
    assert torch.equal(kept.arrays["header.weight"], wanted)
    assert torch.equal(kept.arrays["bottom.0.weight"], turn.memory.arrays["bottom.0.weight"])


def test_training_begins_with_the_header_that_was_sent(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = make_site(config_of(), tmp_path / "r")
    seen = []

    def train(site: Site, model: Any, *rest: Any) -> tuple[Any, None]:
        seen.append(model.state_dict()["header.weight"].clone())
        return rest[1], None

    monkeypatch.setattr(five, "train_locally", train)
    _, turn, order = turn_of(site)
    assert torch.equal(seen[0], order.bundle.arrays["weight"])
    assert not turn.update  # the budget paid for no training, so that nothing is sent


def test_all_of_the_budget_is_spent_on_both(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(), tmp_path / "r")
    method, turn, order = turn_of(site)
    method.site_round(site, turn.memory, Order(2, order.bundle))
    account = site.account
    assert 0.95 * 8 < account.spent() <= 8
    assert 0 < account.spent("release") < account.spent("training") < 8
    assert math.isfinite(account.spent())
