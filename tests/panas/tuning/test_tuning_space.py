"""The space of DP-SGD hyperparameters: its axes, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_samples import one_at_a_time

from panas.runtime.errors import BadInput
from panas.tuning.space import DPSGDSettings, Menu, Range, TuningSpace, choice
from panas.tuning.trial import TuningConfig


@pytest.mark.parametrize("menu", [range(16, 257), range(1, 2), (8, 32, 64), (7,)])
def test_every_integer_of_a_menu_can_be_drawn_and_found_again(menu: Menu) -> None:
    axis = choice(menu)
    values = np.array(sorted(menu), dtype=float)
    np.testing.assert_array_equal(axis.value(axis.place(values)), values)
    drawn = axis.value(np.random.default_rng(0).random(20_000))
    assert set(drawn) <= set(values)
    if isinstance(menu, tuple):
        share = np.mean(drawn == values[0])
        assert share == pytest.approx(1 / len(menu), abs=0.02)
    elif len(menu) > 1:
        # Alike on a log scale: half of the draws are below the geometric mean of the ends.
        assert np.mean(drawn < math.sqrt(16 * 257)) == pytest.approx(0.5, abs=0.02)


@given(u=st.floats(0, 1), low=st.floats(1e-6, 1e3), ratio=st.floats(1, 1e6))
def test_a_range_is_never_left_by_a_rounding_error(u: float, low: float, ratio: float) -> None:
    axis = Range(low, low * ratio)
    value = axis.value(np.array([u, 0.0, 1.0]))
    assert np.all((axis.low <= value) & (value <= axis.high))
    if ratio > 1.01:
        np.testing.assert_allclose(axis.place(value), [u, 0, 1], atol=1e-9)


GOOD = {"learning_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "batch_size": 16}


@pytest.mark.parametrize(
    ("of", "fields"),
    [
        *(
            (DPSGDSettings, GOOD | wrong)
            for wrong in one_at_a_time(
                learning_rate=(0.0, math.nan),
                noise_multiplier=[-1.0],
                clip=[math.inf],
                batch_size=[0],
                epochs=[0],
            )
        ),
        *(
            (TuningSpace, wrong)
            for wrong in one_at_a_time(
                learning_rate=((0.0, 1.0), (1.0, 0.1)),
                clip=[(1.0, math.inf)],
                noise_factor=[(0.9, 2.0)],
                batch_sizes=((), (16, 16), (0,), range(0)),
                epochs=((3, 3), range(5)),
            )
        ),
        *((TuningConfig, wrong) for wrong in ({"trials": -1}, {"initial": 0}, {"parallel": 0})),
    ],
)
def test_bad_settings_spaces_and_configs_are_refused(of: type, fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="at least 1" if of is TuningConfig else "expected"):
        of(**fields)
