"""What every method does with a site's model: load, measure, keep and send it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

from baselines.common.spending import Spending
from baselines.networks.cnns import macs_of, parameters_of
from dprbft.config.flat import Section
from dprbft.methods.side import Side
from dprbft.methods.updates.contract import Predictor, Size
from dprbft.site.site import Site
from dprbft.updates import Bundle
from panas.training.any_model import accuracy_of, logits_of
from panas.training.sgd import OptimizerConfig

Model = TypeVar("Model", bound=nn.Module)
OPTIMIZER = ("learning_rate", "optimiser", "momentum", "batch_size", "epochs", "weight_decay")
"""Settings of an optimiser that a method's options may name."""


def loaded(site: Site, model: Model, arrays: Mapping[str, Tensor]) -> Model:
    """The model with these weights, on the site's device.

    Args:
        site: for its device.
        model: its weights are overwritten in place.
        arrays: one of each name of its state, of the same shape.
    """
    model.load_state_dict(dict(arrays))
    return model.to(site.device)


def accuracy_at(site: Site, model: nn.Module) -> float:
    """Of a model on the site's test samples; outputs behind the logits do not count."""
    test = site.data.test
    return accuracy_of(logits_of(model, test)[:, : test.classes], test)


def predictor_of(model: nn.Module) -> Predictor:
    """The model's logits."""
    return lambda samples: logits_of(model, samples)


def size_of(site: Site, model: nn.Module, about: Mapping[str, Any] | None = None) -> Size:
    """Parameters and multiply-accumulates of a network, for the report.

    Args:
        site: for the shape of its images.
        model: from images to logits.
        about: what else the report should tell, JSON-able.
    """
    macs = macs_of(model, site.spec.shape)
    return Size(parameters=parameters_of(model), macs=macs, about=about or {})


def optimizer_of(options: Section) -> OptimizerConfig:
    """The optimiser of a method's options."""
    return OptimizerConfig(**{name: setting for name, setting in options if name in OPTIMIZER})


def kept(weights: Mapping[str, Tensor], spending: Spending) -> Bundle:
    """A site's memory: weights, and what it still plans."""
    return Bundle(weights, {"spending": spending.to_json()})


def spending_in(memory: Bundle) -> Spending:
    """What a site still plans, by its memory."""
    return Spending.from_json(memory.record["spending"])


def orders_for_all(
    side: Side, memory: Bundle, sites: Sequence[int], round: int
) -> Mapping[int, Bundle]:
    """The server's arrays, the same for all sites.

    Args:
        side: unused.
        memory: its arrays are sent.
        sites: numbers of those that take part.
        round: unused.
    """
    return dict.fromkeys(sites, Bundle(memory.arrays))
