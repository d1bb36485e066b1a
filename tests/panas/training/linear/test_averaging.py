"""Averages by likelihood: the closed form, its limits, and what validation cannot tell."""

import math

import pytest
import torch

from panas.training.linear.averaging import (
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

PRIOR = log_prior(torch.tensor([30.0, 10.0]))


def test_weights_are_square_roots_of_likelihoods_times_what_candidates_weigh_beforehand():
    y = torch.tensor([0, 1, 1])
    of_a = torch.tensor([[2.0, 0], [0, 1], [1, 1]])
    logits = {"a": of_a, "b": torch.zeros(3, 2), RESIDUAL: of_a / 3}
    found = average(logits, y, PRIOR, with_prior=[RESIDUAL])
    variants = len(STRENGTHS) * len(TEMPERATURES)
    beforehand = {"a": 0.25 / variants, "b": 0.25 / variants, RESIDUAL: 0.5 / len(TEMPERATURES)}
    wanted = {}
    for variant, _ in found.weights:
        p = variant.probabilities(logits, PRIOR)
        likelihood = math.prod(p[i, c].item() for i, c in enumerate(y))
        wanted[variant] = beforehand[variant.candidate] * math.sqrt(likelihood)
    total = sum(wanted.values())
    for variant, weight in found.weights:
        assert weight == pytest.approx(wanted[variant] / total, rel=1e-6)
    assert len(found.weights) == 2 * variants + len(TEMPERATURES)
    assert sum(found.shares().values()) == pytest.approx(1.0)


def test_a_candidate_that_knows_drowns_one_that_errs_however_sure_it_is():
    y = torch.randint(2, (50,), generator=torch.Generator().manual_seed(0))
    right = 6 * torch.eye(2)[y]
    found = average({"right": right, "wrong": -1e30 * torch.eye(2)[y]}, y, PRIOR)
    assert found.shares()["right"] > 0.999
    said = found.probabilities({"right": right, "wrong": -right}, PRIOR)
    assert (said.argmax(1) == y).all()
    torch.testing.assert_close(said.sum(1), torch.ones(50, dtype=said.dtype))


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a", "b"], {"a": 0.5, "b": 0.5}),
        ([RESIDUAL], {RESIDUAL: 1.0}),
        (["a", "b", RESIDUAL], {"a": 0.25, "b": 0.25, RESIDUAL: 0.5}),
    ],
)
def test_without_validation_candidates_weigh_as_beforehand(
    names: list[str], wanted: dict[str, float]
):
    nothing = {name: torch.zeros(0, 2) for name in names}
    found = average(nothing, torch.zeros(0, dtype=torch.int64), PRIOR, with_prior=names[-1:])
    assert found.shares() == pytest.approx(wanted)


def test_a_prior_that_a_candidate_holds_is_not_added_again():
    found = average({"a": torch.zeros(4, 2)}, torch.zeros(4).long(), PRIOR, with_prior=["a"])
    assert {v.strength for v, _ in found.weights} == {0.0}


def test_the_prior_is_that_of_counts_of_at_least_one():
    found = log_prior(torch.tensor([-5.0, 3.0])).exp()
    torch.testing.assert_close(found, torch.tensor([0.2, 0.8]))
    said = Variant("a", 1.0, 1.0).probabilities(
        {"a": torch.zeros(1, 2)}, log_prior(torch.tensor([0, 3.0]))
    )
    torch.testing.assert_close(said, torch.tensor([[0.2, 0.8]]), check_dtype=False)


def test_a_forest_is_mixed_with_all_others_and_each_has_its_share():
    y = torch.tensor([0, 1, 2] * 10)
    # The head cannot tell class 1 from 2, nor the forest 0 from 1: their product knows all.
    head = torch.tensor([[4.0, 0, 0], [0, 4, 4], [0, 4, 4]])[y]
    both = {"head": head, FOREST: torch.tensor([[4.0, 4, 0], [4, 4, 0], [0, 0, 4]])[y]}
    prior = log_prior(torch.full((3,), 30.0))
    found = average(both, y, prior, with_prior=["head"])
    parts = {(v.candidate, v.votes) for v, _ in found.weights}
    assert parts == {("head", part) for part in VOTES} | {(FOREST, 0.0)}
    best, weight = max(found.weights, key=lambda pair: pair[1])
    assert best.votes > 0
    assert weight > 0.3
    mixed = (1 - best.votes) * head + best.votes * both[FOREST]
    wanted = (mixed / best.temperature).double().softmax(1)
    torch.testing.assert_close(best.probabilities(both, prior), wanted)
    of_forest = sum(a * (v.votes or v.candidate == FOREST) for v, a in found.weights)
    assert found.shares() == pytest.approx({"head": 1 - of_forest, FOREST: of_forest})


def test_an_average_survives_json():
    logits = {"a": torch.randn(4, 2), FOREST: torch.randn(4, 2)}
    found = average(logits, torch.zeros(4).long(), PRIOR)
    assert Average.from_json(found.to_json()) == found
