import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_samples import one_at_a_time

from panas.data.facts import Facts, fit, infer
from panas.data.files.columns import Column
from panas.data.files.raw import Raw
from panas.runtime.errors import BadInput


def table(x: np.ndarray, **changes: object) -> Raw:
    names = tuple("abcdefgh"[: x.shape[1]])
    given = {"class_names": ("no", "yes"), "columns": names, **changes}
    return Raw(x, np.arange(len(x)) % 2, **given)


def pictures(shape: tuple[int, ...] = (4, 1, 2, 3), dtype: type = np.uint8, **changes) -> Raw:
    given = {"class_names": ("cat", "dog"), **changes}
    return Raw(np.zeros(shape, dtype), np.arange(shape[0]) % 2, **given)


def refused(raw: Raw, facts: Facts) -> str:
    with pytest.raises(BadInput) as caught:
        fit(raw, facts, "site north")
    assert re.match("expected .* site north, got", str(caught.value))
    return str(caught.value)


def test_facts_survive_json_and_groups_go_with_their_samples() -> None:
    rows = table(
        np.array([[1.0, 2.0], [np.nan, 5.0]]), texts={"a": ("x", "y")}, kinds={"a": "text"}
    )
    for facts in (infer(rows, public=rows), infer(rows), infer(pictures())):
        assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    groups = np.array([5, 5, 9, 9])
    raw = pictures(groups=groups)
    samples = fit(raw.take(np.array([3, 0])), infer(raw))
    assert samples.groups.tolist() == [9, 5]


def test_the_scale_is_that_of_the_public_rows() -> None:
    rng = np.random.default_rng(0)
    public, private = rng.normal(size=(50, 4)), rng.normal(size=(9, 4))
    facts = infer(table(private), public=table(public))
    naive = np.clip((private - public.mean(0)) / public.std(0), -3, 3) / 3
    assert np.allclose(fit(table(private), facts).x.numpy().reshape(9, 4), naive, atol=1e-6)


@pytest.mark.parametrize("known", [True, False])
def test_a_row_changes_its_own_features_alone(known) -> None:
    rng = np.random.default_rng(0)
    public, private = rng.normal(size=(50, 4)), rng.normal(size=(9, 4))
    moved = private.copy()
    moved[0] = 1e9
    before, after = (
        fit(table(x), infer(table(x), public=table(public) if known else None))
        for x in (private, moved)
    )
    assert torch.equal(before.x[1:], after.x[1:])
    assert not torch.equal(before.x[0], after.x[0])


@pytest.mark.parametrize("public", [0, 1, 5])
def test_constant_and_huge_columns_stay_finite(public) -> None:
    rows = np.full((5, 3), 0.1) * [1, 1e99, 0]
    x = fit(table(rows), infer(table(rows), public=table(rows[:public]))).x
    assert x.isfinite().all()
    assert x.abs().max() <= 1


def test_declared_ranges_need_no_public_row() -> None:
    rows = table(np.array([[0.0, 5.0], [120.0, 1.0]]))
    x = fit(rows, infer(rows, ranges={"a": (0.0, 120.0)})).x.flatten(1)
    assert x[:, 0].tolist() == [-1, 1]
    with pytest.raises(BadInput, match="'z'"):
        infer(rows, ranges={"z": (0.0, 1.0)})
    with pytest.raises(BadInput, match="range"):
        infer(rows, ranges={"a": (1.0, 1.0)})


def test_texts_are_one_hot_of_public_ones_and_hashed_without() -> None:
    rows = table(
        np.array([[0.0], [1.0], [np.nan]]), kinds={"a": "text"}, texts={"a": ("red", "blue")}
    )
    public = table(np.array([[0.0]]), kinds={"a": "text"}, texts={"a": ("red",)})
    facts = infer(rows, public=public)
    assert fit(rows, facts).x.flatten(1)[:, :2].tolist() == [[1, -1], [-1, 1], [0, 0]]
    hashed = fit(rows, infer(rows)).x.flatten(1)
    assert sorted(set(hashed[:2, :8].flatten().tolist())) == [-1, 1]
    assert not torch.equal(hashed[0], hashed[1])
    other = table(np.array([[1.0]]), kinds={"a": "text"}, texts={"a": ("green", "red")})
    assert torch.equal(fit(other, infer(other)).x.flatten(1)[0], hashed[0])


def test_classes_are_matched_by_name_then_by_number() -> None:
    facts = infer(pictures(), classes=("dog", "cat", "owl"))
    assert fit(pictures(), facts).y.tolist() == [1, 0, 1, 0]
    assert fit(pictures(), facts).classes == 3
    assert fit(pictures(class_names=("0", "2")), facts).y.tolist() == [0, 2, 0, 2]
    named = pictures(class_names=("gull", "owl", "tit"), from_file=False)
    assert fit(named, facts).y.tolist() == [0, 1, 0, 1]
    assert "others" in refused(
        pictures(class_names=("0", "1")), infer(pictures(), classes=("1", "2"))
    )
    assert infer(pictures(), public=pictures(class_names=("a", "b"))).class_names == ("a", "b")


def test_what_does_not_fit_is_named_and_no_label_is_shown() -> None:
    facts = infer(pictures())
    text = refused(pictures(class_names=("cat", "syphilis")), facts)
    assert "cat, dog" in text
    assert "syphilis" not in text
    assert "(1, 2, 4)" in refused(pictures((4, 1, 2, 4)), facts)
    assert "uint8" in refused(pictures(dtype=np.float32), facts)
    assert "a table" in refused(table(np.zeros((2, 2))), facts)
    rows = infer(table(np.zeros((2, 2))))
    assert "'b'" in refused(table(np.zeros((2, 1))), rows)
    assert "'c'" in refused(table(np.zeros((2, 3))), rows)
    assert "images" in refused(pictures(), infer(table(np.zeros((2, 2)))))
    texts = table(np.zeros((2, 2)), kinds={"b": "text"}, texts={"b": ("secret",)})
    assert "'b'" in refused(texts, rows)
    assert "secret" not in refused(texts, rows)


def test_deep_pictures_are_scaled_by_a_public_depth() -> None:
    deep = pictures(dtype=np.uint16)
    deep.x[0] = 4095
    with pytest.raises(BadInput, match=r"data\.bits"):
        infer(deep)
    for facts in (infer(deep, bits=12), infer(deep, public=deep)):
        x = fit(deep, facts).x
        assert (x.dtype, x.min(), x.max()) == (torch.float32, -1, 1)
    assert "11 bits" in refused(deep, infer(deep, bits=11))
    assert abs(fit(deep, infer(deep, bits=16)).x.max() + 1 - 2 * 4095 / 65535) < 1e-6


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "wrong",
    [
        # At 4a98628, of reach 0, a cell that equals the centre became 0 / 0, and training failed.
        *one_at_a_time(reach=(0.0, -1.0, NAN, INF, "1"), centre=(NAN, INF, None, 10**400)),
        *one_at_a_time(kind=["numbers"], missing=[1], angle=[1], name=[7], categories=[("a",)]),
        *({"kind": "text", "categories": c} for c in (("a", "a"), (*map(str, range(33)),), (1,))),
    ],
)
def test_a_column_whose_features_might_be_no_numbers_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        Column(**({"name": "age"} | wrong))


@given(
    centre=st.floats(allow_nan=False, allow_infinity=False),
    reach=st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False),
    cells=st.lists(st.floats(), max_size=8),
)
def test_features_are_numbers_whatever_a_declared_scale_and_a_cell(
    centre: float, reach: float, cells: list[float]
) -> None:
    column = Column(name="age", centre=centre, reach=reach)
    features = column.features(np.array([*cells, centre, 0.0]))
    assert np.isfinite(features).all()
    assert (np.abs(features) <= 1).all()


@pytest.mark.parametrize(
    "wrong",
    [
        *one_at_a_time(class_names=((), ("a", "a"), (1, 2), (*map(str, range(10_001)),))),
        *one_at_a_time(shape=((1, 0, 4), (1, 4), (1, 1 << 20, 1 << 20), (1, 4.0, 4))),
        *one_at_a_time(dtype=["int8"], unit=[1], bits=(7, 17, True)),
        {"columns": (Column(name="a"),)},  # of another shape
        {"columns": (Column(name="a"), Column(name="a")), "shape": (1, 2, 2)},
    ],
)
def test_facts_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    right = {"class_names": ("a", "b"), "shape": (1, 4, 4), "dtype": "float32"}
    with pytest.raises(BadInput, match="expected"):
        Facts(**(right | wrong))


def test_facts_differ_by_what_is_computed_on_rows_alone() -> None:
    """More classes, and columns in another order, change no row's features."""
    a, b = Column(name="a"), Column(name="b", kind="text", categories=("x", "y"))
    own = Facts(class_names=("u",), shape=(1, 2, 2), dtype="float32", columns=(a, b))
    assert own.differs_from(replace(own, class_names=("v", "u"), columns=(b, a))) is None
    scaled = replace(own, columns=(replace(a, reach=2.0), b))
    assert "another scale" in (own.differs_from(scaled) or "")
    assert "none 'b'" in (own.differs_from(replace(own, columns=(a,), shape=(1, 1, 1))) or "")
    images = Facts(class_names=("u",), shape=(1, 2, 2), dtype="uint8", bits=8)
    assert "bits" in (images.differs_from(replace(images, bits=9)) or "")
    assert images.differs_from(own) == "a table instead of images"


ANGLE = Column(name="a", angle=True)


@given(st.lists(st.floats(), min_size=1), st.booleans())
def test_cells_without_a_scale_have_features_by_themselves(cells: list[float], missing: bool):
    column = replace(ANGLE, missing=missing)
    x = column.features(np.array(cells))
    assert x.shape == (len(cells), 3 + missing)
    assert (np.abs(x) <= 1).all()
    for row, v in zip(x, cells, strict=True):
        if math.isnan(v):
            assert row.tolist() == [0, 0, 0, *[1] * missing]
            continue
        size = min(abs(v), 1e300)
        turns = math.log((size + 0.1) / 0.1) / 3 * math.copysign(1, v)
        wanted = [
            math.tanh(math.copysign(math.log1p(size), v)),
            math.sin(2 * math.pi * turns),
            math.cos(2 * math.pi * turns),
        ]
        assert row[:3] == pytest.approx([w / 2 for w in wanted], abs=1e-6)
        assert row[3:].tolist() == [-1] * missing


@given(st.floats(-1500, 1500))
def test_a_number_is_found_again_by_its_angle(v: float):
    found = float(ANGLE.cell(ANGLE.features(np.array([v]))[0]))
    assert found == pytest.approx(v, rel=2e-3, abs=1e-6)


def test_a_scale_leaves_no_angle_and_older_facts_have_none():
    assert replace(ANGLE, reach=2.0).width == 1
    older = Facts(
        class_names=("n", "y"), shape=(1, 1, 1), dtype="float32", columns=(Column(name="a"),)
    )
    assert "angle" not in older.to_json()["columns"][0]
    assert Facts.from_json(older.to_json()) == older
    newer = replace(older, shape=(1, 2, 2), columns=(ANGLE,))
    assert Facts.from_json(json.loads(json.dumps(newer.to_json()))) == newer
    assert older.differs_from(newer) == "column 'a' of another scale or other categories"
