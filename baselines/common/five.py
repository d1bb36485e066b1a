"""FedGH's and FedProto's common half: a site trains one of five networks, and sends class means.

Under a budget training is DP-SGD, the class means one release of noised sums and counts.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import nn

from baselines.common.class_means import bound_of, release_means
from baselines.common.models import accuracy_at, kept, size_of, spending_in
from baselines.common.spending import Planned, after_round, begin
from baselines.common.training import LocalTraining, train_locally
from baselines.networks.cnns import WIDER, Five, initialise, one_of_five
from dprbft.config.flat import Section
from dprbft.config.schema import rounds_of
from dprbft.methods.updates.contract import Size, Turn
from dprbft.site.site import Site
from dprbft.updates import Bundle
from panas.architecture.network import weights_of
from panas.runtime.seeds import stream, torch_generator
from panas.training.any_model import logits_of

SMOKE: Mapping[str, Any] = {
    "federation": {"rounds": 2, "options": {"epochs": 12}},
}
CPU: Mapping[str, Any] = {
    "federation": {
        "rounds": 10,
        "options": {"kernels": 16, "width": 128, "hidden": [500, 500, 250, 200, 125], "epochs": 3},
    },
}


class Options(Section):
    """Settings of local training, of the release, and the networks' sizes."""

    learning_rate: Annotated[float, Field(gt=0)] = 0.1  # published .01
    batch_size: Annotated[int, Field(ge=1)] = 64  # under DP an expected one; FedGH published 512
    epochs: Annotated[int, Field(ge=1)] = 4  # passes a round; published 30 (FedGH), 1 (FedProto)
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of a sample's gradient under DP
    release_share: Annotated[float, Field(gt=0, lt=1)] = 0.3  # of epsilon, sizes class means' noise
    kernels: Annotated[int, Field(ge=1)] = 8  # of the first convolution; FedGH published 16
    # of the first hidden layer of each network; FedGH published 2000, 2000, 1000, 800, 500
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((200, 200, 100, 80, 50), min_length=1)
    width: Annotated[int, Field(ge=1)] = 64  # of representations; FedGH published 500
    unit: bool = True  # representations of norm sqrt(width)


def bottom_of(site: Site, o: Options) -> nn.Sequential:
    """The site's bottom, without weights of its own yet."""
    sizes = Five(kernels=o.kernels, hidden=o.hidden, width=o.width, unit=o.unit)
    return one_of_five(site.spec.shape, site.id % len(WIDER), sizes)


def first_memory(site: Site, model: nn.Module, o: Options, method: str) -> Bundle:
    """The plan of all rounds, and the site's network before the first, by the method's seeds.

    Args:
        site: its plan is for its training samples.
        model: the site's, on any device.
        o: settings of the method.
        method: its name, from which the seeds of the weights come.
    """
    rng = torch_generator(stream(site.config.seed, method, "site", site.id))
    return kept(weights_of(initialise(model, rng)), begin(site, planned(site, o)))


def planned(site: Site, o: Options) -> Planned:
    """How a site means to spend.

    Args:
        site: for the rounds in which it takes part.
        o: settings of the method.
    """
    return Planned(
        batch_size=o.batch_size,
        clip=o.clip,
        epochs=o.epochs,
        releases=len(rounds_of(site.config, site.id)),
        release_share=o.release_share,
    )


def means_round(
    site: Site,
    memory: Bundle,
    model: nn.Module,
    how: LocalTraining,
    width: int,
    shared: float | None = None,
) -> Turn:
    """Train the model in place, and release the class means of its bottom's representations.

    Args:
        site: its samples and its ledger.
        memory: of the round before; its record holds the plan.
        model: a bottom and a last layer, on the site's device.
        how: optimiser, round and loss.
        width: of the representations.
        shared: accuracy before training, on test samples; None where the method measures none.
    """
    spending, trained = train_locally(site, model, site.data.train, spending_in(memory), how)
    if trained is None:
        return Turn(memory=kept(memory.arrays, spending), shared=shared)
    bottom = model.get_submodule("bottom")
    means, released = release_means(
        site, lambda samples: logits_of(bottom, samples), spending, how.round, bound_of(width)
    )
    spending = after_round(site, spending, releases=1)
    return Turn(
        memory=kept(weights_of(model), spending),
        update=Bundle(means.to_arrays()),
        receipts=(trained, released),
        local=accuracy_at(site, model),
        shared=shared,
    )


def size_of_network(site: Site, model: nn.Module) -> Size:
    """Parameters, multiply-accumulates, and which of the five it is."""
    return size_of(site, model, {"network": f"CNN {site.id % len(WIDER) + 1}"})
