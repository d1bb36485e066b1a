import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks.epsilon.mechanism import gaussian_score
from attacks.epsilon.release import (
    ReleaseAudit,
    ReleaseClaim,
    _scores,
    audit_release,
    neighbours,
    noise_of,
    realised_noise,
)
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.compression import Compression, rounded
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import kind_named, noise_scale
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput

KINDS = ("moments", "class_sums")


def _rows(n: int = 40) -> Rows:
    g = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.rand(n, 8, generator=g), dim=1)
    return Rows(z, torch.arange(n) % 3)


def _made(kind: str, m: float, seed: int = 0) -> dict[str, torch.Tensor]:
    what, noise = kind_named(kind), ReproducibleNoise(np.random.default_rng(seed))
    return what.run(_rows(), 3, noise_scale(what, m), noise)


def _claim(kind: str, made: dict[str, torch.Tensor], m: float = 1.0, n: int = 40) -> ReleaseClaim:
    return ReleaseClaim(kind=kind, arrays=made, truth=_rows(n), classes=3, noise_multiplier=m)


def _audit(kind: str, made: dict[str, torch.Tensor], m: float, draws: int = 40) -> ReleaseAudit:
    noise = ReproducibleNoise(np.random.default_rng(9))
    return audit_release(_claim(kind, made, m), noise=noise, draws=draws)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_release_is_not_refuted_and_other_noise_is(kind: str) -> None:
    sound, half = (_audit(kind, _made(kind, m), 1.0) for m in (1.0, 0.5))
    assert not sound.refuted
    assert sound.noise_interval[0] < 1 < sound.noise_interval[1]
    assert 0 <= sound.epsilon_lower_bound <= sound.claimed_epsilon
    assert half.refuted
    assert half.noise_over_claim == pytest.approx(0.5, rel=0.3)
    audit = _audit(kind, _made(kind, 2.0), 1.0)  # twice the noise
    assert audit.refuted
    assert audit.noise_interval[0] > 1
    assert audit.epsilon_lower_bound <= audit.claimed_epsilon


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["float16", "int8"])
def test_rounding_is_no_noise_and_hides_no_lack_of_it(compression: Compression) -> None:
    fine, coarse = (rounded(_made("moments", m), compression) for m in (1.0, 0.004))
    claim = replace(_claim("moments", fine), compression=compression)
    assert not any(part.wrong for part in realised_noise(claim))
    sound = replace(claim, arrays=coarse, noise_multiplier=0.004)
    assert not any(part.wrong for part in realised_noise(sound))
    lacking = replace(claim, arrays=coarse, noise_multiplier=1.0)
    assert any(part.wrong for part in realised_noise(lacking))


def _large(m: float, compression: Compression, seed: int = 3) -> ReleaseClaim:
    """A release of 4,500 rows that do not cancel, whose steps of int8 are about its noise."""
    g = torch.Generator().manual_seed(seed)
    z = torch.nn.functional.normalize(torch.randn(4500, 24, generator=g) + 1, dim=1)
    rows = Rows(z, torch.arange(len(z)) % 5)
    noise = ReproducibleNoise(np.random.default_rng(seed))
    made = rounded(moments.run(rows, 5, noise_scale(kind_named("moments"), m), noise), compression)
    return ReleaseClaim(
        kind="moments",
        arrays=made,
        truth=rows,
        classes=5,
        noise_multiplier=0.6,
        compression=compression,
    )


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["int8", "none", "float16"])
def test_rounding_of_many_samples_hides_no_lack_of_noise_and_raises_no_alarm(
    compression: Compression,
) -> None:
    for wrong in (0.0, 0.3, 1.0):
        assert any(part.wrong for part in realised_noise(_large(wrong, compression)))
    for seed in range(12):
        assert not any(p.wrong for p in realised_noise(_large(0.6, compression, seed)))


def test_rounding_that_is_not_told_of_looks_like_noise() -> None:
    coarse = rounded(_made("moments", 0.004), "int8")
    assert any(part.wrong for part in realised_noise(_claim("moments", coarse, 0.004)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_mechanisms_bound_is_near_its_claim_with_little_noise(kind: str) -> None:
    audit = _audit(kind, _made(kind, 0.7), 0.7, draws=400)
    assert audit.epsilon_lower_bound > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.8, 0.99])
def test_all_parts_together_hold_1_as_often_as_they_say(confidence: float) -> None:
    held = 0
    for seed in range(100):
        parts = realised_noise(_claim("moments", _made("moments", 1.0, seed)), confidence)
        held += not any(part.wrong for part in parts)
    names = {part.name for part in parts}
    assert {"A", "B", "A where noise is 2 s", "B row 2"} <= names
    assert len(names) == 2 + 2 + 3 + 2  # of single numbers, the least likely of each array
    expected = 100 * confidence
    assert expected - 10 <= held <= 100  # Bonferroni errs to the safe side


def _exact(kind: str) -> dict[str, torch.Tensor]:
    return _made(kind, 0.0)


@pytest.mark.parametrize(
    ("kind", "part"), [("class_sums", "counts"), ("class_sums", "S"), ("moments", "B")]
)
def test_one_part_without_noise_is_caught_beside_others_with_it(kind: str, part: str) -> None:
    made = _made(kind, 1.0) | {part: _exact(kind)[part]}
    audit = _audit(kind, made, 1.0)
    assert audit.refuted
    assert (audit.part, round(audit.noise_over_claim, 6)) == (part, 0.0)


def _with(part: str, scale: float, where: object, kind: str = "moments") -> ReleaseAudit:
    """The audit of a release whose noise is `scale` times the claimed one somewhere."""
    made, bare = _made(kind, 2.0), _exact(kind)
    made[part][where] = bare[part][where] + scale * (made[part] - bare[part])[where]
    return _audit(kind, made, 2.0)


DIAGONAL = torch.triu_indices(8, 8)[0] == torch.triu_indices(8, 8)[1]


@pytest.mark.parametrize(
    ("part", "where", "name"),
    [
        ("A", DIAGONAL, "A where noise is 2 s"),
        ("A", ~DIAGONAL, "A where noise is 1.41 s"),
        ("B", 1, "B row 1"),
        ("A", 7, "A number 7"),
        ("B", (2, 3), "B number 19"),
    ],
)
@pytest.mark.parametrize("scale", [0.0, 200.0])
def test_noise_that_is_wrong_in_one_place_is_caught_there(
    part: str, where: object, name: str, scale: float
) -> None:
    audit = _with(part, scale, where)
    assert audit.refuted
    # Too much noise somewhere is seen in all that holds it.
    assert audit.part == name if scale == 0 else audit.part.startswith(part)
    assert audit.noise_over_claim < 1e-3 if scale == 0 else audit.noise_over_claim > 3


def test_neighbours_differ_in_one_sample() -> None:
    a, b, one = neighbours(_rows())
    assert len(b.z) == len(b.y) == len(a.z) - 1
    assert len(one.z) == 1
    groups = torch.tensor([5] * 7 + [9] * 30 + [2] * 3)
    a, b, one = neighbours(_rows()._replace(groups=groups))
    assert b.groups is not None
    assert b.groups.tolist() == [5] * 7 + [2] * 3
    assert torch.equal(one.z, a.z[7:37])
    assert one.groups is not None
    assert one.groups.tolist() == [9] * 30


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_mechanism_run_on_all_samples(kind: str, grouped: bool) -> None:
    groups = torch.arange(40) // 4 if grouped else None
    claim = replace(_claim(kind, _made(kind, 1.0)), truth=_rows()._replace(groups=groups))
    result = _scores(claim, ReproducibleNoise(np.random.default_rng(3)), 6)
    # The oracle draws in the same order, and runs the mechanism on all samples every time.
    noise = ReproducibleNoise(np.random.default_rng(3))
    everyone, rest, _ = neighbours(claim.truth)

    def flat(rows: Rows, scale: float) -> torch.Tensor:
        made = claim.again(rows, scale, noise)
        return torch.cat([made[name].double().flatten() for name in claim.spread])

    means = [flat(rows, 0.0) for rows in (everyone, rest)]
    spread = torch.cat([s.flatten() for s in claim.spread.values()])
    score = gaussian_score(*means, claim.scale * spread)
    for rows, scores in zip((everyone, rest), result, strict=True):
        flat(rows, 0.0)
        expected = [float(score(flat(rows, claim.scale)[None])) for _ in range(6)]
        assert scores.tolist() == pytest.approx(expected, abs=1e-3)


def test_each_draw_runs_the_mechanism_and_none_reads_more_than_a_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that what an audit of many groups costs does not grow with them draw by draw."""
    groups, read = torch.arange(40) // 4, list[int]()
    claim = replace(_claim("moments", _made("moments", 1.0)), truth=_rows()._replace(groups=groups))
    mechanism = moments.run
    monkeypatch.setattr(
        moments, "run", lambda rows, *a: read.append(len(rows.z)) or mechanism(rows, *a)
    )
    _scores(claim, ReproducibleNoise(np.random.default_rng(3)), 50)
    assert sorted(read, reverse=True)[:3] == [40, 36, 4]
    assert len(read) == 2 + 2 * (1 + 50)


def test_the_record_is_plain_and_what_has_no_claim_or_other_arrays_is_refused() -> None:
    record = _audit("moments", _made("moments", 1.0), 1.0).to_json()
    assert record["refuted"] is False
    assert math.isclose(record["delta"], 0.01)
    with pytest.raises(BadInput, match="noised release"):
        _claim("raw_rows", dict(_rows()._asdict()))
    with pytest.raises(BadInput, match="at least one sample"):
        _claim("moments", {}, n=0)
    made = _made("moments", 1.0)
    for wrong in ({"note": torch.zeros(3)}, {"B": torch.zeros(3, 9)}):
        with pytest.raises(BadInput, match="arrays of moments and no others"):
            _claim("moments", made | wrong)
    with pytest.raises(BadInput, match="arrays of moments and no others"):
        _claim("moments", {"A": made["A"]})


def test_noise_of_counts_beside_a_release_is_tested_alike() -> None:
    exact, noise = torch.arange(10.0) * 30, ReproducibleNoise(np.random.default_rng(0))
    wrong = {
        share: sum(
            noise_of("counts", exact + share * 4 * noise.normal(10), exact, 4.0).wrong
            for _ in range(50)
        )
        for share in (0.0, 1.0, 8.0)
    }
    assert wrong[0.0] == wrong[8.0] == 50
    assert wrong[1.0] <= 1
