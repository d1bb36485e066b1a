"""The one-run audit: its p-value against the paper's sum and against mechanisms of known epsilon.

Statistical tests allow four standard deviations over the stated error.
"""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attacks.epsilon import one_run as canaries
from attacks.epsilon.one_run import (
    OneRunConfig,
    audit_scores,
    audit_training,
    epsilon_bound,
    mislabelled,
    p_value,
    random_patterns,
)
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

TRIALS = 400
ERROR = 0.05
ALLOWED = TRIALS * ERROR + 4 * math.sqrt(TRIALS * ERROR * (1 - ERROR))
"""False alarms in `TRIALS` trials."""


def paper_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2, term by term."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    alpha = max((2 / i * sum(mass[v - i : v]) for i in range(1, v + 1)), default=0.0)
    return min(1.0, sum(mass[v:]) + alpha * m * delta)


@given(
    st.integers(1, 30).flatmap(
        lambda m: st.integers(1, m).flatmap(
            lambda r: st.tuples(st.just(m), st.just(r), st.integers(0, r))
        )
    ),
    st.floats(0, 8),
    st.floats(0, 0.2),
)
def test_the_p_value_is_the_papers(sizes: tuple[int, int, int], epsilon: float, delta: float):
    assert p_value(*sizes, epsilon, delta) == pytest.approx(paper_p_value(*sizes, epsilon, delta))


def test_a_thousand_canaries_reach_the_known_ceiling():
    assert epsilon_bound(1000, 1000, 1000, 1e-5) == pytest.approx(5.8, abs=0.05)


@given(st.integers(0, 100), st.sampled_from([0.0, 1e-5, 1e-3, 0.03]))
def test_every_epsilon_below_the_bound_is_refuted_and_the_bound_grows(v: int, delta: float):
    bound = epsilon_bound(200, 100, v, delta)
    for epsilon in np.linspace(0, bound, 20, endpoint=False):
        assert bound == 0 or p_value(200, 100, v, float(epsilon), delta) < ERROR
    assert p_value(200, 100, v, bound + 1e-4, delta) >= ERROR or bound == 0
    assert v == 100 or epsilon_bound(200, 100, v + 1, delta) >= bound


def responses(
    rng: np.random.Generator, m: int, epsilon: float, delta: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Scores of randomised response to m coins: with probability delta it tells them all."""
    coins = rng.random(m) < 0.5
    right = rng.random(m) < 1 / (1 + math.exp(-epsilon))
    right |= rng.random() < delta
    # Which of equal answers is guessed first is of no use to anybody.
    scores = (coins == right) + 0.5 * rng.random(m)
    return torch.from_numpy(scores), torch.from_numpy(coins)


def alarms(epsilon: float, claim: float, delta: float = 0.0, m: int = 60) -> int:
    """In how many of `TRIALS` trials a claim is refuted."""
    rng = stream(5, "responses")
    audits = [
        audit_scores(*responses(rng, m, epsilon, delta), OneRunConfig(delta=delta, claim=claim))
        for _ in range(TRIALS)
    ]
    return sum(f.refuted for f in audits)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("delta", [0.0, 0.2])
def test_a_true_claim_is_hardly_ever_refuted(epsilon: float, delta: float):
    assert alarms(epsilon, epsilon, delta) <= ALLOWED


@pytest.mark.slow
def test_a_false_claim_is_refuted_and_a_p_value_that_forgets_delta_is_caught(
    monkeypatch: pytest.MonkeyPatch,
):
    # Half the noise of randomised response: twice its epsilon.
    assert alarms(2.0, 1.0, m=400) > 0.95 * TRIALS
    real = canaries.epsilon_bound
    monkeypatch.setattr(canaries, "epsilon_bound", lambda m, r, v, _, p: real(m, r, v, 0.0, p))
    assert alarms(1.0, 1.0, delta=0.2) > ALLOWED


@pytest.mark.slow
def test_many_pairs_share_the_error():
    rng, pairs = stream(6, "pairs"), [(k, 0) for k in range(3, 60, 8)]
    together, alone = 0, 0
    for _ in range(TRIALS):
        scores, coins = torch.from_numpy(rng.random(100)), torch.from_numpy(rng.random(100) < 0.5)
        config = OneRunConfig(delta=0.0, guesses=pairs, claim=0.0)
        together += audit_scores(scores, coins, config).refuted
        alone += any(
            audit_scores(scores, coins, replace(config, guesses=[k])).refuted for k in pairs
        )
    # The planted bug: whoever tries pair after pair at the full error.
    assert together <= ALLOWED < alone


def plain(m: int, classes: int = 10) -> Samples:
    rng = stream(m, "plain")
    x = torch.from_numpy(rng.integers(256, size=(m, 1, 4, 4)).astype(np.uint8))
    return Samples(x, torch.from_numpy(rng.integers(classes, size=m)), classes)


def remember(included: Samples) -> list[Tensor]:
    return list(included.x)


def recognised(memory: list[Tensor], candidates: Samples) -> Tensor:
    return torch.tensor([float(any(torch.equal(x, m) for m in memory)) for x in candidates.x])


def test_memorised_canaries_are_caught():
    planted = random_patterns(plain(4), 200, stream(0, "patterns"))
    config = OneRunConfig(delta=1e-5, claim=2.0)
    audit = audit_training(remember, planted, recognised, config, rng=stream(0, "coins"))
    assert audit.refuted
    # Of half of 200 each as many were in as out but for chance.
    assert 2.0 < audit.lower_bound < audit.ceiling
    assert (audit.canaries, audit.config.delta, audit.config.confidence) == (200, 1e-5, 0.95)


def test_one_leaked_canary_among_many_is_no_proof_and_none_is_silent():
    planted = random_patterns(plain(4), 200, stream(0, "patterns"))
    leaks = {
        kept: audit_training(
            lambda c, kept=kept: remember(c)[:kept],
            planted,
            recognised,
            OneRunConfig(delta=1e-5, guesses=[(20, 0)]),
            rng=stream(0, "coins"),
        ).lower_bound
        for kept in (0, 1, 20)
    }
    assert leaks[0] == leaks[1] == 0.0 < leaks[20]


def test_canaries_are_different_samples_with_any_wrong_label_and_coins_are_fair():
    seen: list[Samples] = []

    def train(included: Samples) -> None:
        seen.append(included)

    planted = plain(4000)
    config = OneRunConfig(delta=0.0)
    audit_training(train, planted, lambda _, c: torch.zeros(len(c)), config, rng=stream(3, "coins"))
    assert abs(len(seen[0]) - 2000) < 4 * math.sqrt(1000)
    again = torch.from_numpy(stream(3, "coins").random(4000) < 0.5)
    assert torch.equal(seen[0].x, planted.x[again])
    samples = plain(3000, classes=3)
    numbered = Samples(torch.arange(3000.0).reshape(-1, 1, 1, 1), samples.y, 3)
    result = mislabelled(numbered, 2000, stream(0, "wrong"))
    origin = result.x.flatten().long()
    assert len(set(origin.tolist())) == 2000
    shift = (result.y - samples.y[origin]) % 3
    assert set(shift.tolist()) == {1, 2}
    assert abs(int((shift == 1).sum()) - 1000) < 4 * math.sqrt(500)


@pytest.mark.parametrize("floats", [False, True])
def test_random_patterns_are_black_and_white(floats: bool):
    like = plain(5)
    if floats:
        like = Samples(like.inputs(), like.y, like.classes)
    result = random_patterns(like, 300, stream(0, "patterns"))
    assert result.x.dtype == like.x.dtype
    assert set(result.inputs().unique().tolist()) == {-1.0, 1.0}
    assert result.shape == like.shape
    assert len(result.y.unique()) == 10


@pytest.mark.parametrize(
    ("scores", "coins", "guesses"),
    [
        *(
            ([1.0], [True], None),
            ([1.0, math.nan], [True, False], None),
            ([1.0, 2.0], [True], None),
        ),
        *(([1.0, 2.0], [True, False], [pair]) for pair in ((2, 1), (0, 0), (-1, 2))),
    ],
)
def test_bad_scores_are_refused(
    scores: list[float], coins: list[bool], guesses: list[tuple[int, int]] | None
):
    with pytest.raises(BadInput, match="expected"):
        # Without the shape checks of the tests, as a user calls it.
        inspect.unwrap(audit_scores)(
            torch.tensor(scores), torch.tensor(coins), OneRunConfig(delta=0.0, guesses=guesses)
        )


def test_bad_probabilities_and_counts_are_refused():
    for delta, confidence in ((-0.1, 0.95), (1.0, 0.95), (0.0, 1.0), (0.0, 0.0)):
        with pytest.raises(BadInput, match="probabilities"):
            epsilon_bound(10, 10, 10, delta, confidence)
    with pytest.raises(BadInput, match="right"):
        p_value(10, 5, 6, 1.0, 0.0)
    with pytest.raises(BadInput, match="fewer"):
        mislabelled(plain(5), 6, stream(0, "wrong"))
