"""Label inference: its parts against naive oracles and limits; each claim with a planted bug."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from observed import observed
from torch import nn

from attacks.inference.labels import (
    Inference,
    LabelAudit,
    _together,
    audit_labels,
    infer_labels,
    score_histogram,
    score_labels,
)
from attacks.threats.observation import LabelCounts, Observation, WhiteBox
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import kind_named, noise_scale
from panas.runtime.errors import BadInput

WIDTH = 4


def identity() -> Bottom:
    """Images of four positive values, released as they are."""
    bottom = Bottom([nn.Flatten(), nn.Unflatten(1, (WIDTH, 1, 1))], WIDTH, WIDTH, unit=False)
    with torch.no_grad():
        bottom.adapt.weight.copy_(torch.eye(WIDTH))
        bottom.adapt.bias.zero_()
    return bottom.eval()


def samples(counts: tuple[int, ...], seed: int) -> Samples:
    """Class c lights value c; so many samples of each class, in random order."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.permutation(np.repeat(np.arange(len(counts)), counts)))
    x = 0.6 * torch.eye(WIDTH)[y] + 0.2 * torch.from_numpy(rng.random((len(y), WIDTH))).float()
    return Samples(x.reshape(-1, 1, 2, 2), y, len(counts))


PUBLIC, SKEWED = samples((50, 50, 50), 0), samples((150, 40, 10), 1)
LEVEL = samples((67, 67, 66), 3)


def rows(of: Samples) -> Observation[WhiteBox]:
    return observed("raw_rows", identity(), PUBLIC, z=of.x.flatten(1), y=of.y)


def sums(of: Samples, kind: str, m: float, seed: int = 0) -> Observation[WhiteBox]:
    noise = ReproducibleNoise(np.random.default_rng(seed))
    what, rows = kind_named(kind), Rows(of.x.flatten(1), of.y)
    arrays = what.run(rows, 3, noise_scale(what, m), noise)
    return observed(kind, identity(), PUBLIC, m, **arrays)


def infer(seen: Observation[WhiteBox], seed: int = 0) -> Inference:
    return infer_labels(seen, rng=np.random.default_rng(seed))


def test_labels_of_rows_are_read_and_counted() -> None:
    inference = infer(rows(SKEWED))
    assert torch.equal(inference.labels, SKEWED.y)  # type: ignore[arg-type]
    score = score_histogram(inference, SKEWED.y, PUBLIC)
    assert score.public == pytest.approx(0.75 - 1 / 3, abs=1e-3)
    assert score.interval == pytest.approx((0.0, 0.0), abs=1e-6)
    assert score.beats_blind


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_sums_tell_histogram_and_size(kind: str) -> None:
    exact = infer(sums(SKEWED, kind, 1e-6))
    assert exact.labels is None
    assert exact.size == pytest.approx(200, rel=0.05)
    assert exact.shares.tolist() == pytest.approx([0.75, 0.2, 0.05], abs=0.02)
    assert score_histogram(exact, SKEWED.y, PUBLIC).beats_blind
    assert score_histogram(infer(sums(SKEWED, kind, 2.0)), SKEWED.y, PUBLIC).beats_blind
    drowned = [
        score_histogram(infer(sums(SKEWED, kind, 300.0, s), s), SKEWED.y, PUBLIC).beats_blind
        for s in range(40)
    ]
    assert sum(drowned) <= 3


@pytest.mark.slow
def test_a_client_as_the_public_shows_no_histogram_nor_do_public_rows() -> None:
    results = [
        score_histogram(infer(sums(LEVEL, "class_sums", 3.0, s), s), LEVEL.y, PUBLIC).beats_blind
        for s in range(40)
    ]
    assert not any(results)
    z = PUBLIC.x.flatten(1)
    inference = infer(observed("public_rows", identity(), PUBLIC, z=z, y=PUBLIC.y))
    assert inference.labels is None
    assert not score_histogram(inference, SKEWED.y, PUBLIC).beats_blind


@pytest.mark.parametrize("seen", [rows(SKEWED), sums(SKEWED, "moments", 1.0)])
def test_what_was_found_is_written_with_six_digits_and_read_again(seen: Observation) -> None:
    result = audit_labels(seen, SKEWED.y, np.random.default_rng(0)).to_json()
    interval = result["histogram"]["interval"]
    assert interval == [round(v, 6) for v in interval]
    assert LabelAudit.from_json(result).to_json() == result
    if result["rows"]:
        keys = {"accuracy", "interval", "blind", "shuffled", "beats_blind"}
        assert set(result["rows"]) == keys
        assert result["rows"]["beats_blind"] is True


def test_a_constant_guess_beats_nobody_and_blind_is_the_commonest_class() -> None:
    public = samples((9, 9, 30), 0)
    lucky = score_labels(torch.zeros(200, dtype=torch.int64), SKEWED.y, public)
    assert lucky.accuracy == 0.75
    assert lucky.shuffled == pytest.approx(0.75)
    assert not lucky.beats_blind
    public = samples((10, 30, 10), 0)
    score = score_labels(SKEWED.y, SKEWED.y, public)
    # Class 1, the commonest public one, would give 40 of 200; a release tells the site's shares.
    assert score.blind == pytest.approx(0.75)
    assert score_labels(LEVEL.y, LEVEL.y, public).blind == pytest.approx(67 / 200)
    assert score.accuracy == 1
    assert score.beats_blind


def test_a_distance_is_half_the_sum_of_gaps() -> None:
    shares = torch.tensor([0.5, 0.25, 0.25])
    inference = Inference(None, shares, shares.repeat(5, 1), 4.0)
    score = score_histogram(inference, torch.tensor([0, 0, 0, 1]), PUBLIC)
    assert score.distance == pytest.approx((0.25 + 0 + 0.25) / 2)
    assert score.interval == pytest.approx((0.25, 0.25))
    assert score.uniform == score.public == pytest.approx(0.75 - 1 / 3)
    assert score.beats_blind


def test_few_leaked_pairs_do_not_stop_it_and_a_guess_of_other_rows_is_refused() -> None:
    public = replace(PUBLIC.take(range(9)), y=torch.zeros(9, dtype=torch.int64))
    seen = replace(rows(SKEWED), public=public)
    assert infer(seen).labels.shape == (200,)  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="each of one or more rows"):
        score_labels(SKEWED.y[:3], SKEWED.y, PUBLIC)


def test_counts_that_are_told_twice_are_weighed_by_their_noise() -> None:
    first, second = torch.tensor([10.0, 2.0, 0.0]), torch.tensor([16.0, 8.0, -9.0])
    counts, noise = _together((first, torch.tensor([1.0, 2.0, 1.0])), (second, 2.0))
    assert counts.tolist() == pytest.approx([(10 + 16 / 4) / 1.25, 5.0, 0.0])
    assert noise.tolist() == pytest.approx([0.8**0.5, 2**0.5, 0.8**0.5])


@pytest.mark.slow
def test_a_histogram_beside_the_release_makes_the_guess_better() -> None:
    def distance(seed: int, scale: float | None) -> float:
        seen = sums(SKEWED, "moments", 20.0, seed)
        if scale is not None:
            noise = ReproducibleNoise(np.random.default_rng(100 + seed))
            counts = SKEWED.histogram() + scale * noise.normal(3)
            seen = replace(seen, histogram=LabelCounts(counts.float(), scale))
        return score_histogram(infer(seen), SKEWED.y, PUBLIC).distance

    alone, some, exact = (
        np.mean([distance(s, scale) for s in range(20)]) for scale in (None, 10.0, 0.0)
    )
    assert exact < 1e-3
    assert some < 0.7 * alone
