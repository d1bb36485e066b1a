"""Every planted leak is caught in the audit of a whole run, by the test that is made for it.

A dishonest client sends something else than its ledger was charged for, and the server keeps it.
Runs of `joined` have one release at the noise of epsilon 6, runs of `dprbft` one a round, at less.
What no audit of bytes can see is in `REPLAYED`: there the code that releases must be run again.
Attacks on images are tested in `test_planted_images`, single tests in `conformance/`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from planted_leaks import SITES, Leak, Noise, Sent, audit_of, fired, honest_run, what_was_sent
from torch import Tensor

from attacks.audit import site
from attacks.audit.evidence import FREE_RECEIPT
from attacks.audit.records import RunAudit
from attacks.conformance.noise import as_matrix
from attacks.epsilon.release import audit_release
from attacks.replay.audit import audit_implementation
from attacks.replay.mechanism import Mechanism
from dprbft.messages import Release
from dprbft.server.checkpoint import ServerFiles
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import noise_scale
from panas.privacy.release.kinds import moments
from panas.runtime.errors import BadInput

GENERATOR = np.random.default_rng(35)
LIAR = 1  # the site that leaks, where it is one
METHODS = ("joined", "dprbft")


def normal(shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(GENERATOR.standard_normal(shape))


def liar(leak: Callable[[Sent], Sent]) -> Leak:
    """One site alone."""
    return lambda sent: [leak(s) if i == LIAR else s for i, s in enumerate(sent)]


def drawn(make: Callable[[tuple[int, ...]], Tensor]) -> Leak:
    """One site, whose noise is made another way."""
    return liar(lambda s: s.with_noise({k: make(tuple(z.shape)) for k, z in s.noise.items()}))


def scaled(factor: float) -> Callable[[Sent], Sent]:
    return lambda s: s.with_noise({k: factor * z for k, z in s.noise.items()})


# How noise is drawn.


def signs(shape: tuple[int, ...]) -> Tensor:
    return normal(shape).sign()


def uniform(shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(GENERATOR.uniform(-math.sqrt(3), math.sqrt(3), shape))


def laplace(shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(GENERATOR.laplace(0, math.sqrt(0.5), shape))


def truncated(shape: tuple[int, ...]) -> Tensor:
    z = normal(shape).clamp(-1.5, 1.5)
    return z / z.square().mean().sqrt()


def of_torch_seed(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(54321)).double()


def of_numpy_seed(shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.random.default_rng(777).standard_normal(shape))


def twice(shape: tuple[int, ...]) -> Tensor:
    z = normal(shape).flatten()
    half = len(z) // 2
    return torch.cat([z[:half], z[: len(z) - half]]).reshape(shape)


def walking(shape: tuple[int, ...]) -> Tensor:
    z = normal(shape).flatten()
    for i in range(1, len(z)):
        z[i] = 0.6 * z[i - 1] + 0.8 * z[i]
    return z.reshape(shape)


def low_rank(shape: tuple[int, ...]) -> Tensor:
    if len(shape) == 2:
        return normal((shape[0], 2)) @ normal((2, shape[1])) / math.sqrt(2)
    d = (math.isqrt(8 * shape[0] + 1) - 1) // 2
    factor = normal((d, 3))
    upper = (factor @ factor.T)[tuple(torch.triu_indices(d, d))]
    return (upper - upper.mean()) / upper.std()


# What single samples, classes and arrays get.


def class_without(s: Sent) -> Sent:
    noise = {k: z.clone() for k, z in s.noise.items()}
    noise["B"][4] = 0
    return s.with_noise(noise)


def array_without(name: str) -> Callable[[Sent], Sent]:
    return lambda s: s.with_noise({name: torch.zeros_like(s.noise[name])})


def strip_without(s: Sent) -> Sent:
    noise = {k: z.clone() for k, z in s.noise.items()}
    noise["A"][200:232] = 0
    return s.with_noise(noise)


def bare_sample(s: Sent) -> Sent:
    """No noise in any direction in which one sample lies."""
    z = s.claim.truth.z[7].double()
    v = z / z.norm()
    rest = torch.eye(len(v), dtype=torch.float64) - torch.outer(v, v)
    A, _ = as_matrix(s.noise["A"])
    assert A is not None
    A = rest @ A @ rest
    A = A - torch.diag(A.diag()) * (1 - math.sqrt(0.5))
    upper = A[tuple(torch.triu_indices(len(v), len(v)))]
    return s.with_noise({"A": upper, "B": s.noise["B"] @ rest})


def image_in_moments(s: Sent) -> Sent:
    """A private sample's own numbers where noised ones should be."""
    z, A = s.claim.truth.z[3].float(), s.release.arrays["A"].clone()
    A[: len(z)] = z
    return s.of({"A": A})


def doubled(s: Sent) -> Sent:
    """Each sample counts twice."""
    return s.around({k: 2 * v for k, v in s.exact.items()})


# The form of a message.


def low_bits(s: Sent) -> Sent:
    bits = s.release.arrays["A"].float().contiguous().view(torch.int32)
    image = torch.arange(len(bits), dtype=torch.int32) // 60 % 16
    return s.of({"A": ((bits & ~15) | image).view(torch.float32)})


def coarse(s: Sent) -> Sent:
    """Numbers whose last bits are cleared, as if they were free."""
    bits = s.release.arrays["A"].float().contiguous().view(torch.int32)
    return s.of({"A": (bits & ~255).view(torch.float32)})


def image_in_receipt(s: Sent) -> Sent:
    image = (s.claim.truth.z[3][:16].abs() * 255).to(torch.uint8).numpy().tobytes().hex()
    return replace(s, release=replace(s.release, receipt=image))


def other_multiplier(s: Sent) -> Sent:
    m = s.claim.noise_multiplier * 1.01
    return replace(s, release=replace(s.release, noise_multiplier=m))


# Of all sites together.


def cancelling(sent: list[Sent]) -> list[Sent]:
    factor = math.sqrt(SITES / (SITES - 1))
    mean = {k: torch.stack([s.noise[k] for s in sent]).mean(0) for k in sent[0].noise}
    return [s.with_noise({k: factor * (z - mean[k]) for k, z in s.noise.items()}) for s in sent]


def shared(sent: list[Sent], sign: float = 1.0) -> list[Sent]:
    noise = {k: sign * z for k, z in sent[0].noise.items()}
    return [s.with_noise(noise) if i == LIAR else s for i, s in enumerate(sent)]


def half_shared(sent: list[Sent]) -> list[Sent]:
    other = sent[0].noise
    noise: Noise = {k: (z + other[k]) / math.sqrt(2) for k, z in sent[LIAR].noise.items()}
    return [s.with_noise(noise) if i == LIAR else s for i, s in enumerate(sent)]


def everywhere(leak: Callable[[Sent], Sent]) -> Leak:
    return lambda sent: [leak(s) for s in sent]


@dataclass(frozen=True)
class Planted:
    """A leak, and the tests or words of evidence of which one must be there."""

    leak: Leak
    fires: tuple[str, ...]
    methods: tuple[str, ...] = METHODS


SHAPE = tuple(
    f"shape ({test})" for test in ("Kolmogorov-Smirnov", "Anderson-Darling", "kurtosis", "largest")
)
PLANTED: dict[str, Planted] = {
    "noise of a seed of torch": Planted(drawn(of_torch_seed), ("seed",)),
    "noise of a seed of NumPy": Planted(drawn(of_numpy_seed), ("seed",)),
    "only the sign random": Planted(drawn(signs), SHAPE),
    "uniform noise of right variance": Planted(drawn(uniform), SHAPE),
    "Laplace noise of right variance": Planted(drawn(laplace), SHAPE),
    "truncated noise": Planted(drawn(truncated), (*SHAPE, "repeats")),
    "numbers of noise used twice": Planted(drawn(twice), ("repeats", "order")),
    "a walk": Planted(drawn(walking), ("order",)),
    "noise of low rank": Planted(drawn(low_rank), ("spectrum", *SHAPE)),
    "no noise": Planted(liar(scaled(0.0)), ("size",)),
    "half the noise": Planted(liar(scaled(0.5)), ("size",)),
    "more noise than charged": Planted(liar(scaled(1.2)), ("size",)),
    ".95 of the noise, at all sites": Planted(everywhere(scaled(0.95)), ("size of all",)),
    "a strip without noise": Planted(liar(strip_without), ("windows",)),
    "one class without noise": Planted(liar(class_without), ("of its claim", "size", *SHAPE)),
    "A without noise": Planted(liar(array_without("A")), ("size",)),
    "B without noise": Planted(liar(array_without("B")), ("size",)),
    "no noise along one sample": Planted(liar(bare_sample), ("bare",)),
    "an image in A": Planted(liar(image_in_moments), ("copy",)),
    "each sample twice": Planted(liar(doubled), ("size", "of its claim")),
    "one sample 10 times": Planted(liar(lambda s: s.counted(10)), ("weight",), ("joined",)),
    "one sample 100 times": Planted(liar(lambda s: s.counted(100)), ("weight", "size")),
    "data in low bits": Planted(liar(low_bits), ("low bits",)),
    "low bits cleared": Planted(liar(coarse), ("low bits",)),
    "an image in the receipt": Planted(
        liar(image_in_receipt), (FREE_RECEIPT, "its receipt is not in the ledger")
    ),
    "another noise multiplier": Planted(liar(other_multiplier), ("it states noise multiplier",)),
    "noise of another site": Planted(shared, ("shared noise",)),
    "another site's noise, negative": Planted(partial(shared, sign=-1.0), ("shared noise",)),
    "half of another site's noise": Planted(half_shared, ("shared noise",)),
    "noise that cancels in the sum": Planted(cancelling, ("cancelling noise", "shared noise")),
}


@dataclass(frozen=True)
class Run:
    """An honest run, and what its sites sent."""

    folder: Path
    sent: list[Sent]

    def audit(self, leak: Leak, beside: tuple[Path, ...] = ()) -> RunAudit:
        return audit_of(self.folder, self.sent, leak, beside)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower bound on epsilon, which catches none of these, from few runs of the mechanism."""
    monkeypatch.setattr(site, "audit_release", partial(audit_release, draws=20))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    result = {}
    for method in METHODS:
        folder = tmp_path_factory.mktemp(method) / "run"
        result[method] = Run(folder, what_was_sent(folder, honest_run(folder, method)))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_what_honest_sites_send_raises_no_alarm(runs: dict[str, Run], method: str) -> None:
    audit = runs[method].audit(list)
    assert [s.verdict for s in audit.clients] == ["inconclusive"] * SITES
    assert all("found nothing" in s.evidence for s in audit.clients)


CASES = [
    pytest.param(method, name, id=f"{method}-{name}")
    for name, planted in PLANTED.items()
    for method in planted.methods
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), CASES)
def test_a_leak_is_caught(runs: dict[str, Run], method: str, name: str) -> None:
    planted = PLANTED[name]
    audit = runs[method].audit(planted.leak)
    found = audit.clients[LIAR]
    assert found.verdict == "leaks", found.evidence
    tests = fired(audit, found)
    assert any(f in tests or f in found.evidence for f in planted.fires), (tests, found.evidence)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_noise_of_a_former_run_is_caught(runs: dict[str, Run], method: str, tmp_path: Path) -> None:
    former = tmp_path / "former"
    noise = [s.noise for s in what_was_sent(former, honest_run(former, method))]
    again = [s.with_noise(z) for s, z in zip(runs[method].sent, noise, strict=True)]
    audit = runs[method].audit(lambda _: again, (former,))
    assert audit.clients[LIAR].verdict == "leaks"
    assert "shared noise" in fired(audit, audit.clients[LIAR])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda b: b + b"image", id="bytes at the end"),
        pytest.param(lambda b: b.replace(b"  ", b" \t", 1), id="other padding"),
        pytest.param(lambda b: b.replace(b'\\"round\\"', b'\\"r0und\\"', 1), id="another field"),
        pytest.param(lambda b: b.replace(b'"B"', b'"C"', 1), id="another array"),
    ],
)
def test_another_form_of_a_message_is_refused_on_arrival(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    rows = Rows(torch.eye(6).repeat(3, 1), torch.arange(18) % 3)
    arrays = {k: v.float() for k, v in moments.run(rows, 3, 1.0, SystemNoise()).items()}
    content = Release(0, 1, "moments", 1.0, "0" * 32, arrays).to_bytes()
    files = ServerFiles(tmp_path, width=6, classes=3)
    files.put_release(1, 0, content)
    assert change(content) != content
    with pytest.raises(BadInput):
        files.put_release(1, 0, change(content))


# What only a replay of the code can see.


def hashed(rows: Rows, noise: NoiseSource, scale: float) -> dict[str, Tensor]:
    seed = abs(hash((rows.z.numpy().tobytes(), rows.y.numpy().tobytes())))
    rng, exact = np.random.default_rng(seed), moments.run(rows, 3, 0.0, noise)
    return {k: v + scale * torch.from_numpy(rng.standard_normal(v.shape)) for k, v in exact.items()}


def one_bare(rows: Rows, noise: NoiseSource, scale: float) -> dict[str, Tensor]:
    arrays = moments.run(rows, 3, scale, noise)
    arrays["A"][0] = moments.run(rows, 3, 0.0, noise)["A"][0]
    return arrays


def thrice(rows: Rows, noise: NoiseSource, scale: float) -> dict[str, Tensor]:
    times = torch.ones(len(rows.y), dtype=torch.int64)
    times[:1] = 3
    return moments.run(
        Rows(rows.z.repeat_interleave(times, 0), rows.y.repeat_interleave(times)), 3, scale, noise
    )


REPLAYED = {"a hash of the data": hashed, "one entry bare": one_bare, "one sample 3 times": thrice}


@pytest.mark.parametrize("name", REPLAYED)
def test_what_bytes_hide_is_caught_by_a_replay(name: str) -> None:
    scale = noise_scale(moments, 1.7)
    run = partial(REPLAYED[name], scale=scale)
    mechanism = Mechanism(name=name, run=run, noise_multiplier=1.7)
    audit = audit_implementation(mechanism, rng=np.random.default_rng(0), only=(name,))
    assert audit.alarms
