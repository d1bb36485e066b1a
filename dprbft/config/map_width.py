"""How many coordinates a run's common map has: set, or by rule from what all parties know."""

from dprbft.config.schema import RunConfig
from panas.data.facts import Facts
from panas.features.map import WIDTH
from panas.training.linear.rules import Pooling, map_width

USUAL = 400
"""Training samples that a site is taken to have where nothing public tells of their number."""


def width_of_map(config: RunConfig, facts: Facts, labelled: int, samples: int | None = None) -> int:
    """d at most, for `panas.features.map.common_map`.

    Args:
        config: of the run; of different budgets the middle one counts.
        facts: of the data.
        labelled: public samples with labels.
        samples: training samples of a site, about, where all who make the map know it.
    """
    if config.network.features is not None:
        return config.network.features
    budgets = sorted(
        (config.budget(i) for i in range(config.federation.clients)), key=lambda b: b.epsilon
    )
    pooling = Pooling(
        sites=config.federation.clients,
        samples=samples or USUAL,
        classes=facts.classes,
        budget=budgets[len(budgets) // 2],
        secure_sum=config.secure_sum,
    )
    return map_width(pooling, labelled, WIDTH)
