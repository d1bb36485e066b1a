"""The two networks of DP-FNAS, as they begin and as they cross the wire."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from baselines.common.options import options_of
from baselines.common.orders import check_record, check_weights
from baselines.fnas.schedule import Options, asked
from baselines.networks.cnns import initialise, weights_of
from baselines.networks.darts import Discrete, SuperNetwork, is_alpha
from baselines.networks.darts_space import DartsSpace, Genotype
from dprbft.site.site import Client
from dprbft.updates import Bundle, Order, named
from panas.architecture.network import NetworkSpec
from panas.runtime.seeds import stream, torch_generator


def begun(
    spec: NetworkSpec, o: Options, seed: int, genotype: Mapping[str, Any] | None = None
) -> nn.Module:
    """The super-network, or that of a genotype, with weights from the run's seed."""
    space = DartsSpace(
        shape=spec.shape,
        classes=spec.classes,
        cells=o.cells,
        channels=o.channels,
        nodes=o.nodes,
        operations=o.operations,
        stem=o.stem,
    )
    if genotype is None:
        return initialise(SuperNetwork(space), torch_generator(stream(seed, "dp_fnas", "search")))
    larger = replace(space, cells=o.evaluation_cells, channels=o.evaluation_channels)
    last = Discrete(larger, Genotype.checked(genotype, larger, o.strongest))
    return initialise(last, torch_generator(stream(seed, "dp_fnas", "evaluation")))


def check_network(client: Client, memory: Bundle, order: Order) -> None:
    """An order is the super-network or, once the search is over, that of a genotype."""
    record, o = order.bundle.record, options_of(client.config, Options)
    wanted = asked(client.config, order.round)
    check_record(record, genotype=dict if wanted == "E" else type(None))
    like = dict(memory.arrays)
    if record["genotype"] != memory.record["genotype"]:
        like = weights_of(begun(client.spec, o, client.config.seed, record["genotype"]))
    sent = named("network", like)
    if wanted == "A" and o.order == "second":
        sent |= named("before", {n: w for n, w in like.items() if not is_alpha(n)})
    check_weights(order.bundle.arrays, sent)


def loaded(client: Client, bundle: Bundle) -> nn.Module:
    """The network of a message or a memory, on the site's device."""
    o = options_of(client.config, Options)
    network = begun(client.spec, o, client.config.seed, bundle.record["genotype"])
    network.load_state_dict(bundle.part("network"))
    return network.to(client.device)
