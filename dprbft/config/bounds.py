"""How large a run may be that a hub elsewhere asks for: nothing of it follows from private samples.

A site computes what it is asked for in its own memory and time. These bounds lie far above what
serves any federation, and so low that no request takes memory beyond what facts and samples need.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dprbft.config.schema import RunConfig
from panas.data.facts import Facts
from panas.features.map import WIDTH, cost_of
from panas.runtime.errors import BadInput

MOST_SITES = 4096
MOST_TURNS = 10**7
"""Sites times rounds, at most: a site draws who takes part in each round."""
WIDEST = 4096  # coordinates of a map, channels of a block, width of a representation
MOST_NUMBERS = 1 << 25  # of a head, or of second moments
LONGEST = 10**6  # passes, steps, generations, trials
MOST_WEIGHTS = 1 << 26  # of what blocks or cells of the widest kind have together, about
MOST_BYTES = 1 << 30  # of a feature map, and at once for a chunk of rows
LARGEST_SEED = 1 << 63

SIZES = (
    *("widths", "width", "hidden", "kernels", "channels", "stem", "last", "nodes", "cells"),
    *("blocks", "evaluation_cells", "evaluation_channels"),
)
"""Options of methods that say how large a network is."""


def check_bounds(config: RunConfig, facts: Facts) -> None:
    """BadInput, by name, for a run that is larger than any that serves."""
    f, n, search = config.federation, config.network, config.search
    evolution, tuning = search.evolution, config.tuning.config
    widest, kernel = max(search.widths, default=1), max(search.kernels, default=1)
    features = n.features or WIDTH
    cost = cost_of(facts, min(features, WIDEST))
    for name, got, most in (
        ("federation.clients", f.clients, MOST_SITES),
        ("federation.clients times rounds", f.clients * f.planned_rounds, MOST_TURNS),
        ("federation.server_epochs", f.server.epochs, LONGEST),
        ("network.width", n.width, WIDEST),
        ("network.features", features, WIDEST),
        ("numbers of a head", facts.classes * max(n.width, features), MOST_NUMBERS),
        ("search.population", evolution.population, LONGEST),
        ("search.generations", evolution.generations, LONGEST),
        ("search.epochs", search.optimizer.epochs, LONGEST),
        ("search.student_steps", search.student_steps, LONGEST),
        ("search.max_blocks", search.max_blocks, 100),
        ("search.widths", widest, WIDEST),
        ("search.max_blocks times widths squared", search.max_blocks * widest**2, MOST_WEIGHTS),
        ("search.kernels", kernel, 2 * max(facts.shape) + 1),
        ("bytes of network.features", cost.fixed_bytes + cost.chunk * cost.row_bytes, MOST_BYTES),
        ("tuning.trials", tuning.trials, LONGEST),
        ("training.epochs", config.training.optimizer.epochs, LONGEST),
        ("training.warm_epochs", config.training.warm.epochs, LONGEST),
        ("training.student_steps", config.training.student_steps, LONGEST),
        ("seed", config.seed, LARGEST_SEED),
        ("training.noise_multiplier", config.training.noise_multiplier or 0.0, 1e6),
        *_options(f.options),
    ):
        if not -most <= got <= most:  # nor what is no number, nor an integer beyond all floats
            raise BadInput(f"expected {name} of at most {most:g}, got more; ask for less")


def _options(options: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Of a method's own options: every number, and the sizes of its networks together."""
    weights = 1
    for name, value in options.items():
        values = value if isinstance(value, list | tuple) else [value]
        numbers = [abs(v) for v in values if isinstance(v, int | float)]
        largest = max((v if v <= LONGEST else LONGEST + 1 for v in numbers), default=0)
        if name in SIZES:
            weights *= max(1, min(int(largest), LONGEST)) * max(1, len(values))
        yield f"federation.options.{name}", max(largest, len(values)), LONGEST
    yield "sizes in federation.options, multiplied", weights, MOST_WEIGHTS
