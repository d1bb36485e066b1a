"""FedProto: the loss, the average and the nearest prototype, each against naive code."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_methods import FREE, method_config, side_of
from torch.nn import functional as F

from baselines import fedproto
from baselines.common.class_means import ClassMeans
from baselines.fedproto import Headed, prototype_loss
from dprbft.config.schema import RunConfig
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.privacy.gradients.per_sample import PerSample
from panas.runtime.errors import BadInput
from panas.training.any_model import logits_of

MakeSite = Callable[..., Site]
WIDTH, CLASSES = 6, 10


def config_of(privacy: dict[str, Any] | None = None, **options: Any) -> RunConfig:
    settings = {"kernels": 2, "hidden": [8, 5], "width": WIDTH, "batch_size": 1000, "epochs": 1}
    return method_config("fedproto", settings | options, privacy)


PROTOTYPES = torch.arange(12.0).view(3, 4)
KNOWN = torch.tensor([1, 0, 1], dtype=torch.uint8)


def naive_loss(outputs: torch.Tensor, label: int, importance: float) -> torch.Tensor:
    logits, z = outputs[:3], outputs[3:]
    loss = -torch.log_softmax(logits, 0)[label]
    if label != 1:  # whose prototype is not known
        loss = loss + importance * ((z - PROTOTYPES[label]) ** 2).sum() / 4
    return loss


def test_the_loss_is_cross_entropy_and_the_distance_to_the_prototype_of_the_class():
    outputs, y = torch.randn(6, 7), torch.tensor([0, 1, 2, 2, 1, 0])
    result = prototype_loss(PROTOTYPES, KNOWN, 0.5)(outputs, y)
    for row, label, loss in zip(outputs, y.tolist(), result, strict=True):
        torch.testing.assert_close(loss, naive_loss(row, label, 0.5))
    plain = prototype_loss(PROTOTYPES, KNOWN, 0.0)(outputs, y)
    torch.testing.assert_close(plain, F.cross_entropy(outputs[:, :3], y, reduction="none"))


def test_gradients_a_sample_follow_both_terms():
    bottom = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 4), torch.nn.ReLU())
    model = Headed(bottom, 4, 3)
    gradients = PerSample(model, prototype_loss(PROTOTYPES, KNOWN, 2.0))
    x, y = torch.randn(5, 1, 3, 3), torch.tensor([0, 1, 2, 0, 1])
    assert gradients.by_rules
    values = gradients(x, y)
    for i in range(5):
        loss = naive_loss(model(x[i : i + 1])[0], int(y[i]), 2.0)
        alone = torch.autograd.grad(loss, list(model.parameters()))
        for g, wanted in zip(values, alone, strict=True):
            torch.testing.assert_close(g.values[i], wanted, rtol=1e-4, atol=1e-6)


def sent(site: int, counts: dict[int, float]) -> Update:
    means = torch.randn(len(counts), WIDTH, generator=torch.Generator().manual_seed(site))
    classes = torch.tensor([*counts], dtype=torch.int64)
    arrays = ClassMeans(classes, means, torch.tensor([*counts.values()]))
    return Update(site, 1, Bundle(arrays.to_arrays()), ("r",))


@pytest.mark.parametrize("weighting", ["counts", "equal"])
def test_prototypes_are_averaged_class_by_class(
    weighting: str, make_site: MakeSite, tmp_path: Path
):
    side = side_of(make_site(config_of(weighting=weighting), tmp_path / "r"))
    memory = fedproto.server_start(side)
    assert not bool(memory.arrays["known"].any())
    updates = [sent(0, {0: 2.0, 4: 5.0}), sent(1, {4: 1.5}), sent(2, {})]
    told = fedproto.server_round(side, memory, updates, np.random.default_rng(0))
    assert told.arrays["known"].tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    a, b = (u.bundle.arrays["means"] for u in updates[:2])
    shares = (5 / 6.5, 1.5 / 6.5) if weighting == "counts" else (0.5, 0.5)
    torch.testing.assert_close(told.arrays["prototypes"][0], a[0])
    wanted = shares[0] * a[1] + shares[1] * b[0]
    torch.testing.assert_close(told.arrays["prototypes"][4], wanted)
    # A class that nobody sends keeps its prototype.
    later = fedproto.server_round(side, told, [sent(1, {4: 1.0})], np.random.default_rng(0))
    torch.testing.assert_close(later.arrays["prototypes"][0], a[0])
    torch.testing.assert_close(later.arrays["prototypes"][4], b[0])


def test_prototypes_of_another_form_are_refused(make_site: MakeSite, tmp_path: Path):
    side = side_of(make_site(config_of(), tmp_path / "r"))
    for bad in (sent(0, {10: 1.0}), sent(0, {1: 0.0})):
        with pytest.raises(BadInput, match="in an update"):
            fedproto.server_round(
                side, fedproto.server_start(side), [bad], np.random.default_rng(0)
            )


def order_of(site: Site, number: int = 1) -> Order:
    side = side_of(site)
    memory = fedproto.server_start(side)
    memory = fedproto.server_round(
        side, memory, [sent(0, dict.fromkeys((0, 3, 7), 1.0))], np.random.default_rng(0)
    )
    return Order(number, fedproto.orders(side, memory, [0], number)[0])


@pytest.mark.slow
def test_representations_are_drawn_to_prototypes(make_site: MakeSite, tmp_path: Path):
    """The stronger lambda, the nearer the means of classes come to the global ones."""
    apart = []
    for importance in (0.0, 50.0):
        settings = {"importance": importance, "epochs": 40, "learning_rate": 0.02, "unit": False}
        site = make_site(config_of(FREE, **settings), tmp_path / str(importance))
        order = order_of(site)
        turn = fedproto.site_round(site, fedproto.site_start(site), order)
        means, prototypes = turn.update.arrays, order.bundle.arrays["prototypes"]
        common = [i for i, c in enumerate(means["classes"].tolist()) if c in (0, 3, 7)]
        near = means["means"][common] - prototypes[means["classes"][common]]
        apart.append(float(near.square().mean()))
    assert apart[1] < 0.8 * apart[0]


@pytest.mark.parametrize("predict", ["head", "prototypes"])
def test_a_site_predicts_by_its_head_or_by_the_nearest_prototype(
    predict: str, make_site: MakeSite, tmp_path: Path
):
    site = make_site(config_of(predict=predict), tmp_path / "r")
    memory = fedproto.site_start(site)
    test = site.data.test
    before = fedproto.predictor(site, memory)(test)
    assert before.shape == (len(test), CLASSES)
    order = order_of(site, 3)
    kept = fedproto.site_finish(site, memory, order)
    logits = fedproto.predictor(site, kept)(test)
    if predict == "head":
        assert torch.equal(logits, before)
        return
    outputs = logits_of(fedproto._loaded(site, memory.arrays), test)
    for z, result in zip(outputs[:, CLASSES:], logits, strict=True):
        distances = {c: float((z - order.bundle.arrays["prototypes"][c]).norm()) for c in (0, 3, 7)}
        assert int(result.argmax()) == min(distances, key=distances.__getitem__)
        assert bool(torch.isfinite(result).all())


def test_a_site_that_may_not_train_sends_nothing(make_site: MakeSite, tmp_path: Path):
    site = make_site(config_of(), tmp_path / "r")
    memory = fedproto.site_start(site)
    spending = {**memory.record["spending"]}
    spending["plan"] = {**spending["plan"], "rounds": 0}
    turn = fedproto.site_round(site, replace(memory, record={"spending": spending}), order_of(site))
    assert not turn.update
    assert [e.charge.mechanism for e in site.account.entries] == ["count"]
