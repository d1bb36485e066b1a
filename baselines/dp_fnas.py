"""DP-FNAS: sites search one DARTS architecture together by noised gradients, a step a round.

The server holds weights W and alphas A of a super-network. An iteration, in its source's order:

1. each site sends its gradient of W on a Poisson batch of its training part: clipped a sample at a
   time to R_G, noised, over the batch's size (equation 6)
2. the server averages and descends: W <- W - xi mean_k G_k
3. each site sends its gradient of A, at the new W, on a batch of its validation part: clipped to
   R_H, noised; with `order = "second"` less the finite difference of equation 7
4. the server: A <- A - eta mean_k H_k

After the search, the two strongest edges of each node are kept, and the larger network of the
chosen cells is trained from scratch on all training samples, by the same exchange as in 1 and 2.

Source: Singh et al. 2020, algorithm 1 and section 4.1. Deviations: batches are over their expected
size, as the drawn size is private; both descents of weights have `momentum`; the mean over sites
stands for the sum (xi and eta do not depend on the number of sites); group norm in the place of
batch norm; neither cutout nor auxiliary head. Equation 5 writes its first term at W: here it is at
W', as in algorithm 1 and in DARTS.
`exchange = "together"` makes steps 1 and 3 one round, so that H is at the W before the step.

| symbol | option | | symbol | option |
|---|---|---|---|---|
| xi | `learning_rate` | | R_G | `clip` |
| eta | `architecture_rate` | | R_H | `architecture_clip` |
| B | `batch_size` | | sigma, tau | `noise_multiplier` |

Privacy: the ledger composes all steps, by PLD, on each of two disjoint parts, "train" (W) and
"search" (A); the second training reads both, so its steps count on both. The theorem's Gaussian
limit stands beside it, as the approximation that it is. Equation 7 also reads the training part, so
the theorem does not cover it, and its W+ and W- carry a gradient of the validation part: here that
gradient is noised, and each of the three reads is charged. The publication trains its last network
without noise: column "paper", epsilon infinity.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from baselines.common.averaging import Mean
from baselines.common.halves import halves, planned_halves
from baselines.common.models import accuracy_at, predictor_of, size_of
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.spending import Mechanism, Spending
from baselines.networks.darts import SuperNetwork, discretised, is_alpha
from baselines.searches.dp_fnas import (
    Options,
    Part,
    Prepaid,
    Steps,
    asked,
    begun,
    check_network,
    gradients_of,
    least_search,
    loaded,
    paid_step,
    plan_steps,
    reads,
    search_rounds,
)
from dprbft.config.schema import rounds_of
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update, named
from panas.architecture.network import weights_of
from panas.privacy.accounting.closed_form import gaussian_epsilon, limit_mu
from panas.privacy.accounting.events import SampledGaussian
from panas.runtime.errors import BadInput

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": UNPROTECTED,
        "federation": {
            "options": {
                "noise_multiplier": 1.0,
                "clip": 0.01,
                "architecture_clip": 0.1,
                "evaluation": "plain",
                # Not published: xi R_G is that of the defaults.
                "learning_rate": 30.0,
                "evaluation_rate": 0.1,
            }
        },
    },
    "sound": {},
}
_FEW = ["max_pool_3x3", "skip_connect", "sep_conv_3x3", "dil_conv_3x3", "none"]
SMOKE: Mapping[str, Any] = {
    "federation": {
        "rounds": 32,
        "options": {
            "search_share": 0.25,
            "batch_size": 1000,  # all: the price of a step has a closed form
            "operations": _FEW,
            "evaluation_cells": 2,
        },
    }
}
CPU: Mapping[str, Any] = {
    "federation": {
        "rounds": 120,
        "options": {
            "search_share": 0.25,
            "batch_size": 64,
            "operations": _FEW,
            "steps_a_charge": 20,
            "measure_every": 20,
        },
    }
}

check_order = check_network


def check(side: Side) -> None:
    """Needs an iteration of the search and a round to train."""
    o, c = options_of(side.config, Options), side.config
    if c.federation.rounds <= (search := least_search(c)):
        raise BadInput(
            f"expected federation.rounds of at least {search + 1}, {search} to search weights and "
            f"architecture and one to train, got {c.federation.rounds}; raise it"
        )
    if o.evaluation == "plain" and not c.privacy.allow_unprotected:
        raise BadInput(
            "expected privacy.allow_unprotected = true for federation.options.evaluation = plain, "
            "got false; change one"
        )


def site_start(site: Site) -> Bundle:
    """The plans of both parts, each for all steps that read it."""
    o, c = options_of(site.config, Options), site.config
    first, second = planned_halves(site, o.architecture_share)
    plain = "E" if o.evaluation == "plain" else ""
    private = [r for r in rounds_of(c, site.id) if asked(c, r) != plain]
    steps = [subset for r in private for subset in reads(c, r)]

    def plan(subset: str, samples: int, clip: float) -> Prepaid:
        planned = Steps(
            subset=subset,
            samples=samples,
            number=max(1, steps.count(subset)),
            batch_size=o.batch_size,
            clip=clip,
            at_once=o.steps_a_charge,
        )
        return plan_steps(site, planned, o.noise_multiplier)

    accounts = {
        "train": plan("train", first, o.clip).to_json(),
        "search": plan("search", second, o.architecture_clip).to_json(),
    }
    start = weights_of(begun(site.spec, o, site.config.seed))
    return Bundle(start, {"accounts": accounts, "genotype": None})


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Steps 1 and 3: the gradients that are asked for, each batch paid before it is drawn.

    Args:
        site: its training samples, ledger and settings.
        memory: the site's accounts of both parts; its network is not read.
        order: the network, and for equation 7 the weights before their last step.
    """
    o, network = options_of(site.config, Options), loaded(site, order.bundle)
    sends, accounts, receipts = asked(site.config, order.round), _accounts(memory), list[str]()
    free = sends == "E" and o.evaluation == "plain"
    due, update = reads(site.config, order.round), dict[str, Tensor]()
    with ExitStack() as stack:
        for subset in due:
            account = Prepaid(spending=Spending(subset=subset)) if free else accounts[subset]
            # Gradients are meant over their clip, which is another for W than for A.
            mechanism = Mechanism("dp-sgd" if account.plan else "sgd", 1.0, subset=subset)
            paid = stack.enter_context(paid_step(site, account, mechanism, order.round))
            if paid is None:  # the budget pays for no further step
                break
            receipts.append(paid.receipt)
            accounts[subset] = accounts[subset] if free else paid.account
        if len(receipts) == len(due):
            parts = {
                subset: Part(samples, o.batch_size, None if free else accounts[subset].plan)
                for subset, samples in zip(
                    ("train", "search"), halves(site, o.architecture_share), strict=True
                )
            }
            update = gradients_of(site, network, order, parts)
    record = {
        "accounts": {subset: account.to_json() for subset, account in accounts.items()},
        "genotype": order.bundle.record["genotype"],
    }
    return Turn(
        memory=Bundle(order.bundle.part("network"), record),
        update=Bundle(update),
        receipts=tuple(dict.fromkeys(receipts)),
        shared=_measured(site, network, order.round),
    )


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Keep the last network.

    Args:
        site: unused.
        memory: its accounts are kept.
        order: the last network and its genotype.
    """
    genotype = order.bundle.record["genotype"]
    return Bundle(order.bundle.part("network"), {**memory.record, "genotype": genotype})


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The network."""
    return predictor_of(loaded(site, Bundle(named("network", memory.arrays), memory.record)))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and multiply-accumulates, the cells, and what theorem 3.1 says."""
    network = loaded(site, Bundle(named("network", memory.arrays), memory.record))
    limits = dict[str, Any]()
    for subset in ("train", "search"):
        events = [e for e in site.account.events_on(subset) if isinstance(e, SampledGaussian)]
        if events:
            mu = limit_mu(events)
            limits[subset] = {"mu": mu, "epsilon": gaussian_epsilon(mu, site.budget.delta)}
    note = "approximate: a central limit of the noised steps, no bound"
    about = {
        "genotype": memory.record["genotype"],
        "search_passes": _passes(site),
        "theorem_3_1": {**limits, "note": note},
    }
    return size_of(site, network, about)


def _passes(site: Site) -> float:
    """Samples that the site's part of the search reads, on average."""
    c, o = site.config, options_of(site.config, Options)
    units = dict(zip(("train", "search"), halves(site, o.architecture_share), strict=True))
    searching = [r for r in rounds_of(c, site.id) if r <= search_rounds(c)]
    return float(sum(min(o.batch_size, units[s].units) for r in searching for s in reads(c, r)))


def server_start(side: Side) -> Bundle:
    """A super-network with weights from the run's seed and alphas of 0."""
    o, spec = options_of(side.config, Options), spec_of(side.config, side.facts)
    start = weights_of(begun(spec, o, side.config.seed))
    return Bundle(named("network", start), {"round": 0, "genotype": None})


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """The network for all; for equation 7 also the weights before their last step.

    Args:
        side: for the settings.
        memory: the network, its genotype, and perhaps the weights before.
        sites: numbers of those that take part.
        round: from 1.
    """
    sent = named("network", memory.part("network"))
    if memory.part("before") and asked(side.config, round) == "A":
        sent |= named("before", memory.part("before"))
    bundle = Bundle(sent, {"genotype": memory.record["genotype"]})
    return dict.fromkeys(sites, bundle)


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Steps 2 and 4: descend along the mean gradient; after the search, begin the last network.

    Args:
        side: configuration and facts.
        memory: the network, its velocity and genotype, before the round.
        updates: gradients by name of the parameter.
        rng: unused.
    """
    o, spec = options_of(side.config, Options), spec_of(side.config, side.facts)
    number, arrays = memory.record["round"] + 1, memory.part("network")
    sends, velocity = asked(side.config, number), memory.part("velocity")
    moving = {n: w for n, w in arrays.items() if sends == "E" or "WA"[is_alpha(n)] in sends}
    mean = Mean(moving)
    for update in updates:
        mean.add(update.bundle.arrays, 1.0)
    moved = dict(arrays)
    for name, g in mean.result().items():
        rate = o.evaluation_rate if sends == "E" else o.learning_rate
        if is_alpha(name):
            moved[name] = arrays[name] - o.architecture_rate * g
            continue
        velocity[name] = o.momentum * velocity.get(name, torch.zeros_like(g)) + g
        moved[name] = arrays[name] - rate * velocity[name]
    record = {**memory.record, "round": number}
    kept = named("network", moved)
    if number == search_rounds(side.config):
        network = begun(spec, o, side.config.seed)
        network.load_state_dict(moved)
        assert isinstance(network, SuperNetwork)
        record["genotype"] = discretised(network, o.strongest).to_json()
        last = begun(spec, o, side.config.seed, record["genotype"])
        return Bundle(named("network", weights_of(last)), record)
    if o.momentum:
        kept |= named("velocity", velocity)
    if o.order == "second" and sends == "W":
        before = {n: w for n, w in arrays.items() if not is_alpha(n)}
        kept |= named("before", before)
    return Bundle(kept, record)


def _accounts(memory: Bundle) -> dict[str, Prepaid]:
    return {subset: Prepaid.from_json(a) for subset, a in memory.record["accounts"].items()}


def _measured(site: Site, network: nn.Module, round: int) -> float | None:
    every = options_of(site.config, Options).measure_every
    if round % every and round not in (1, site.config.federation.rounds):
        return None
    return accuracy_at(site, network)
