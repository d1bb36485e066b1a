import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from attacks.audit.verdict import Verdict, judge, with_claim
from attacks.epsilon.release import ReleaseAudit
from attacks.reconstruction.metrics import ReconstructionScore, score
from attacks.threats import controls
from panas.data.samples import Samples


def _judge(*scores: list[ReconstructionScore]) -> tuple[Verdict, str]:
    return judge(*scores, rng=np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gain", "verdict"), [(0.2, "leaks"), (0.01, "no better than blind"), (0.05, "inconclusive")]
)
def test_the_verdict_asks_whether_the_gain_is_surely_above_the_margin(gain: float, verdict: str):
    attacks, beside = _noisy(gain)
    result, evidence = _judge(attacks, beside)
    assert result == verdict, evidence
    assert "noiseless rows would give 1.000" in evidence


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 19])
@pytest.mark.parametrize("gain", [0.01, 0.9])
def test_few_samples_give_no_interval_and_no_verdict(n: int, gain: float) -> None:
    (attack,), beside = _noisy(gain)
    attacks = [replace(attack, errors=attack.errors[:n], reidentified=1.0)]
    few = [replace(s, errors=s.errors[:n]) for s in beside]
    verdict, evidence = _judge(attacks, few)
    assert verdict == "inconclusive"
    assert evidence.startswith("too few samples for an interval and a verdict, which need 20; R^2")
    assert "[" not in evidence
    assert f"on {n} sample{'s' * (n > 1)}, with a tolerance of 0.05" in evidence


def test_evidence_speaks_of_samples_which_may_be_rows_of_a_table() -> None:
    attacks, (mean, _, ceiling) = _noisy(0.2)
    _, evidence = _judge(attacks, [mean, ceiling])
    assert "best blind control (mean sample)" in evidence
    assert "image" not in evidence


@pytest.mark.parametrize(
    ("found", "verdict"), [(0.12, "no better than blind"), (0.3, "inconclusive")]
)
def test_an_attack_that_finds_samples_again_is_not_blind(found: float, verdict: str) -> None:
    (attack,), beside = _noisy(0.01)
    attacks = [attack, replace(attack, name="sharp", r2=0.0, reidentified=found)]
    judged, evidence = _judge(attacks, beside)
    assert judged == verdict
    assert ("sharp finds 30.0% [24.2%, 36.3%]" in evidence) == (verdict == "inconclusive")


@cache
def _noisy(gain: float) -> tuple[list[ReconstructionScore], list[ReconstructionScore]]:
    """A gain of R^2 that differs from sample to sample."""
    rng, n = np.random.default_rng(1), 300
    truth = torch.from_numpy(rng.standard_normal((n, 1, 3, 3)))
    share = torch.from_numpy(rng.normal(0, 0.1, (n, 1, 1, 1)))
    guess = truth * (1 - math.sqrt(1 - gain)) + share * truth
    mean = torch.zeros(1, 3, 3, dtype=truth.dtype)
    # The noise costs share^2 on average; it is given back, so that the gain is as asked.
    errors = ((truth - guess) ** 2).mean(dim=(1, 2, 3)) - 0.01 * (truth**2).mean(dim=(1, 2, 3))

    def scored(name: str, images: torch.Tensor) -> ReconstructionScore:
        return score(name, truth, images, mean, rng=rng)

    total = float((truth**2).mean(dim=(1, 2, 3)).sum())
    r2 = 1 - float(errors.sum()) / total
    attack = replace(scored("any", guess), mse=float(errors.mean()), r2=r2, errors=errors)
    blind = [scored(name, mean.expand_as(truth)) for name in ("mean image", "same-class mean")]
    return [attack], [*blind, scored("ceiling", truth)]


@pytest.mark.slow
def test_a_verdict_of_one_among_many_must_be_surer() -> None:
    attacks, beside = _noisy(0.075)
    alone, evidence = _judge(attacks, beside)
    assert "at least, at 1% false alarms a run" in evidence
    for many in ({"sites": 200}, {"attacks": attacks * 20}):
        terms = {"attacks": attacks, "beside": beside, "rng": np.random.default_rng(0)} | many
        assert (alone, judge(**terms)[0]) == ("leaks", "inconclusive")


def test_what_leaked_samples_say_is_no_leak_of_the_release() -> None:
    attacks, beside = _noisy(0.2)
    known = replace(attacks[0], name="leaked mean")
    mine = [replace(attacks[0], name="ridge (leaked pairs)", threat="leaked pairs")]
    verdict, evidence = _judge(mine, [*beside, known])
    assert verdict == "no better than blind"
    assert f"of the best blind control (leaked mean) {mine[0].r2:.3f}" in evidence
    # Whoever has no leaked samples is not compared with what they say.
    theirs = [replace(attacks[0], threat="white-box")]
    assert _judge(theirs, [*beside, known])[0] == "leaks"


@pytest.mark.parametrize(("gain", "verdict"), [(0.2, "leaks"), (0.01, "no better than blind")])
def test_the_ceiling_neither_makes_a_leak_nor_excuses_one(gain: float, verdict: str) -> None:
    attacks, beside = _noisy(gain)
    low = replace(beside[0], name="ceiling", r2=0.005)
    result, evidence = _judge(attacks, [*beside[:2], low])
    assert result == verdict
    assert "would give 0.005, less than the attack, which by itself shows no leak" in evidence


def test_samples_of_one_person_are_one_draw() -> None:
    attacks, beside = _noisy(0.2)
    few = torch.arange(300) % 25
    kept = (few < 12) & (torch.arange(300) < 150)

    def of(part: torch.Tensor, groups: torch.Tensor | None) -> tuple[str, str]:
        mine, theirs = (
            [replace(s, errors=s.errors[part]) for s in scores] for scores in (attacks, beside)
        )
        return judge(mine, theirs, rng=np.random.default_rng(0), groups=groups)

    everyone = torch.ones(300, dtype=torch.bool)
    assert "on 300 samples of 25 groups" in of(everyone, few)[1]
    assert of(kept, None)[0] == "leaks"
    assert of(kept, few[kept])[0] == "inconclusive"  # of twelve people


@pytest.mark.slow
def test_the_margin_is_a_share_of_what_a_mean_of_the_site_leaves() -> None:
    attacks, beside = _noisy(0.74)
    # The public mean is far from the site: 0.04 of its error is much of what is left to know.
    near = replace(beside[0], name="others' mean", errors=beside[0].errors * 0.3, r2=0.7)
    result, evidence = _judge(attacks, [*beside, near])
    assert "a difference of 0.045" in evidence
    assert "with a tolerance of 0.015" in evidence
    assert result == "leaks"
    # A mean that is no better than the public one changes nothing.
    worse = replace(near, errors=beside[0].errors * 1.5, r2=-0.5)
    result, evidence = _judge(_noisy(0.04)[0], [*beside, worse])
    assert "with a tolerance of 0.05" in evidence
    assert result != "leaks"


def _claim(noise: float, bound: float) -> ReleaseAudit:
    return ReleaseAudit(
        part="B",
        noise_over_claim=noise,
        noise_interval=(noise - 0.1, noise + 0.1),
        claimed_epsilon=2.0,
        epsilon_lower_bound=bound,
        ceiling=4.0,
        delta=0.01,
        confidence=0.95,
        refuted=noise < 0.9 or bound > 2.0,
    )


@pytest.mark.parametrize(
    ("noise", "bound", "verdict"),
    [(1.0, 1.5, "no better than blind"), (0.5, 1.5, "leaks"), (1.0, 2.5, "leaks")],
)
def test_a_refuted_claim_is_a_leak(noise: float, bound: float, verdict: str) -> None:
    result, evidence = with_claim("no better than blind", "seen", _claim(noise, bound), 8.0)
    assert result == verdict
    assert "claimed epsilon 8 in all" in evidence


def test_what_contradicts_the_ledger_is_a_leak_and_without_a_claim_the_verdict_stays() -> None:
    result, evidence = with_claim("no better than blind", "seen", None, 8.0, "it has no receipt")
    assert result == "leaks"
    assert evidence.endswith("it has no receipt")
    assert with_claim("leaks", "seen", None, None) == ("leaks", "seen")
    _, evidence = with_claim("leaks", "seen", None, math.inf)
    assert evidence.endswith("claimed epsilon infinity in all")


@pytest.mark.slow
def test_what_the_population_looks_like_is_no_leak_and_a_sample_is() -> None:
    digits = load_digits()
    images = torch.from_numpy(digits.images.astype(np.float32) / 8 - 1)[:, None]
    pool = Samples(images, torch.from_numpy(digits.target), 10)
    order = np.random.default_rng(0).permutation(len(pool))
    public, private, held_out = (pool.take(order[a:b]) for a, b in ((0, 30), (30, 330), (330, 730)))
    mean = public.inputs().mean(0)

    def scored(name: str, guess: torch.Tensor) -> ReconstructionScore:
        return score(name, private.x, guess, mean, rng=np.random.default_rng(1))

    y = private.y
    beside = [
        scored("mean image", mean.expand_as(private.x)),
        scored("same-class mean", controls.same_class_mean(public, y)),
    ]
    known = scored("held-out class mean", controls.held_out_class_mean(public, held_out, y))
    of_members = controls.same_class_mean(private, y)

    def verdict(guess: torch.Tensor, beside: list[ReconstructionScore]) -> str:
        return judge([scored("any", guess)], beside, rng=np.random.default_rng(2))[0]

    assert verdict(of_members, beside) == "leaks"
    assert verdict(of_members, [*beside, known]) == "no better than blind"
    assert verdict((of_members + private.x) / 2, [*beside, known]) == "leaks"
