import math

import numpy as np
import pytest
import torch

from attacks.epsilon.release import ReleaseAudit, audit_release, neighbours, realised_noise
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.mechanisms import Kind, class_sums, moments, noise_scale, noisy_rows
from panas.runtime.errors import BadInput

KINDS: tuple[Kind, ...] = ("moments", "class_sums", "noisy_rows")


def _rows(n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.rand(n, 8, generator=g), dim=1)
    return z, torch.arange(n) % 3


def _made(kind: Kind, m: float, seed: int = 0) -> dict[str, torch.Tensor]:
    z, y = _rows()
    s, noise = noise_scale(kind, m), ReproducibleNoise(np.random.default_rng(seed))
    if kind == "moments":
        return moments(z, y, 3, s, noise)
    if kind == "class_sums":
        return class_sums(z, y, 3, s, noise)
    return noisy_rows(z, y, 3, s, 0.2, noise)


def _audit(kind: Kind, made: dict[str, torch.Tensor], m: float) -> ReleaseAudit:
    z, y = _rows()
    flip = 0.2 if kind == "noisy_rows" else None
    noise = ReproducibleNoise(np.random.default_rng(9))
    return audit_release(
        kind, made, z, y, classes=3, noise_multiplier=m, flip=flip, noise=noise, draws=400
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_release_is_not_refuted_and_half_the_noise_is(kind: Kind) -> None:
    sound, half = (_audit(kind, _made(kind, m), 1.0) for m in (1.0, 0.5))
    assert not sound.refuted
    assert sound.noise_interval[0] < 1 < sound.noise_interval[1]
    assert 0 <= sound.mechanism.lower_bound <= sound.claim
    assert half.refuted
    assert half.noise == pytest.approx(0.5, rel=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mechanisms_bound_is_near_its_claim_with_little_noise(kind: Kind) -> None:
    found = _audit(kind, _made(kind, 0.7), 0.7).mechanism
    assert found.lower_bound > 0.4


def test_the_interval_of_the_noise_covers_the_truth_as_often_as_it_says() -> None:
    z, y = _rows()
    s = noise_scale("class_sums", 1.0)
    held = 0
    for seed in range(300):
        parts = realised_noise("class_sums", _made("class_sums", 1.0, seed), z, y, 3, s)
        held += all(low <= 1 <= high for _, (low, high) in parts.values())
    assert held >= 297  # 299.7 expected


@pytest.mark.parametrize("confidence", [0.8, 0.99])
def test_all_parts_together_hold_1_as_often_as_they_say(confidence: float) -> None:
    z, y = _rows()
    s, held = noise_scale("noisy_rows", 1.0), 0
    for seed in range(300):
        made = _made("noisy_rows", 1.0, seed)
        parts = realised_noise("noisy_rows", made, z, y, 3, s, 0.2, confidence)
        held += all(low <= 1 <= high for _, (low, high) in parts.values())
    assert set(parts) == {"z", "sum of rows", "labels"}
    expected = 300 * confidence
    assert expected - 15 <= held <= 300  # Bonferroni errs to the safe side


def _exact(kind: Kind) -> dict[str, torch.Tensor]:
    z, y = _rows()
    run = {"class_sums": class_sums, "moments": moments}[kind]
    return run(z, y, 3, 0.0, ReproducibleNoise(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("kind", "part"), [("class_sums", "counts"), ("class_sums", "S"), ("moments", "B")]
)
def test_one_part_without_noise_is_caught_beside_others_with_it(kind: Kind, part: str) -> None:
    made = _made(kind, 1.0) | {part: _exact(kind)[part]}
    found = _audit(kind, made, 1.0)
    assert found.refuted
    assert (found.part, round(found.noise, 6)) == (part, 0.0)


def test_labels_in_clear_are_caught_beside_noisy_rows() -> None:
    z, y = _rows(200)
    noise = ReproducibleNoise(np.random.default_rng(0))
    made = noisy_rows(z, y, 3, noise_scale("noisy_rows", 1.0), 0.6, noise)

    def audit(arrays: dict[str, torch.Tensor]) -> ReleaseAudit:
        return audit_release(
            "noisy_rows", arrays, z, y, classes=3, noise_multiplier=1.0, flip=0.6, draws=100
        )

    assert not audit(made).refuted
    found = audit(made | {"y": y})
    assert (found.refuted, found.part) == (True, "labels")


def test_one_noise_for_all_rows_is_caught() -> None:
    z, y = _rows(200)
    s = noise_scale("noisy_rows", 1.0)
    same = s * torch.randn(8, generator=torch.Generator().manual_seed(0))
    opposite = torch.cat([z[:100] + same, z[100:] - same])
    flips = _made("noisy_rows", 1.0)["y"].repeat(5)
    for rows in (z + same, opposite):
        parts = realised_noise("noisy_rows", {"z": rows, "y": flips}, z, y, 3, s, 0.2)
        assert any(not low <= 1 <= high for _, (low, high) in parts.values())


def test_neighbours_differ_in_one_sample() -> None:
    z, y = _rows()
    (a, _), (b, labels) = neighbours("moments", z, y)
    assert len(b) == len(labels) == len(a) - 1
    (a, _), (b, _) = neighbours("noisy_rows", z, y)
    assert len(a) == len(b) == 1
    assert float((a - b).norm()) > 0.5


def test_what_has_no_claim_is_refused() -> None:
    z, y = _rows()
    with pytest.raises(BadInput, match="noised release"):
        audit_release("raw_rows", {"z": z, "y": y}, z, y, classes=3, noise_multiplier=1.0)
    with pytest.raises(BadInput, match="at least one sample"):
        audit_release("moments", {}, z[:0], y[:0], classes=3, noise_multiplier=1.0)


def test_the_record_is_plain() -> None:
    record = _audit("moments", _made("moments", 1.0), 1.0).to_json()
    assert record["refuted"] is False
    assert math.isclose(record["delta"], 0.01)
