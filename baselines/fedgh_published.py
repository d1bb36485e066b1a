"""FedGH as its published code runs: the header that all sites share never learns.

All as in `baselines.fedgh`, but for step 4. There the server computes gradients of the header,
and then steps an optimiser that was made for the network of the last site: the header keeps the
weights with which it began, and all that sites share is a random header.

Source: Yi et al. 2023, the authors' code. What that optimiser does to the last site's network is
overwritten when it is next loaded, so that it is left out here.

Privacy: as in `fedgh`; class means are sent, and paid for, though nothing comes of them.
"""

from collections.abc import Iterable

import numpy as np

from baselines import fedgh
from baselines.common.class_means import means_in
from baselines.common.options import options_of
from dprbft.methods.side import Side
from dprbft.updates import Bundle, Update

COLUMNS, SMOKE, CPU, Options = fedgh.COLUMNS, fedgh.SMOKE, fedgh.CPU, fedgh.Options
check, check_order, orders = fedgh.check, fedgh.check_order, fedgh.orders
site_start, site_round, site_finish = fedgh.site_start, fedgh.site_round, fedgh.site_finish
server_start, predictor, size = fedgh.server_start, fedgh.predictor, fedgh.size


def server_round(
    side: Side, memory: Bundle, updates: Iterable[Update], rng: np.random.Generator
) -> Bundle:
    """Step 4, which changes nothing.

    Args:
        side: for the options, and the number of classes.
        memory: the header, returned as it is.
        updates: class means, checked and dropped.
        rng: unused.
    """
    for update in updates:
        means_in(update.bundle, side.facts.classes, options_of(side.config, Options).width)
    return memory
