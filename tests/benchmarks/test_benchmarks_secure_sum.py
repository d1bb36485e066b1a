import numpy as np
import pytest

import benchmarks.secure_sum_accuracy as accuracy
import benchmarks.secure_sum_audit as audit
import benchmarks.secure_sum_trust as trust
from benchmarks.secure_sum_cost import NUMBERS, costs, text


def test_costs_of_few_sites():
    rows = costs([4], repeats=1)
    assert [r["missing"] for r in rows] == [0, 1]
    for row in rows:
        assert row["bytes_vector"] == 8 * (NUMBERS + 1)
        # keys, 92 bytes to each of 3 peers and 32 of tags, 21 bytes on each of 4 sites
        # and two signatures
        assert 96 + 308 + 84 < row["bytes_up_beside_vector"] < 96 + 308 + 84 + 256
        assert row["ms_site"] > 0
    assert len(text(rows).splitlines()) == 4


@pytest.mark.thorough
def test_more_noise_on_the_sum_costs_accuracy():
    tasks = [("digits", 10, seed) for seed in (1, 2)]
    results = [accuracy.one("", task) for task in tasks]
    rows = accuracy.summary(tasks, results)
    assert [r["epsilon"] for r in rows] == [1.0, 3.0, 8.0]
    for row in rows:
        assert row["missing"] == 2
        result = row["accuracy"]
        assert result["local"] < result["secure sum"] < result["exact"] + 0.01
        assert row["epsilon_of_sum"] < row["epsilon"] < row["epsilon_of_share"]
    assert len(accuracy.text(rows).splitlines()) == 5


def test_colluding_sites_find_the_last_ones_numbers_and_no_more():
    last = np.arange(-4, 6)
    assert (audit.left_of_sum(last, 4) == last).all()


@pytest.mark.slow
def test_what_colluding_sites_show_stays_below_the_claim_and_half_the_noise_does_not():
    row = audit.audit(4, 3.0, draws=20_000)
    assert row["claim_of_sum"] < row["bound"] < row["claim_of_share"] < row["bound_half_noise"]
    assert len(audit.text([row]).splitlines()) == 3


def test_less_noise_that_nobody_else_knows_costs_more():
    rows = trust.trusts([10], [1.0])
    assert rows == [
        {"sites": 10, "missing": 2, "epsilon": 1.0, "sum": 1.0, "left_out": 1.17, "share": 3.19}
    ]
    assert len(trust.text(rows).splitlines()) == 3
