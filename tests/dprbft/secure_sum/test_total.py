import numpy as np
import pytest

from dprbft.secure_sum.total import MOST_STEPS, check_range
from panas.runtime.errors import BadInput


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_out_of_range_is_refused(sign: int):
    total = np.array([sign * (MOST_STEPS * 3 + 1)]).view(np.uint64)
    check_range(total, 4)
    with pytest.raises(BadInput, match="out of range"):
        check_range(total, 3)
