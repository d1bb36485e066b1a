"""The ROC against naive counts, and its intervals over many seeds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from attacks.inference import roc as module
from attacks.inference.roc import Roc, roc
from attacks.statistics import MIN_SAMPLES, clopper_pearson, gain_interval, mean_interval
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream


def scored(ins: list[float], outs: list[float]) -> Roc:
    """Members and others mixed, so that no order can be relied on."""
    scores = torch.tensor([*ins, *outs], dtype=torch.float64)
    members = torch.tensor([True] * len(ins) + [False] * len(outs))
    mixed = torch.from_numpy(stream(0, "mixed").permutation(len(scores)))
    return roc(scores[mixed], members[mixed], rng=stream(0, "bootstrap"))


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 10)


VALUES = st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0, math.inf]), min_size=2)


@given(VALUES, VALUES)
def test_the_auc_counts_pairs_and_the_curve_counts_heads(ins: list[float], outs: list[float]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RESAMPLES", 3)
        result = scored(ins, outs)
    pairs = [(a > b) + (a == b) / 2 for a in ins for b in outs]
    assert result.auc == pytest.approx(sum(pairs) / len(pairs))
    curve = {(0.0, 0.0)} | {
        (sum(b >= t for b in outs) / len(outs), sum(a >= t for a in ins) / len(ins))
        for t in [*ins, *outs]
    }
    assert set(zip(result.fpr.tolist(), result.tpr.tolist(), strict=True)) == curve
    assert np.all(np.diff(result.fpr) >= 0)
    assert np.all(np.diff(result.tpr) >= 0)
    assert (result.fpr[-1], result.tpr[-1]) == (1.0, 1.0)


@pytest.mark.usefixtures("_few")
def test_true_positives_are_counted_above_as_many_false_ones_as_are_allowed():
    outs = [float(i) for i in range(1000)]
    # Of others ten are above 989, one is above 998, none above 999.
    result = scored([989.5] * 30 + [998.5] * 15 + [1000.0] * 5 + [0.0] * 50, outs)
    one, tenth = result.points
    assert (one.fpr, one.tpr) == (0.01, 0.5)
    assert (tenth.fpr, tenth.tpr) == (0.001, 0.2)
    low, high = binomtest(50, 100).proportion_ci(method="exact")
    assert one.interval == pytest.approx((low, high))
    # Among few others no false positive is allowed at all.
    assert [p.tpr for p in scored([5.0, 7.0, 9.0], [6.0, 7.0, 1.0]).points] == [1 / 3] * 2
    assert scored([5.0, 5.0], [6.0, 6.0]).points[0].interval[0] == 0.0
    assert scored([7.0, 7.0], [6.0, 6.0]).points[0].interval[1] == 1.0


@pytest.mark.thorough
def test_scores_that_tell_nothing_hold_one_half_over_100_seeds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "RESAMPLES", 200)
    holds = {0.0: 0, 0.6: 0}
    silent = 0
    for seed in range(100):
        rng = stream(seed, "scores")
        noise, members = rng.standard_normal(200), rng.random(200) < 0.5
        for shift in holds:
            result = roc(
                torch.from_numpy(noise + shift * members), torch.from_numpy(members), rng=rng
            )
            low, high = result.auc_interval
            holds[shift] += low <= 0.5 <= high
            silent += shift == 0 and result.epsilon_if_independent == 0
    # The percentile bootstrap of 200 candidates may fall a little short of 95 %.
    assert 100 - holds[0.0] <= binom.isf(1e-4, 100, 0.06)
    assert silent >= 100 - binom.isf(1e-4, 100, 0.05)
    # The planted leak: members score a little higher.
    assert holds[0.6] < 20


@pytest.mark.thorough
@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("others", [20, 300])
@pytest.mark.parametrize("steps", [math.inf, 50.0])  # of the scores: ties are no way round it
def test_the_true_rate_of_false_positives_is_below_its_bound(others: int, steps: float):
    wrong, beyond, seeds = 0, 0, 400
    for seed in range(seeds):
        uniform = stream(seed, "uniform").random(others)
        scores = np.ceil(uniform * steps) / steps if steps < math.inf else uniform
        threshold = np.sort(scores)[::-1][others // 100]
        true = 1 - threshold  # of a uniform score, and of one rounded up to steps
        point = scored([2.0, 2.0], scores.tolist()).points[0]
        wrong += true > point.fpr_bound
        beyond += true > 0.01
    assert wrong <= binom.isf(1e-4, seeds, 0.025)
    # The rate that was asked for is no bound.
    assert beyond > 100 or steps < math.inf


@pytest.mark.usefixtures("_few")
def test_members_that_stand_out_need_an_epsilon_in_any_order_of_candidates():
    result = scored([1.0] * 500, [0.0] * 500)
    assert result.auc == 1.0
    assert result.auc_interval == (1.0, 1.0)
    assert result.epsilon_if_independent > 4
    record = result.to_json()
    assert record["points"][0] == {
        "fpr": 0.01,
        "tpr": 1.0,
        "interval": (pytest.approx(0.9926, abs=1e-4), 1.0),
        "fpr_bound": pytest.approx(0.0231, abs=1e-4),
    }
    # Sorted scores: each half of the bound must see all kinds.
    ins, outs = torch.linspace(0, 1, 1000), torch.linspace(-0.7, 0.3, 1000)
    members = torch.arange(2000) < 1000
    assert roc(torch.cat([ins, outs]), members, rng=stream(0, "b")).epsilon_if_independent > 2


@pytest.mark.parametrize(
    ("ins", "outs"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 2.0])]
)
def test_bad_scores_are_refused(ins: list[float], outs: list[float]):
    with pytest.raises(BadInput, match="all numbers"):
        scored(ins, outs)


@given(n=st.integers(1, 60), share=st.floats(0, 1), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_bounds_are_where_the_binomial_tails_are(n: int, share: float, confidence: float) -> None:
    hits, tail = round(share * n), (1 - confidence) / 2
    low, high = clopper_pearson(hits, n, confidence)
    assert 0 <= low <= hits / n <= high <= 1
    assert (low == 0) == (hits == 0)
    assert (high == 1) == (hits == n)
    if hits:
        assert binom.sf(hits - 1, n, low) == pytest.approx(tail, rel=1e-6)
    if hits < n:
        assert binom.cdf(hits, n, high) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize("wrong", [(-1, 5, 0.95), (6, 5, 0.95), (0, 0, 0.95), (1, 5, 1.0)])
def test_numbers_out_of_range_are_refused(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(BadInput, match="hits of n"):
        clopper_pearson(*wrong)


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_claims() -> None:
    # R^2 of errors uniform on [0, 1] against a reference of 1 is 1/2.
    rng, hits = np.random.default_rng(0), 0
    for _ in range(200):
        errors = torch.from_numpy(rng.random(100))
        ones = torch.ones(100, dtype=torch.float64)
        low, high = gain_interval(errors, ones, ones, rng=rng)
        hits += low <= 0.5 <= high
    assert 180 <= hits <= 199  # 190 expected


def test_pairing_narrows_a_difference_and_a_shift_of_it_is_caught() -> None:
    rng = np.random.default_rng(0)
    baseline = torch.from_numpy(rng.random(200))
    ones = torch.ones(200, dtype=torch.float64)
    low, high = gain_interval(baseline - 0.1, baseline, ones, rng=rng)
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.1))
    alone = gain_interval(baseline - 0.1, ones, ones, rng=rng)
    assert alone[1] - alone[0] > 0.05


@pytest.mark.parametrize("n", [1, 3, MIN_SAMPLES - 1])
def test_a_gain_on_few_samples_has_no_interval(n: int) -> None:
    rng = np.random.default_rng(0)
    errors, baseline = (torch.from_numpy(rng.random(n)) for _ in range(2))
    assert np.isnan(gain_interval(errors, baseline, torch.ones(n).double(), rng=rng)).all()


@pytest.mark.slow
def test_the_interval_of_a_mean_covers_it_as_often_as_it_claims() -> None:
    rng, hits = np.random.default_rng(1), 0
    for _ in range(200):
        low, high = mean_interval(torch.from_numpy(rng.random(100)), rng=rng)
        hits += low <= 0.5 <= high
    assert 180 <= hits <= 199
