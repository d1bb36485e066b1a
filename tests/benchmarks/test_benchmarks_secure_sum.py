from benchmarks.secure_sum_cost import NUMBERS, costs, text


def test_costs_of_few_sites():
    rows = costs([4], repeats=1)
    assert [r["missing"] for r in rows] == [0, 1]
    for row in rows:
        assert row["bytes_vector"] == 8 * (NUMBERS + 1)
        # keys and a signature, 60 bytes to each of 3 peers, 21 bytes on each of 4 sites
        assert 96 + 180 + 84 < row["bytes_up_beside_vector"] < 96 + 180 + 84 + 256
        assert row["ms_site"] > 0
    assert len(text(rows).splitlines()) == 4
