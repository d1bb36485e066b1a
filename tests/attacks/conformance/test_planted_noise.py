"""Releases with a leak planted in their noise are noticed, and sound ones are not."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from attacks.audit.conformance import conformance
from attacks.conformance.company import Noise, findings_between
from attacks.conformance.finding import ERROR, Finding, alarms
from attacks.conformance.noise import as_matrix, findings_of
from attacks.conformance.residual import residual_of
from attacks.epsilon.release import ReleaseClaim
from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise
from panas.privacy.release.compression import Compression, rounded
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import kind_named, noise_scale
from panas.privacy.release.kinds.moments import unpack_symmetric
from panas.privacy.release.rows import clip_rows
from panas.runtime.seeds import stream

SITES, CLASSES, MULTIPLIER = 10, 5, 0.7
EACH = ERROR / 2 / SITES
Make = Callable[..., Tensor]


def rows_of_site(seed: int, n: int = 150, d: int = 30) -> Rows:
    rng = torch.Generator().manual_seed(seed)
    z = torch.randn(n, d, generator=rng) + 0.3
    return Rows(torch.nn.functional.normalize(z), torch.randint(0, CLASSES, (n,), generator=rng))


def claim_of(
    rows: Rows, kind: str, noise: NoiseSource, weights: Tensor | None = None
) -> ReleaseClaim:
    k = kind_named(kind)
    sent = rows if weights is None else repeated(rows, weights)
    arrays = k.run(sent, CLASSES, noise_scale(k, MULTIPLIER), noise)
    return ReleaseClaim(
        kind=kind, arrays=arrays, truth=rows, classes=CLASSES, noise_multiplier=MULTIPLIER
    )


def repeated(rows: Rows, times: Tensor) -> Rows:
    return Rows(rows.z.repeat_interleave(times, 0), rows.y.repeat_interleave(times))


def found(claim: ReleaseClaim) -> set[str]:
    return {f.test for f in alarms(findings_of(residual_of(claim)), EACH)}


def replaced(claim: ReleaseClaim, noise: dict[str, Tensor]) -> ReleaseClaim:
    """The release with other noise in standard deviations."""
    exact = claim.again(claim.truth, 0.0, SystemNoise())
    arrays = {
        name: (exact[name].double() + z * claim.scale * claim.spread[name]).float()
        for name, z in noise.items()
    }
    return ReleaseClaim(
        kind=claim.kind,
        arrays=arrays,
        truth=claim.truth,
        classes=claim.classes,
        noise_multiplier=claim.noise_multiplier,
    )


GENERATOR = np.random.default_rng()


@pytest.fixture(autouse=True)
def again() -> None:
    """Each test draws the same, whichever ran before: one site's noise shows some makings in five
    of six draws alone."""
    GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state


def normal(*shape: int) -> Tensor:
    return torch.from_numpy(GENERATOR.standard_normal(shape))


def signs(*shape: int) -> Tensor:
    return normal(*shape).sign()


def uniform(*shape: int) -> Tensor:
    return torch.from_numpy(GENERATOR.uniform(-math.sqrt(3), math.sqrt(3), shape))


def laplace(*shape: int) -> Tensor:
    return torch.from_numpy(GENERATOR.laplace(0, math.sqrt(0.5), shape))


def of_torch_seed(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(54321))


def of_numpy_seed(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(777).standard_normal(shape))


def low_rank(*shape: int) -> Tensor:
    if len(shape) == 2:
        return normal(shape[0], 1) @ normal(1, shape[1])
    d = (math.isqrt(8 * shape[0] + 1) - 1) // 2
    if d < 6:
        return normal(*shape)
    factor = normal(d, 2)
    matrix = factor @ factor.T - torch.eye(d, dtype=torch.float64) * 2
    upper = matrix[tuple(torch.triu_indices(d, d))]
    return upper / upper.square().mean().sqrt()


def twice(*shape: int) -> Tensor:
    z = normal(*shape).flatten()
    z[len(z) // 2 :] = z[: len(z) - len(z) // 2].flip(0)
    return z.reshape(shape)


def walking(*shape: int) -> Tensor:
    z = normal(*shape).flatten()
    for i in range(1, len(z)):
        z[i] = 0.6 * z[i - 1] + 0.8 * z[i]
    return z.reshape(shape)


def truncated(*shape: int) -> Tensor:
    z = normal(*shape)
    z = torch.where(z.abs() > 1.5, z.sign() * 1.5 * (normal(*shape).abs() % 1), z)
    return z / z.square().mean().sqrt()


def louder(*shape: int) -> Tensor:
    return 1.2 * normal(*shape)


def with_constant_row(*shape: int) -> Tensor:
    z = normal(*shape)
    if len(shape) == 2:
        z[1] = z[0]
    return z


SHAPE = {
    f"shape ({test})" for test in ("Kolmogorov-Smirnov", "Anderson-Darling", "kurtosis", "largest")
}
BAD_NOISE: list[tuple[Make, set[str]]] = [
    (signs, SHAPE),
    (uniform, SHAPE),
    (laplace, SHAPE),
    (truncated, SHAPE),
    (low_rank, {"spectrum"}),
    (twice, {"repeats"}),
    (walking, {"order"}),
    (louder, {"size"}),
    (with_constant_row, {"repeats"}),
]


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
@pytest.mark.parametrize(("make", "tests"), BAD_NOISE, ids=lambda v: getattr(v, "__name__", ""))
def test_noise_of_another_making_is_noticed(make: Make, tests: set[str], kind: str) -> None:
    claim = claim_of(rows_of_site(1, d=30 if kind == "moments" else 120), kind, SystemNoise())
    noise = {name: make(*z.shape) for name, z in claim.arrays.items()}
    assert found(replaced(claim, noise)) & tests


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_sound_releases_raise_no_alarm(kind: str) -> None:
    for seed in range(20):
        claim = claim_of(rows_of_site(seed), kind, ReproducibleNoise(stream(seed, "sound")))
        assert not found(claim)


@pytest.mark.parametrize("times", [10, 100])
def test_a_sample_that_counts_more_than_once_is_noticed(times: int) -> None:
    rows = rows_of_site(2)
    weights = torch.ones(len(rows.y), dtype=torch.int64)
    weights[17] = times
    assert "weight" in found(claim_of(rows, "moments", SystemNoise(), weights))


def test_a_direction_of_a_sample_without_noise_is_noticed() -> None:
    rows = rows_of_site(3)
    claim = claim_of(rows, "moments", SystemNoise())
    v = clip_rows(rows.z.double())[4]
    v = v / v.norm()
    d = len(v)
    rest = torch.eye(d, dtype=torch.float64) - torch.outer(v, v)
    A = unpack_symmetric(normal(d * (d + 1) // 2), d)
    A = rest @ (A + torch.diag(A.diag()) * (math.sqrt(2) - 1)) @ rest
    A = A - torch.diag(A.diag()) * (1 - math.sqrt(0.5))
    noise = {"A": A[tuple(torch.triu_indices(d, d))], "B": normal(CLASSES, d) @ rest}
    assert "bare" in found(replaced(claim, noise))
    matrix, _ = as_matrix(noise["A"])
    assert matrix is not None
    assert float((matrix @ v).norm()) < 1e-9


def test_data_in_the_last_bits_are_noticed() -> None:
    claim = claim_of(rows_of_site(4, d=40), "moments", SystemNoise())
    bits = claim.arrays["A"].view(torch.int32)
    image = torch.arange(len(bits), dtype=torch.int32) // 60 % 16
    arrays = {**claim.arrays, "A": ((bits & ~15) | image).view(torch.float32)}
    hidden = ReleaseClaim(
        kind="moments",
        arrays=arrays,
        truth=claim.truth,
        classes=CLASSES,
        noise_multiplier=MULTIPLIER,
    )
    assert found(hidden) == {"low bits"}


@pytest.mark.parametrize("compression", ["float16", "int8"])
def test_compression_alone_raises_no_alarm_and_hides_no_lack_of_noise(
    compression: Compression,
) -> None:
    claim = claim_of(rows_of_site(4, d=40), "moments", SystemNoise())
    sent = replace(claim, arrays=rounded(claim.arrays, compression), compression=compression)
    assert found(sent) == set()
    little = replaced(claim, {n: 0.5 * z for n, z in residual_of(claim).arrays.items()})
    sent = replace(sent, arrays=rounded(little.arrays, compression))
    assert "size" in found(sent)


def noises(make: Callable[[int], NoiseSource]) -> dict[str, Noise]:
    claims = [claim_of(rows_of_site(i), "moments", make(i)) for i in range(SITES)]
    return {f"site {i}": conformance(claim).noise for i, claim in enumerate(claims)}


def between(noise: dict[str, Noise]) -> list[Finding]:
    return alarms(findings_between(noise), ERROR / 2)


def test_sites_of_sound_noise_raise_no_alarm_beside_each_other() -> None:
    assert not between(noises(lambda _: SystemNoise()))


def test_noise_that_two_sites_share_is_noticed() -> None:
    noise = noises(lambda i: ReproducibleNoise(stream(min(i, 8), "shared")))
    alarm = next(a for a in between(noise) if a.test == "shared noise")
    assert set(alarm.of) == {"site 8", "site 9"}


def test_noise_that_cancels_in_the_sum_is_noticed() -> None:
    noise = noises(lambda _: SystemNoise())
    mean = torch.stack([z["A"] for z in noise.values()]).mean(0)
    cancelling = {
        name: {"A": (z["A"] - mean) * math.sqrt(SITES / (SITES - 1))} for name, z in noise.items()
    }
    assert "cancelling noise" in {a.test for a in between(cancelling)}


def test_a_little_less_noise_at_all_sites_is_noticed() -> None:
    noise = {
        name: {array: 0.95 * z for array, z in arrays.items()}
        for name, arrays in noises(lambda i: ReproducibleNoise(stream(i, "less"))).items()
    }
    assert {a.test for a in between(noise)} >= {"size of all"}


@pytest.mark.parametrize("make", [of_torch_seed, of_numpy_seed])
def test_noise_of_a_short_seed_is_noticed(make: Make) -> None:
    noise = noises(lambda _: SystemNoise())
    noise["site 3"] = {name: make(len(z)) for name, z in noise["site 3"].items()}
    alarm = next(a for a in between(noise) if a.test == "seed")
    assert alarm.of == ("site 3",)


def test_noise_of_a_former_run_is_noticed() -> None:
    noise = noises(lambda _: SystemNoise())
    noise["site 3 of an earlier run"] = noise["site 3"]
    alarm = next(a for a in between(noise) if a.test == "shared noise")
    assert set(alarm.of) == {"site 3", "site 3 of an earlier run"}


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e12])
def test_no_noise_and_endless_noise_are_noticed(kind: str, size: float) -> None:
    claim = claim_of(rows_of_site(6), kind, SystemNoise())
    noise = {name: size * normal(*z.shape) for name, z in claim.arrays.items()}
    assert "size" in found(replaced(claim, noise))
    constant = {name: torch.ones(z.shape).double() for name, z in claim.arrays.items()}
    assert found(replaced(claim, constant))
