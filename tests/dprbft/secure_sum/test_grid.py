import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprbft.secure_sum.total import MOST_STEPS, Grid
from panas.runtime.errors import BadInput


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=9), st.integers(-24, 3))
def test_rounding_moves_a_number_by_half_a_step_at_most(x: list[float], power: int):
    grid, numbers = Grid(2.0**power), np.array(x)
    back = grid.decode(grid.encode(numbers), 1)
    assert np.abs(back - numbers).max() <= grid.step / 2


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_sums_of_steps_are_exact(x: list[float]):
    grid = Grid(2.0**-20)
    encoded = [grid.encode(np.array([v])) for v in x]
    total = grid.decode(np.add.reduce(encoded), len(x))[0]
    assert total == sum(round(v / grid.step) for v in x) * grid.step


@given(st.floats(1e-12, 1e12))
def test_a_grid_is_at_least_as_fine_as_asked_and_no_finer(size: float):
    assert 2**24 <= size / Grid.under(size).step < 2**25


@pytest.mark.parametrize("step", [0.0, -1.0, 0.3, 3.0, math.inf, math.nan])
def test_a_step_is_a_power_of_two(step: float):
    with pytest.raises(BadInput, match="power of two"):
        Grid(step)


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf, MOST_STEPS / 2, 1e300])
def test_numbers_that_have_no_place_are_refused(x: float):
    with pytest.raises(BadInput, match="finite numbers below"):
        Grid(1.0).encode(np.array([0.0, x]))


def test_a_sum_out_of_range_is_refused():
    total = np.array([MOST_STEPS * 3 + 1], np.uint64)
    assert Grid(1.0).decode(total, 4)[0] == MOST_STEPS * 3 + 1
    with pytest.raises(BadInput, match="out of range"):
        Grid(1.0).decode(total, 3)
    with pytest.raises(BadInput, match="out of range"):
        Grid(1.0).decode(-total, 3)


def test_no_size_no_grid():
    with pytest.raises(BadInput, match="above 0"):
        Grid.under(0.0)


def test_the_protocol_needs_no_torch():
    code = "import sys, dprbft.secure_sum.total; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
