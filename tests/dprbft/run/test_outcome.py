"""The figures of a run: intervals, the gain of joining over the strongest baseline, and odds."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from summaries import site_of, summary_of

from dprbft.run.outcome import ALONE, START, outcome, wilson


def site(name: str, alone: float, joined: float, tests: int = 100, **more: Any) -> dict[str, Any]:
    steps = {"majority": 0.3, "public": 0.5, "alone": alone, "joined": joined}
    own = {"samples": {"test": tests}, "ladder": steps, "baselines": None}
    return site_of(joined, name=name, **own | more)


@pytest.mark.parametrize(("share", "n"), [(0.0, 7), (0.5, 20), (0.9, 130), (1.0, 40)])
def test_the_interval_is_wilson_s(share: float, n: int):
    expected = binomtest(round(share * n), n).proportion_ci(method="wilson")
    assert wilson(share, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_a_gain_is_over_the_strongest_baseline_in_the_mean():
    result = outcome(summary_of(site("a", 0.7, 0.9), site("b", 0.6, 0.8)))
    assert result.best == (ALONE, pytest.approx(0.65))
    assert result.gain is not None
    assert (result.gain.mean, result.gain.up, result.gain.down) == (pytest.approx(0.2), 2, 0)
    steps = {"majority": 0.3, "public": 0.95, "alone": 0.7, "joined": 0.9}
    public = outcome(summary_of(site("a", 0.7, 0.9, ladder=steps)))
    assert public.gain is not None
    assert (public.gain.over, public.gain.mean) == (START, pytest.approx(-0.05))


def test_a_gain_within_the_error_of_test_samples_is_not_clear():
    few = outcome(summary_of(*(site(str(k), 0.8, 0.85, tests=20) for k in range(4)))).gain
    many = outcome(summary_of(*(site(str(k), 0.8, 0.85, tests=2000) for k in range(4)))).gain
    assert few is not None
    assert many is not None
    # All sites gain alike, so that sites alone would give an error of 0.
    expected = math.sqrt(4 * (0.8 * 0.2 + 0.85 * 0.15) / 20) / 4
    assert few.error == pytest.approx(expected)
    assert (few.is_clear, many.is_clear) == (False, True)


def test_where_pairs_are_known_their_variance_counts():
    own = {"selected": 0.85, "local_last": 0.8, "global_last": 0.8, "differ": 3}
    sites = [site(str(k), 0.8, 0.85, tests=20, accuracy=own) for k in range(4)]
    gain = outcome(summary_of(*sites)).gain
    assert gain is not None
    # One sample of 20 for joining by the balance: two right with it alone, and one without.
    gains = np.array([1.0] * 2 + [-1.0] + [0.0] * 17)
    assert gain.error == pytest.approx(math.sqrt(4 * gains.var() / 20) / 4)


def test_a_gain_that_sites_do_not_share_is_not_clear():
    gain = outcome(summary_of(site("a", 0.5, 0.9, 9999), site("b", 0.8, 0.7, 9999))).gain
    assert gain is not None
    assert gain.error == pytest.approx(0.25, abs=1e-3)
    assert not gain.is_clear


def test_a_site_with_hardly_any_test_sample_is_in_no_mean():
    result = outcome(summary_of(site("a", 0.7, 0.9), site("b", 1.0, 0.0, tests=1)))
    assert [s.counted for s in result.sites] == [True, False]
    assert result.means["joined"] == 0.9
    nobody = outcome(summary_of(site("b", 1.0, 0.0, tests=1)))
    assert (nobody.best, nobody.gain, nobody.means) == (None, None, {})


def test_nothing_is_gained_where_nothing_was_sent():
    record = summary_of(site("a", 0.7, 0.9))
    record["communication"]["up_bytes"] = 0
    assert outcome(record).gain is None


def test_odds_are_those_of_the_largest_epsilon():
    least, most = (
        site("a", 0.7, 0.9, epsilon={"spent": e, "budget": 8.0}) for e in (0.0, "infinity")
    )
    assert outcome(summary_of(least)).odds == 1.0
    assert math.isinf(outcome(summary_of(least, most)).epsilon)
