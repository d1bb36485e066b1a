"""FedProx: naive steps with the proximal gradient; without it FedAvg, with much of it no move."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_methods import FREE, method_config, side_of
from torch import nn
from torch.nn import functional as F

from baselines import fedavg, fedprox
from baselines.networks.cnns import convolutional
from dprbft.methods.updates.contract import Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.runtime.seeds import stream

MakeSite = Callable[..., Site]
LR, MU = 0.05, 0.7
OPTIONS = {"learning_rate": LR, "batch_size": 16, "widths": [4], "hidden": 8}


def site_with(make_site: MakeSite, folder: Path, method: str, **options: Any) -> Site:
    how: dict[str, Any] = {"clients": 1, "limit": 80, "sections": {"network": {"norm": "group"}}}
    return make_site(method_config(method, OPTIONS | options, FREE, **how), folder)


def first_round(site: Site, sent: Bundle) -> Turn:
    """A site's first round, from these weights."""
    return fedprox.site_round(site, fedprox.site_start(site), Order(1, sent))


def test_a_round_is_naive_steps_with_the_proximal_gradient(make_site: MakeSite, tmp_path: Path):
    site = site_with(make_site, tmp_path / "r", "fedprox", proximal=MU)
    sent, train = fedprox.server_start(side_of(site)), site.data.train
    model: nn.Module = convolutional(site.spec.shape, site.spec.classes, [4], 8, "group")
    model.load_state_dict(dict(sent.arrays))
    rng = stream(site.config.seed, "client", 0, "round", 1, "train")
    for batch in torch.from_numpy(rng.permutation(len(train))).split(16):
        if len(batch) > 1:
            loss = F.cross_entropy(model(train.inputs(batch)), train.y[batch])
            grads = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for (name, p), g in zip(model.named_parameters(), grads, strict=True):
                    p -= LR * (g + MU * (p - sent.arrays[name]))
    turn = first_round(site, sent)
    for name, wanted in model.state_dict().items():
        torch.testing.assert_close(turn.update.arrays[name], wanted)


def test_without_the_proximal_term_it_is_fedavg(make_site: MakeSite, tmp_path: Path):
    site = site_with(make_site, tmp_path / "p", "fedprox", proximal=0)
    other = site_with(make_site, tmp_path / "a", "fedavg")
    sent = fedprox.server_start(side_of(site))
    theirs = fedavg.site_round(other, fedavg.site_start(other), Order(1, sent)).update
    ours = first_round(site, sent).update
    assert all(torch.equal(ours.arrays[name], theirs.arrays[name]) for name in sent.arrays)


def test_the_larger_mu_is_the_nearer_a_site_stays(make_site: MakeSite, tmp_path: Path):
    def moved(mu: float) -> float:
        site = site_with(make_site, tmp_path / f"{mu}", "fedprox", proximal=mu)
        sent = fedprox.server_start(side_of(site))
        arrays = first_round(site, sent).update.arrays
        return math.hypot(*(float((arrays[n] - w).norm()) for n, w in sent.arrays.items()))

    distances = [moved(mu) for mu in (0, 1, 5)]
    assert distances == sorted(distances, reverse=True)
    assert distances[2] < 0.9 * distances[0]


def test_the_server_averages_by_samples(make_site: MakeSite, tmp_path: Path):
    side = side_of(site_with(make_site, tmp_path / "r", "fedprox"))
    start = fedprox.server_start(side)

    def filled(value: float, samples: int) -> Bundle:
        arrays = {n: torch.full_like(w, value) for n, w in start.arrays.items()}
        return Bundle(arrays, {"samples": samples})

    sent = [Update(0, 1, filled(1.0, 30), ("r",)), Update(1, 1, filled(5.0, 10), ("r",))]
    mean = fedprox.server_round(side, start, sent, np.random.default_rng(0))
    for w in mean.arrays.values():
        torch.testing.assert_close(w, torch.full_like(w, 2.0))
    kept = fedprox.server_round(side, start, [], np.random.default_rng(0))
    assert all(torch.equal(kept.arrays[n], w) for n, w in start.arrays.items())
