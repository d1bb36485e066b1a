"""How deep the first layers of an encoder are, and how wide blocks behind them, by the limits."""

from dataclasses import replace
from pathlib import Path

import pytest
from deep_encoder import SIDE, write_deep

from dprbft.config.files import build_config
from dprbft.methods.joined.inputs import SHARE, foreseen
from dprbft.site.search import WHOLE, Before, search_space
from panas.architecture.limits import Constraints
from panas.data.facts import Facts
from panas.features.encoders.files import load_encoder


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_deep(tmp_path_factory.mktemp("limits") / "deep.pt2")


def facts_of(file: Path) -> Facts:
    facts = load_encoder(str(file)).facts
    return Facts(class_names=("a", "b"), shape=(3, SIDE, SIDE), dtype="uint8", encoder=facts)


def before_of(file: Path, **search: int) -> Before | None:
    config = build_config({"search": search, "network": {"encoder": str(file)}})
    return foreseen(config, facts_of(file), str(file))


def test_a_limit_of_parameters_makes_layers_fewer(file: Path) -> None:
    deep = before_of(file, max_parameters=1_000_000)
    assert deep is not None
    shallow = before_of(file, max_parameters=int(deep.layer.parameters / SHARE) - 1)
    assert shallow is None or shallow.layer.parameters < deep.layer.parameters
    assert before_of(file, max_parameters=300) is None


def test_blocks_are_wide_beside_the_maps_unless_limits_forbid_it(file: Path) -> None:
    before = before_of(file)
    assert before is not None
    config = build_config({"network": {"encoder": str(file)}})
    before = replace(before, spec=replace(before.spec, shape=(192, 5, 5)))
    widths = config.search.widths
    wide = tuple(2 * width for width in widths if 8 * width >= 192)
    assert search_space(config, facts_of(file), None, before).widths == wide
    tight = replace(before, layer=replace(before.layer, bytes=WHOLE - 60_000))
    assert search_space(config, facts_of(file), None, tight).widths == widths
    assert before.within(Constraints()).bytes == WHOLE - before.layer.bytes
