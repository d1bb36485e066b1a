"""Averages by likelihood: the closed form, its limits, and what validation cannot tell."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from panas.privacy.release.histogram import unit_counts
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
    worth_of,
)
from panas.training.linear.averaging import PRIOR as PRIOR_SAMPLES

PRIOR = log_prior(torch.tensor([30.0, 10.0]))
EXACT = 1e12
"""Of a prior that no label can better."""


def test_variants_of_a_candidate_weigh_as_square_roots_of_likelihoods():
    y = torch.tensor([0, 1, 1])
    logits = {"a": torch.tensor([[2.0, 0], [0, 1], [1, 1]])}
    result = average(logits, y, PRIOR, worth=EXACT)
    wanted = []
    for variant, _ in result.weights:
        p = variant.probabilities(logits, PRIOR[None], PRIOR)
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
    result = average(logits, y, prior, worth=EXACT)
    said = {}
    for name, share in result.shares().items():
        parts = [(v, a / share) for v, a in result.weights if v.candidate == name]
        all_of_it = sum(a * v.probabilities(logits, prior[None], prior) for v, a in parts)
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
    result = average(
        {"wrong": -300 * sure, name: 30 * sure}, y, log_prior(torch.ones(2)), worth=EXACT
    )
    wrong = sum(a for v, a in result.weights if v.candidate == "wrong")
    assert wrong == pytest.approx(0.5 * samples / (20 + samples), rel=1e-3)


def test_a_candidate_that_errs_keeps_a_part_of_what_it_weighed_however_sure_it_is():
    y = torch.randint(2, (50,), generator=torch.Generator().manual_seed(0))
    right = 6 * torch.eye(2)[y]
    result = average({"right": right, "wrong": -1e30 * torch.eye(2)[y]}, y, PRIOR, worth=EXACT)
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
    result = average(nothing, torch.zeros(0, dtype=torch.int64), PRIOR, names[-1:], worth=EXACT)
    assert result.shares() == pytest.approx(wanted)


def test_the_prior_is_that_of_counts_of_at_least_one_and_not_added_twice():
    result = log_prior(torch.tensor([-5.0, 3.0])).exp()
    torch.testing.assert_close(result, torch.tensor([0.2, 0.8]))
    prior, wanted = log_prior(torch.tensor([0, 3.0])), torch.tensor([[0.2, 0.8]])
    said = Variant("a", 1.0, 1.0).probabilities({"a": torch.zeros(1, 2)}, prior[None], prior)
    torch.testing.assert_close(said, wanted, check_dtype=False)
    held = {"a": prior.expand(4, 2)}
    known = average(held, torch.zeros(4).long(), prior, ["a"], worth=EXACT)
    for variant, _ in known.weights:
        said = variant.probabilities(held, prior[None], prior)[0]
        wanted = (prior.double() / variant.temperature).softmax(0)
        torch.testing.assert_close(said, wanted)


def test_a_forest_is_mixed_with_all_others_and_each_has_its_share():
    y = torch.tensor([0, 1, 2] * 10)
    # The head cannot tell class 1 from 2, nor the forest 0 from 1: their product knows all.
    head = torch.tensor([[4.0, 0, 0], [0, 4, 4], [0, 4, 4]])[y]
    both = {"head": head, FOREST: torch.tensor([[4.0, 4, 0], [4, 4, 0], [0, 0, 4]])[y]}
    prior = log_prior(torch.full((3,), 30.0))
    result = average(both, y, prior, ["head"], worth=EXACT)
    parts = {(v.candidate, v.votes) for v, _ in result.weights}
    assert parts == {("head", part) for part in VOTES} | {(FOREST, 0.0)}
    best, _ = max(result.weights, key=lambda pair: pair[1])
    assert best.votes > 0
    alike = [a for v, a in result.weights if replace(v, strength=best.strength) == best]
    assert sum(alike) > 0.3
    mixed = (1 - best.votes) * head + best.votes * both[FOREST]
    wanted = (mixed / best.temperature).double().softmax(1)
    torch.testing.assert_close(best.probabilities(both, prior[None], prior), wanted)
    of_forest = sum(a * (v.votes or v.candidate == FOREST) for v, a in result.weights)
    assert result.shares() == pytest.approx({"head": 1 - of_forest, FOREST: of_forest})


def test_an_average_survives_json():
    logits = {"a": torch.randn(4, 2), FOREST: torch.randn(4, 2)}
    result = average(logits, torch.zeros(4).long(), PRIOR, ["a"], worth=3.0)
    assert Average.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_an_average_of_an_earlier_version_adds_what_the_histogram_says():
    written = [{"candidate": "a", "strength": 1.0, "temperature": 1.0, "votes": 0.0, "weight": 1.0}]
    said = Average.from_json(written).probabilities({"a": torch.zeros(3, 2)}, PRIOR)
    torch.testing.assert_close(said[0], PRIOR.double().softmax(0))


def test_labels_of_validation_samples_count_beside_as_many_as_the_histogram_is_worth():
    y, prior = torch.tensor([0, 0, 0, 1]), log_prior(torch.tensor([9.0, 89.0]))
    result = average({"a": torch.zeros(4, 2)}, y, prior, worth=3.0)
    wanted = torch.tensor([0.1 * 4 + 3, 0.9 * 4 + 1]).double() / 8
    torch.testing.assert_close(torch.tensor(result.log_frequencies).exp().double(), wanted)
    (strong,) = (v for v, _ in result.weights if (v.strength, v.temperature) == (1, 1))
    alone = replace(result, weights=((strong, 1.0),))
    said = alone.probabilities({"a": torch.zeros(2, 2)}, prior)
    torch.testing.assert_close(said, wanted.expand(2, 2))
    exact = average({"a": torch.zeros(4, 2)}, y, prior, worth=EXACT)
    torch.testing.assert_close(torch.tensor(exact.log_frequencies), prior)


def test_a_validation_sample_is_judged_by_the_labels_of_the_others():
    """Or each would praise the frequencies that it made itself."""
    y, prior = torch.arange(10), log_prior(torch.zeros(10))
    result = average({"a": torch.zeros(10, 10)}, y, prior, worth=0.0)
    by_itself = sum(a for v, a in result.weights if v.strength == 0)
    assert by_itself > 0.6


def test_what_is_held_of_the_histogram_is_replaced_by_sharper_frequencies():
    """A candidate whose logits hold the prior says as much as one that does not."""
    g = torch.Generator().manual_seed(0)
    y, prior = torch.randint(3, (30,), generator=g), log_prior(torch.tensor([50.0, 2, 8]))
    bare = torch.randn(30, 3, generator=g)
    both = {"bare": bare, "holding": bare + prior}
    result = average(both, y, prior, ["holding"], worth=5.0)
    row, known = prior[None], torch.tensor(result.log_frequencies)[None]
    for name in both:
        whole = Variant(name, 1.0, 1.0, holds=name == "holding")
        said = whole.probabilities(both, known, prior)
        torch.testing.assert_close(said, (bare + known).double().softmax(1), rtol=1e-5, atol=1e-6)
    none = Variant("holding", 0.0, 1.0, holds=True).probabilities(both, row, prior)
    torch.testing.assert_close(none, (bare + prior).double().softmax(1))


def test_a_mixture_with_the_forest_gets_what_its_part_does_not_hold():
    g = torch.Generator().manual_seed(0)
    prior, row = log_prior(torch.tensor([90.0, 5, 1])), torch.zeros(1, 3) - math.log(3)
    head, forest = torch.randn(4, 3, generator=g), torch.randn(4, 3, generator=g)
    said = Variant("head", 1.0, 1.0, votes=2 / 3, holds=True).probabilities(
        {"head": head + prior, FOREST: forest}, row, prior
    )
    wanted = (head / 3 + 2 / 3 * forest).double().softmax(1)
    torch.testing.assert_close(said, wanted, rtol=1e-5, atol=1e-6)


def test_samples_of_one_group_count_as_the_group_does_in_the_histogram():
    y = torch.tensor([0] * 20 + [1] * 5 + [2] + [0, 1])
    groups = torch.tensor([7] * 20 + [3] * 5 + [9] + [4, 4])
    prior = log_prior(torch.zeros(3))
    result = average({"a": torch.zeros(28, 3)}, y, prior, worth=0.0, groups=groups)
    wanted = 1 / 3 + unit_counts(y, groups, 3)
    found = torch.tensor(result.log_frequencies).exp().double()
    torch.testing.assert_close(found, wanted / wanted.sum())


def test_samples_are_not_judged_by_others_of_their_group():
    y = torch.arange(10).repeat_interleave(9)
    prior = log_prior(torch.zeros(10))
    result = average({"a": torch.zeros(90, 10)}, y, prior, worth=0.0, groups=y)
    assert sum(a for v, a in result.weights if v.strength == 0) > 0.9


@pytest.mark.parametrize(("sites_samples", "noise"), [(150, 12.0), (150, 0.0), (600, 12.0)])
def test_a_histogram_is_worth_as_many_exact_labels_as_err_alike(sites_samples: int, noise: float):
    rng, classes, n = np.random.default_rng(0), 10, sites_samples
    mix = np.full(classes, 1 / classes)
    noised = rng.multinomial(n, mix, 4000) + noise * rng.standard_normal((4000, classes))
    error = np.square(noised / n - mix).sum(1).mean()
    worth = worth_of(torch.full((classes,), n / classes), noise)
    few = rng.multinomial(round(worth), mix, 4000) / round(worth)
    assert error == pytest.approx(np.square(few - mix).sum(1).mean(), rel=0.1)


@pytest.mark.parametrize("histogram", [[-3.0, -1.0], [5.0], [0.0, 0.0, 0.0]])
def test_histograms_of_noise_alone_and_of_one_class_have_a_worth(histogram: list[float]):
    assert 0 <= worth_of(torch.tensor(histogram), 7.0) <= max(1, sum(histogram))
