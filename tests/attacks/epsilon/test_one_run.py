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
from torch import Tensor, nn

from attacks.epsilon import one_run as canaries
from attacks.epsilon.gradient_canaries import (
    DiracCanaries,
    _flat,
    _loss,
    _Planted,
    dirac_scores,
    diracs,
    train_with_dirac_canaries,
)
from attacks.epsilon.one_run import (
    OneRunAudit,
    OneRunConfig,
    audit_scores,
    audit_training,
    epsilon_bound,
    mislabelled,
    p_value,
    random_patterns,
)
from panas.data.samples import Samples
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream, torch_generator

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


CLAIM = 1.0
CANARIES = 300
BUDGET = Budget(CLAIM, 1e-5)


def samples(n: int = 40) -> Samples:
    generator = torch_generator(stream(0, "samples"))
    x = torch.rand(n, 1, 4, 4, generator=generator) * 2 - 1
    return Samples(x, (x.mean((1, 2, 3)) > 0).long(), 2)


def network() -> nn.Sequential:
    """Two layers of 16 x 24 + 24 and 24 x 2 + 2 weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2))


def planned(budget: Budget, batch_size: int, epochs: int) -> Plan:
    schedule = TrainingSchedule(samples=40 + CANARIES, epochs=epochs)
    return calibrate(budget, schedule, batch_size=batch_size, clip=0.7)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(BUDGET, 170, 5)


@pytest.mark.filterwarnings("ignore:per-sample gradients by torch.func")
def test_a_canary_is_a_whole_clip_along_its_weight_and_others_are_what_they_were():
    net, data = network(), samples()
    gradient = PrivateGradient(_Planted(net, (1, 4, 4)), _loss)

    def clipped(rows: Tensor, y: Tensor) -> Tensor:
        return torch.cat([g.flatten() for g in gradient.clipped_sum(rows, y, 0.2)])

    for j in (0, 5, 407, 408, 457):
        row = torch.zeros(1, 17)
        row[0, 0] = 1 + j
        values = clipped(row, torch.zeros(1, dtype=torch.int64))
        assert values.nonzero().tolist() == [[j]]
        assert float(values[j]) == pytest.approx(0.2, rel=1e-5)
    plain = PrivateGradient(net).clipped_sum(data.x, data.y, 0.2)
    genuine = torch.cat([torch.zeros(40, 1), data.x.flatten(1)], dim=1)
    alone = torch.cat([g.flatten() for g in plain])
    assert torch.allclose(clipped(genuine, data.y), alone, atol=1e-5)


def test_without_noise_a_canary_moves_its_weight_by_what_theory_says():
    # A network whose data have no gradient: all inputs 0, no bias.
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 24, bias=False))
    data = Samples(torch.zeros(10, 1, 4, 4), torch.zeros(10, dtype=torch.int64), 24)
    plan = Plan(samples=20, batch_size=20, clip=0.5, noise_multiplier=1e-9, epochs=3, rounds=1)
    planted = DiracCanaries(torch.tensor([3, 70]))
    noise = ReproducibleNoise(stream(0, "noise"))
    descent = train_with_dirac_canaries(
        net, data, planted, plan=plan, learning_rate=0.1, noise=noise
    )
    expected = torch.zeros(16 * 24)
    expected[[3, 70]] = 0.1 * 3 * 0.5 / 20
    assert torch.allclose(descent, expected, atol=1e-7)
    assert torch.allclose(dirac_scores(descent, planted), expected[[3, 70]], atol=1e-7)


def audit(
    plan: Plan,
    seed: int = 0,
    *,
    canaries: DiracCanaries | None = None,
    source: type[ReproducibleNoise] = ReproducibleNoise,
) -> OneRunAudit:
    net, data, noise = network(), samples(), source(stream(seed, "noise"))
    return audit_training(
        lambda included: train_with_dirac_canaries(
            net, data, included, plan=plan, learning_rate=0.5, noise=noise
        ),
        canaries or diracs(net, CANARIES, stream(seed, "canaries")),
        dirac_scores,
        OneRunConfig(delta=BUDGET.delta, claim=CLAIM),
        rng=stream(seed, "coins"),
    )


@pytest.mark.slow
def test_dp_sgd_keeps_its_claim(plan: Plan):
    assert not any(audit(plan, seed).refuted for seed in range(5))


class HalfBare(ReproducibleNoise):
    """Noise that misses the first half of the weights."""

    def normal(self, *shape: int) -> Tensor:
        drawn = super().normal(*shape)
        drawn[: len(drawn) // 2] = 0.0
        return drawn


@pytest.mark.slow
def test_small_noise_no_clip_and_weights_without_noise_are_caught(plan: Plan):
    assert audit(replace(plan, noise_multiplier=plan.noise_multiplier / 8)).refuted
    there = DiracCanaries(torch.arange(200))
    assert not audit(plan, canaries=there).refuted
    assert audit(plan, canaries=there, source=HalfBare).refuted
    real = PrivateGradient._clipped_sum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            PrivateGradient,
            "_clipped_sum",
            lambda self, x, y, _, groups: real(self, x, y, 1e9, groups),
        )
        assert audit(plan).refuted


@pytest.mark.slow
def test_dp_sgd_at_epsilon_8_is_seen_at_work():
    budget = Budget(8.0, 1e-5)
    plan = planned(budget, 170, 5)
    bounds = [audit(plan, seed).lower_bound for seed in range(3)]
    assert all(0.5 < b < 8.0 for b in bounds)


@pytest.mark.slow
def test_a_batch_that_leaves_nobody_to_chance_is_seen(monkeypatch: pytest.MonkeyPatch):
    # At a small rate most of the privacy is in the sampling.
    plan = planned(BUDGET, 34, 2)
    assert not audit(plan).refuted
    name = "panas.privacy.noise.poisson_batch"
    monkeypatch.setattr(name, lambda n, rate, noise: torch.arange(n))
    assert audit(plan).refuted


def test_canaries_own_different_weights_of_all_layers_that_train():
    net = network()
    net[1].bias.requires_grad_(False)
    result = diracs(net, 300, stream(0, "canaries"))
    assert len(result) == len(set(result.coordinates.tolist())) == 300
    assert 0 <= int(result.coordinates.min()) <= int(result.coordinates.max()) < len(_flat(net))
    assert len(_flat(net)) == 458 - 24
    assert math.isclose(float((result.coordinates >= 384).float().mean()), 50 / 434, abs_tol=0.07)
    assert torch.equal(result.take([2, 0]).coordinates, result.coordinates[[2, 0]])


def test_too_many_canaries_and_a_plan_for_too_few_are_refused(plan: Plan):
    with pytest.raises(BadInput, match="fewer canaries"):
        diracs(network(), 459, stream(0, "canaries"))
    noise = ReproducibleNoise(stream(0, "noise"))
    short = replace(plan, samples=41)
    with pytest.raises(BadInput, match="all canaries"):
        train_with_dirac_canaries(
            network(),
            samples(),
            DiracCanaries(torch.tensor([1, 2])),
            plan=short,
            learning_rate=0.1,
            noise=noise,
        )
