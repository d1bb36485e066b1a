"""How far one sample moves the moments of a feature map, whatever it holds: at most sqrt(1.25)."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from map_facts import ROUNDING, image_facts, sums, table_facts, vector_facts
from tiny_encoder import embedded, encoder_facts, tiny_encoder
from torch import Tensor

from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features import axes, images, tables
from panas.features.axes import AxesMap, with_encoder
from panas.features.images import dead_leaves
from panas.features.map import FeatureMap, fit_map
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments
from panas.runtime.seeds import stream

CLASSES, D = 3, 12
NAN, INF = math.nan, math.inf
VALUES = (-1.0, 0.0, 1.0, 255.0, 1e30, -1e30, 3e38, 1e-30, NAN, INF, -INF)
"""What a broken file may hold; network inputs are in [-1, 1]."""


def public_of(facts: Facts, n: int) -> Samples:
    x = dead_leaves(n, facts.shape, stream(0, "test"))
    if not facts.are_pictures:
        x = torch.from_numpy(stream(0, "test").uniform(-1, 1, (n, *facts.shape))).float()
    if facts.dtype == "uint8":
        x = ((x + 1) * 127.5).to(torch.uint8)
    samples = Samples(x, torch.arange(n) % CLASSES, CLASSES)
    return embedded(samples, tiny_encoder()) if facts.encoder else samples


CASES = {
    "grey bytes": (image_facts(1, 8, 8, dtype="uint8", classes=CLASSES), 30, ()),
    "grey floats, nothing public": (image_facts(1, 9, 9, dtype="float32", classes=CLASSES), 0, ()),
    "colour bytes": (image_facts(3, 20, 20, dtype="uint8", classes=CLASSES), 20, ()),
    "colour floats": (image_facts(3, 8, 8, dtype="float32", classes=CLASSES), 20, ()),
    "table of waves": (table_facts(classes=CLASSES), 60, (False, False)),
    "table of waves and columns": (table_facts(classes=CLASSES), 60, (True, False)),
    "table of waves and leaves": (table_facts(classes=CLASSES), 150, (False, True)),
    "table of all": (table_facts(classes=CLASSES), 150, (True, True)),
    "vectors": (vector_facts(20, classes=CLASSES), 60, ()),
    "vectors, nothing public": (vector_facts(20, classes=CLASSES), 0, ()),
    "an encoder of bytes": (
        replace(image_facts(1, 8, 8, dtype="uint8", classes=CLASSES), encoder=encoder_facts()),
        30,
        (),
    ),
    "an encoder of floats": (
        replace(image_facts(3, 8, 8, dtype="float32", classes=CLASSES), encoder=encoder_facts()),
        30,
        (),
    ),
}
"""Facts, public samples, and whether columns and leaves stand beside a table's waves."""


def flat_and_spots(facts: Facts) -> Iterator[Tensor]:
    """Images all of one value, and one pixel of it on another."""
    bytes_ = facts.dtype == "uint8"
    values = (0, 1, 127, 255) if bytes_ else VALUES
    dtype = torch.uint8 if bytes_ else torch.float32
    for value in values:
        yield torch.full(facts.shape, value, dtype=dtype)
    for value, ground in itertools.product(values, values[:2]):
        x = torch.full(facts.shape, ground, dtype=dtype)
        x[-1, 1, 1] = value
        yield x
    c, h, w = facts.shape
    board = torch.arange(h)[:, None] + torch.arange(w)
    yield (board % 2 * 255).to(dtype).expand(c, h, w)


def broken_rows(facts: Facts) -> Iterator[Tensor]:
    """Rows of a table with every cell in turn missing, huge, or of a category nobody knows."""
    size = math.prod(facts.shape)
    start = 0
    for column in facts.columns:
        for value in VALUES:
            x = torch.zeros(size)
            x[start : start + column.width] = value  # also: all categories at once
            yield x.reshape(facts.shape)
        x = torch.zeros(size)
        x[start : start + column.width] = -1.0  # no category, no sign
        yield x.reshape(facts.shape)
        start += column.width
    for value in VALUES:
        yield torch.full(facts.shape, value)


def broken_vectors(facts: Facts) -> Iterator[Tensor]:
    """Vectors with one number of any kind, and all of one kind."""
    for value in VALUES:
        yield torch.full(facts.shape, value)
        x = stream(0, "test").uniform(-1, 1, facts.shape)
        x[0, 0, 3] = value
        yield torch.from_numpy(x).float()


def extreme(facts: Facts) -> Samples:
    kinds = (broken_rows if facts.columns else broken_vectors, flat_and_spots)
    x = torch.stack([*kinds[facts.are_pictures](facts)])
    return Samples(x, torch.arange(len(x)) % CLASSES, CLASSES)


def summed(feature_map: FeatureMap, samples: Samples) -> Tensor:
    return sums(Rows(feature_map(samples.inputs()), samples.y), CLASSES)


def largest_step(feature_map: FeatureMap, data: Samples) -> float:
    """The farthest that taking any one sample away moves what leaves.

    Rows do not depend on each other, to the bit (`test_map_bits`): of most, they are mapped once.
    """
    whole, everyone = summed(feature_map, data), torch.arange(len(data))
    z, result = feature_map(data.inputs()), []
    for i in everyone:
        rest = everyone[everyone != i]
        less = sums(Rows(z[rest], data.y[rest]), CLASSES)
        if i % 12 == 0:
            assert torch.equal(less, summed(feature_map, data.take(rest)))
        result.append(float((whole - less).norm()))
    return max(result)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Facts, FeatureMap]:
    facts, n, beside = CASES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "paying", lambda *_: beside)
        feature_map = fit_map(facts, public_of(facts, n), D)
    if facts.encoder:
        assert isinstance(feature_map, AxesMap)
        feature_map = with_encoder(feature_map, tiny_encoder())
    if isinstance(feature_map, tables.TableMap):
        blocks = feature_map.blocks
        assert (blocks.scale is not None, blocks.forest is not None) == beside
    return facts, feature_map


@pytest.mark.slow
def test_no_sample_moves_the_moments_by_more_than_was_charged(
    case: tuple[Facts, FeatureMap], monkeypatch: pytest.MonkeyPatch
):
    facts, feature_map = case
    monkeypatch.setattr(moments, "grid_rows", lambda z: z.double())  # the map's own norm is enough
    result = largest_step(feature_map, extreme(facts))
    assert 1.1 < result <= moments.SENSITIVITY + ROUNDING


@pytest.mark.slow
def test_no_row_is_longer_than_one(case: tuple[Facts, FeatureMap]):
    facts, feature_map = case
    x = extreme(facts).inputs()
    rows, finite = feature_map(x), x.isfinite().flatten(1).all(1)
    assert rows.dtype == torch.float32
    assert rows.isfinite().all()
    assert rows.double().norm(dim=1).max() <= 1
    assert not rows[~finite].any()
    norms = rows[finite].norm(dim=1)
    assert ((norms == 0) | (norms > 1 - 1e-5)).all()


def test_nor_do_copies_or_the_first_sample(case: tuple[Facts, FeatureMap]):
    facts, feature_map = case
    some = extreme(facts).take(range(6))
    assert largest_step(feature_map, some.take([1] * 9)) <= moments.SENSITIVITY + ROUNDING
    none = summed(feature_map, some.take([]))
    assert not none.any()
    for i in range(len(some)):
        alone = float(summed(feature_map, some.take([i])).norm())
        assert alone <= moments.SENSITIVITY + ROUNDING


def test_a_map_without_unit_rows_is_caught_where_nothing_else_clips(
    case: tuple[Facts, FeatureMap], monkeypatch: pytest.MonkeyPatch
):
    facts, feature_map = case
    for module in (axes, images, tables):
        monkeypatch.setattr(module, "unit_rows", lambda z, usable: 1e3 * z.nan_to_num(0, 1e9, 1e9))
    monkeypatch.setattr(moments, "grid_rows", lambda z: z.double())
    assert largest_step(feature_map, extreme(facts)) > 2
