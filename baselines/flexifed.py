"""FlexiFed: sites with networks of different depth share the layers that these have in common.

A round, in its source's order:

1. the server sends each site its layers as they were averaged; site i has VGG-11, 13, 16 or 19, by
   i mod 4
2. each participant puts them into its network, trains it on its own samples, and sends it
3. the server averages layers over sites whose networks begin alike, by the strategy

| strategy | over which sites a layer of a site is averaged |
|---|---|
| `basic` | all, if it is of the longest beginning that all networks have in common; else none |
| `clustered` | the same; where that is none, those with the same network |
| `max` | those that have this layer in common with the site, pair by pair, and all before it |

Layers agree if they have the same name and shape; the first that do not end the beginning.

Source: Wang et al. 2023 ("FlexiFed: Personalized Federated Learning for Edge Clients with
Heterogeneous Model Architectures"). Decisions: `max` goes by pairs, as the authors' code does;
grouping sites by their next layer, again and again, comes to the same sets. What all have in common
is of all sites of the run, not of a round's participants; who was absent gets the average of those
who were there.

Deviations: sites start from the same weights, not from their own; widths are options, 64 and 4096
in the publication; under DP, batches are Poisson and norms are of groups; there is no dropout.

Privacy: step 2 is DP-SGD, charged before it reads a sample; what is sent are its weights.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from baselines.common.averaging import Mean, check_arrays
from baselines.common.models import kept, loaded, optimizer_of, predictor_of, size_of
from baselines.common.options import UNPROTECTED, options_of
from baselines.common.orders import check_record, check_weights
from baselines.common.spending import Planned, begin, spending_for
from baselines.common.training import LocalTraining, weights_round
from baselines.networks.cnns import initialise
from baselines.networks.vgg import vgg
from dprbft.config.flat import Section
from dprbft.config.schema import RunConfig
from dprbft.methods.price import PlannedSpending
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size, Turn
from dprbft.site.site import Site, spec_of
from dprbft.updates import Bundle, Order, Update
from panas.architecture.network import NetworkSpec, weights_of
from panas.runtime.seeds import stream, torch_generator

COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "privacy": UNPROTECTED,
        "federation": {
            "options": {"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
        },
    },
    "sound": {},
}

SMALL = {"width": 4, "hidden": 32, "batch_size": 128}
SMOKE: Mapping[str, Any] = {
    "federation": {"clients": 2, "rounds": 5, "options": {**SMALL, "epochs": 4}}
}
CPU: Mapping[str, Any] = {
    "federation": {"clients": 10, "rounds": 10, "options": {**SMALL, "epochs": 2}}
}

Strategy = Literal["basic", "clustered", "max"]
Layers = Mapping[str, tuple[int, ...]]
"""Shapes of a network's weights by name, in its own order."""


class Options(Section):
    """Settings of local training, and the networks' size."""

    strategy: Strategy = "max"
    # layers of sites 0, 1, ..., in turn
    depths: Annotated[tuple[Literal[11, 13, 16, 19], ...], Field(min_length=1)] = (11, 13, 16, 19)
    width: Annotated[int, Field(ge=1)] = 8  # channels of the first convolution; published: 64
    hidden: Annotated[int, Field(ge=1)] = 64  # of the classifier's layers; published: 4096
    learning_rate: Annotated[float, Field(gt=0)] = 0.5
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Annotated[int, Field(ge=1)] = 64  # under DP an expected one
    epochs: Annotated[int, Field(ge=1)] = 1  # passes a round
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP


def check(side: Side) -> None:
    """Serves any data."""
    options_of(side.config, Options)


def site_start(site: Site) -> Bundle:
    """The plan of all rounds, and the first weights."""
    o = options_of(site.config, Options)
    first = weights_of(_network(site.config, site.spec, depth_of(site.config, site.id)))
    return kept(first, begin(site, _planned(o)))


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon of all rounds."""
    return spending_for(site, _planned(options_of(site.config, Options)))


def _planned(o: Options) -> Planned:
    return Planned(batch_size=o.batch_size, clip=o.clip, epochs=o.epochs)


def check_order(site: Site, memory: Bundle, order: Order) -> None:
    """An order is the layers that are averaged of the site's network.

    Args:
        site: for its number, settings and facts.
        memory: its network has the expected shapes and types.
        order: untrusted.
    """
    check_record(order.bundle.record)
    groups = _groups(Side(site.config, site.facts, site.public))
    shared = groups[depth_of(site.config, site.id)]
    check_weights(order.bundle.arrays, {name: memory.arrays[name] for name in shared})


def site_round(site: Site, memory: Bundle, order: Order) -> Turn:
    """Step 2: train the network with the layers that were sent.

    Args:
        site: its training samples, ledger and settings.
        memory: the site's network, and what it still plans to spend.
        order: averaged layers, which replace the site's.
    """
    sent = Bundle({**memory.arrays, **order.bundle.arrays}, memory.record)
    how = LocalTraining(optimizer=optimizer_of(options_of(site.config, Options)), round=order.round)
    return weights_round(site, _loaded(site, sent.arrays), sent, how)


def site_finish(site: Site, memory: Bundle, order: Order) -> Bundle:
    """Take the last averages.

    Args:
        site: unused.
        memory: the site's network.
        order: the last averages, which replace the site's layers.
    """
    return Bundle({**memory.arrays, **order.bundle.arrays}, memory.record)


def predictor(site: Site, memory: Bundle) -> Predictor:
    """The site's network."""
    return predictor_of(_loaded(site, memory.arrays))


def size(site: Site, memory: Bundle) -> Size:
    """Its parameters and multiply-accumulates, and which VGG it is."""
    about = {"depth": depth_of(site.config, site.id)}
    return size_of(site, _loaded(site, memory.arrays), about)


def server_start(side: Side) -> Bundle:
    """Every averaged layer as networks start: a network of each depth, however many sites."""
    result, spec = dict[str, Tensor](), spec_of(side.config, side.facts)
    for depth, groups in _groups(side).items():
        first = weights_of(_network(side.config, spec, depth))
        result |= {_key(group, name): first[name] for name, group in groups.items()}
    return Bundle(result)


def orders(side: Side, memory: Bundle, sites: Sequence[int], round: int) -> Mapping[int, Bundle]:
    """Step 1: each site's own layers; those of one depth are sent the same.

    Args:
        side: for the depths of the run's sites, and the strategy.
        memory: averaged layers, each under the depths that share it.
        sites: numbers of those that take part.
        round: unused.
    """
    of_depth = {
        depth: Bundle({name: memory.arrays[_key(group, name)] for name, group in groups.items()})
        for depth, groups in _groups(side).items()
    }
    return {site: of_depth[depth_of(side.config, site)] for site in sites}


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 3: the mean of each layer over those who share it; the old one if none of them sent.

    Args:
        side: for the depths of the run's sites, and the strategy.
        memory: averaged layers before the round, each under the depths that share it.
        updates: trained networks, each of its site's depth.
        rng: unused.
    """
    networks, groups = _networks(side), _groups(side)
    means = defaultdict[str, Mean](Mean)
    for update in updates:
        depth, arrays = depth_of(side.config, update.site), update.bundle.arrays
        check_arrays(arrays, networks[depth])
        for name, group in groups[depth].items():
            means[_key(group, name)].add({name: arrays[name]}, 1.0)
    new = {key: array for key, mean in means.items() for array in mean.result().values()}
    return Bundle({**memory.arrays, **new})


def depth_of(config: RunConfig, site: int) -> int:
    """Layers of a site's VGG: a public fact."""
    depths = options_of(config, Options).depths
    return depths[site % len(depths)]


def alike(one: Layers, other: Layers) -> int:
    """How many layers two networks have in common from the first on, by name and shape."""
    count = 0
    for a, b in zip(one.items(), other.items(), strict=False):
        if a != b:
            break
        count += 1
    return count


def sharing(
    strategy: Strategy, networks: Mapping[int, Layers]
) -> dict[int, dict[str, tuple[int, ...]]]:
    """For each network, by its depth, over which depths each of its layers is averaged; layers
    that stay with their site are left out."""
    results = dict[int, dict[str, tuple[int, ...]]]()
    base = min(alike(a, b) for a in networks.values() for b in networks.values())
    for depth, layers in networks.items():
        reach = {other: alike(layers, networks[other]) for other in networks}
        results[depth] = {}
        for place, name in enumerate(layers):
            if strategy == "max":
                results[depth][name] = tuple(o for o, shared in reach.items() if place < shared)
            elif place < base:
                results[depth][name] = tuple(networks)
            elif strategy == "clustered":
                results[depth][name] = (depth,)
    return results


def _networks(side: Side) -> dict[int, dict[str, Tensor]]:
    """The networks of all depths that sites of the run have: shapes, names and types alone."""
    spec, config = spec_of(side.config, side.facts), side.config
    depths = sorted({depth_of(config, site) for site in range(config.federation.clients)})
    with torch.device("meta"):
        return {depth: _built(config, spec, depth).state_dict() for depth in depths}


def _groups(side: Side) -> dict[int, dict[str, tuple[int, ...]]]:
    layers = {d: {k: tuple(t.shape) for k, t in n.items()} for d, n in _networks(side).items()}
    return sharing(options_of(side.config, Options).strategy, layers)


def _key(depths: Sequence[int], name: str) -> str:
    return f"{'-'.join(map(str, depths))}.{name}"


def _built(config: RunConfig, spec: NetworkSpec, depth: int) -> nn.Module:
    o = options_of(config, Options)
    return vgg(depth, spec.shape, spec.classes, o.width, o.hidden, spec.norm)


def _network(config: RunConfig, spec: NetworkSpec, depth: int) -> nn.Module:
    """With weights from the run's seed: what begins alike begins with the same."""
    generator = torch_generator(stream(config.seed, "flexifed"))
    return initialise(_built(config, spec, depth), generator)


def _loaded(site: Site, arrays: Mapping[str, Tensor]) -> nn.Module:
    model = _built(site.config, site.spec, depth_of(site.config, site.id))
    return loaded(site, model, arrays)
