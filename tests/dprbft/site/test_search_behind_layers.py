"""What is left of limits, and of a space, behind fixed layers."""

from dataclasses import replace

import pytest
from tiny_runs import tiny_config

from dprbft.site.search import BROADER, HARDLY, WHOLE, Before, search_space
from panas.architecture.cost import LayerCost
from panas.architecture.limits import Constraints
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.facts import Facts
from panas.runtime.errors import BadInput

SHAPE = (24, 7, 7)
LAYER = LayerCost("first", SHAPE, parameters=1000, macs=50_000, bytes=1200)
BEFORE = Before(NetworkSpec(shape=SHAPE, classes=3, width=8), LAYER, 0.5)


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        (Constraints(), Constraints(bytes=WHOLE - 1200)),
        (Constraints(bytes=5000), Constraints(bytes=3800)),
        (Constraints(parameters=1500), Constraints(parameters=500, bytes=WHOLE - 1200)),
        (Constraints(parameters=10), Constraints(parameters=1, bytes=WHOLE - 1200)),
        (Constraints(macs=7), Constraints(macs=7 + int(HARDLY * 50_000), bytes=WHOLE - 1200)),
        (Constraints(latency_ms=0.75), Constraints(latency_ms=0.25, bytes=WHOLE - 1200)),
    ],
)
def test_layers_count_among_the_limits(limits: Constraints, left: Constraints) -> None:
    assert BEFORE.within(limits) == left


def test_blocks_read_the_maps_of_the_layers_and_are_wide() -> None:
    for widths, wide in (((16, 32), (32, 64)), ((4, 8), (8, 16)), ((2, 4), (8,))):
        behind = BEFORE.space(SearchSpace(shape=(3, 32, 32), widths=widths))
        assert behind.shape == SHAPE
        assert behind.widths == wide
        assert BROADER == 2


def test_where_nothing_wide_fits_blocks_are_as_wide_as_for_pictures() -> None:
    config = tiny_config(search__widths=[16], search__min_blocks=1)
    facts = Facts(class_names=("a", "b", "c"), shape=(3, 32, 32), dtype="uint8", unit=True)
    roomy = search_space(config, facts, None, BEFORE)
    assert roomy.widths == (32,)
    used = replace(LAYER, bytes=WHOLE - 6000)
    tight = search_space(config, facts, None, replace(BEFORE, layer=used))
    assert tight.widths == (16,)
    full = replace(LAYER, bytes=WHOLE - 10)
    with pytest.raises(BadInput):
        search_space(config, facts, None, replace(BEFORE, layer=full))
