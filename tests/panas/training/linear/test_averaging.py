"""Averages by likelihood: the closed form, its limits, and what validation cannot tell."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from panas.training.linear.averaging import (
    BESIDE_FOREST,
    FAVOUR,
    FOREST,
    RESIDUAL,
    STRENGTHS,
    TEMPERATURES,
    VOTES,
    Average,
    Variant,
    average,
    log_prior,
)
from panas.training.linear.averaging import PRIOR as PRIOR_SAMPLES

PRIOR = log_prior(torch.tensor([30.0, 10.0]))


def test_variants_of_a_candidate_weigh_as_square_roots_of_likelihoods():
    y = torch.tensor([0, 1, 1])
    logits = {"a": torch.tensor([[2.0, 0], [0, 1], [1, 1]])}
    result = average(logits, y, PRIOR)
    wanted = []
    for variant, _ in result.weights:
        p = variant.probabilities(logits, PRIOR)
        wanted.append(math.sqrt(math.prod(p[i, c].item() for i, c in enumerate(y))))
    assert len(wanted) == len(STRENGTHS) * len(TEMPERATURES)
    for (_, weight), value in zip(result.weights, wanted, strict=True):
        assert weight == pytest.approx(value / sum(wanted), rel=1e-6)


def test_candidates_weigh_what_makes_samples_most_likely_beside_what_they_weigh_beforehand():
    draw = torch.Generator().manual_seed(1)
    y = torch.randint(3, (40,), generator=draw)
    logits = {
        name: torch.randn(40, 3, generator=draw) + part * torch.eye(3)[y]
        for name, part in (("a", 1.0), ("b", 0.5), ("c", 2.0), (RESIDUAL, 1.0))
    }
    prior = log_prior(torch.full((3,), 30.0))
    result = average(logits, y, prior)
    said = {}
    for name, share in result.shares().items():
        parts = [(v, a / share) for v, a in result.weights if v.candidate == name]
        all_of_it = sum(a * v.probabilities(logits, prior) for v, a in parts)
        said[name] = all_of_it.gather(1, y[:, None]).squeeze(1).numpy()
    table = np.stack(list(said.values()))
    beforehand = np.array([(1 - FAVOUR) / 3] * 3 + [FAVOUR])

    def loss(free: np.ndarray) -> float:
        weights = np.exp(free - free.max())
        weights /= weights.sum()
        likely = np.log(weights @ table).sum() + PRIOR_SAMPLES * (beforehand @ np.log(weights))
        return -float(likely)

    best = minimize(loss, np.zeros(4), method="BFGS").x
    wanted = np.exp(best - best.max()) / np.exp(best - best.max()).sum()
    np.testing.assert_allclose(list(result.shares().values()), wanted, atol=1e-3)


@pytest.mark.parametrize(("name", "samples"), [("b", PRIOR_SAMPLES), (FOREST, BESIDE_FOREST)])
def test_what_candidates_weigh_beforehand_counts_as_so_many_samples(name: str, samples: float):
    y = torch.zeros(20).long()
    sure = torch.eye(2)[y]
    result = average({"wrong": -300 * sure, name: 30 * sure}, y, log_prior(torch.ones(2)))
    wrong = sum(a for v, a in result.weights if v.candidate == "wrong")
    assert wrong == pytest.approx(0.5 * samples / (20 + samples), rel=1e-3)


def test_a_candidate_that_errs_keeps_a_part_of_what_it_weighed_however_sure_it_is():
    y = torch.randint(2, (50,), generator=torch.Generator().manual_seed(0))
    right = 6 * torch.eye(2)[y]
    result = average({"right": right, "wrong": -1e30 * torch.eye(2)[y]}, y, PRIOR)
    few = 0.5 * PRIOR_SAMPLES / (50 + PRIOR_SAMPLES)
    assert result.shares()["wrong"] == pytest.approx(few, rel=1e-3)
    said = result.probabilities({"right": right, "wrong": -right}, PRIOR)
    assert (said.argmax(1) == y).all()
    torch.testing.assert_close(said.sum(1), torch.ones(50, dtype=said.dtype))


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a", "b"], {"a": 0.5, "b": 0.5}),
        ([RESIDUAL], {RESIDUAL: 1.0}),
        (["a", "b", RESIDUAL], {"a": 0.15, "b": 0.15, RESIDUAL: 0.7}),
    ],
)
def test_without_validation_candidates_weigh_as_beforehand(
    names: list[str], wanted: dict[str, float]
):
    nothing = {name: torch.zeros(0, 2) for name in names}
    result = average(nothing, torch.zeros(0, dtype=torch.int64), PRIOR, with_prior=names[-1:])
    assert result.shares() == pytest.approx(wanted)


def test_the_prior_is_that_of_counts_of_at_least_one_and_not_added_twice():
    result = log_prior(torch.tensor([-5.0, 3.0])).exp()
    torch.testing.assert_close(result, torch.tensor([0.2, 0.8]))
    said = Variant("a", 1.0, 1.0).probabilities(
        {"a": torch.zeros(1, 2)}, log_prior(torch.tensor([0, 3.0]))
    )
    torch.testing.assert_close(said, torch.tensor([[0.2, 0.8]]), check_dtype=False)
    held = average({"a": torch.zeros(4, 2)}, torch.zeros(4).long(), PRIOR, with_prior=["a"])
    assert {v.strength for v, _ in held.weights} == {0.0}


def test_a_forest_is_mixed_with_all_others_and_each_has_its_share():
    y = torch.tensor([0, 1, 2] * 10)
    # The head cannot tell class 1 from 2, nor the forest 0 from 1: their product knows all.
    head = torch.tensor([[4.0, 0, 0], [0, 4, 4], [0, 4, 4]])[y]
    both = {"head": head, FOREST: torch.tensor([[4.0, 4, 0], [4, 4, 0], [0, 0, 4]])[y]}
    prior = log_prior(torch.full((3,), 30.0))
    result = average(both, y, prior, with_prior=["head"])
    parts = {(v.candidate, v.votes) for v, _ in result.weights}
    assert parts == {("head", part) for part in VOTES} | {(FOREST, 0.0)}
    best, weight = max(result.weights, key=lambda pair: pair[1])
    assert best.votes > 0
    assert weight > 0.3
    mixed = (1 - best.votes) * head + best.votes * both[FOREST]
    wanted = (mixed / best.temperature).double().softmax(1)
    torch.testing.assert_close(best.probabilities(both, prior), wanted)
    of_forest = sum(a * (v.votes or v.candidate == FOREST) for v, a in result.weights)
    assert result.shares() == pytest.approx({"head": 1 - of_forest, FOREST: of_forest})


def test_an_average_survives_json():
    logits = {"a": torch.randn(4, 2), FOREST: torch.randn(4, 2)}
    result = average(logits, torch.zeros(4).long(), PRIOR)
    assert Average.from_json(result.to_json()) == result
