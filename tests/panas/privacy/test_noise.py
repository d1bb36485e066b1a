"""Privacy noise: the right distribution, from nobody's seed."""

import ast
import math
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from noises import HalfNoise
from scipy import stats
from torch import Tensor

from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise, poisson_batch

ROOT = Path(__file__).resolve().parents[3]
DRAWS = 40_001
MANY = 1_000_000
ALMOST_NEVER = 1e-6
"""A right source fails a test at this p-value once in a million runs."""


SOURCES = [SystemNoise(), ReproducibleNoise(np.random.default_rng(1))]


class OneAngle(SystemNoise):
    """The planted bug: both numbers of a pair are the same one."""

    def normal(self, *shape: int) -> Tensor:
        half = super().normal(shape[0] // 2)
        return torch.cat([half, half])


def halves_correlation(source: NoiseSource) -> float:
    """Correlation of the two halves, which share their radii: of the values and the squares."""
    x = source.normal(DRAWS - 1).reshape(2, -1).numpy()
    return max(abs(np.corrcoef(x)[0, 1]), abs(np.corrcoef(x**2)[0, 1]))


def test_the_two_numbers_of_a_pair_are_independent() -> None:
    assert halves_correlation(SystemNoise()) < 5 / (DRAWS / 2) ** 0.5
    assert halves_correlation(OneAngle()) > 0.1


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (0, 4), (5, 1, 7)])
def test_shapes_even_odd_and_empty(shape: tuple[int, ...]) -> None:
    for source in SOURCES:
        draw = source.normal(*shape)
        assert torch.as_tensor(draw).shape == shape
        assert draw.dtype == torch.float64
        assert torch.isfinite(draw).all()


def test_the_largest_word_gives_a_finite_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for byte in (b"\xff", b"\x00"):
        monkeypatch.setattr("os.urandom", lambda n, byte=byte: byte * n)
        u, x = SystemNoise().uniform(4), SystemNoise().normal(4)
        assert float(u.max()) < 1
        assert torch.isfinite(x).all()


def test_what_is_seeded_repeats_alone_and_global_states_are_left() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        draws.append((SystemNoise().normal(8), SystemNoise().uniform(8)))
    assert not torch.equal(draws[0][0], draws[1][0])
    assert not torch.equal(draws[0][1], draws[1][1])
    a, b = (ReproducibleNoise(np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(a.normal(4, 2), b.normal(4, 2))
    assert torch.equal(a.uniform(9), b.uniform(9))
    assert not torch.equal(a.normal(4), a.normal(4))
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1]
    for source in (SystemNoise(), ReproducibleNoise(np.random.default_rng(0))):
        source.normal(10)
        source.uniform(10)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


# The distribution at a million draws, tails included.


class TwelveUniforms(SystemNoise):
    """The planted bug: a sum of twelve uniform numbers, right but for its short tails."""

    def normal(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        return self.uniform(12 * size).reshape(12, size).sum(0).reshape(shape) - 6


class Sixteen(SystemNoise):
    """The planted bug: uniform numbers of 16 bits."""

    def uniform(self, size: int) -> Tensor:
        return torch.floor(super().uniform(size) * 2**16) / 2**16


def tail_p(x: np.ndarray, tail: Callable[[float], float], limits: list[float]) -> float:
    """Least p-value of the counts above each limit, and below its negative, `tail` given."""
    counts = [(int((side >= t).sum()), tail(t)) for t in limits for side in (x, -x)]
    return min(float(stats.binomtest(k, len(x), p).pvalue) for k, p in counts)


TAIL = [3.0, 3.5, 4.0, 4.5, 5.0]


@pytest.mark.parametrize("source", SOURCES)
def test_a_million_normal_numbers_are_normal_to_the_tails(source: NoiseSource) -> None:
    x = source.normal(MANY).numpy()
    assert stats.kstest(x, "norm").pvalue > ALMOST_NEVER
    assert tail_p(x, stats.norm.sf, TAIL) > ALMOST_NEVER / 10
    assert MANY - len(np.unique(x)) < 10  # 53 random bits: even one comes in a run of 10^4
    assert stats.kstest(HalfNoise().normal(DRAWS).numpy(), "norm").pvalue < ALMOST_NEVER


@pytest.mark.slow
def test_the_tail_test_catches_a_sum_of_uniform_numbers() -> None:
    assert tail_p(TwelveUniforms().normal(MANY).numpy(), stats.norm.sf, TAIL) < ALMOST_NEVER / 10


@pytest.mark.parametrize("source", SOURCES)
def test_a_million_uniform_numbers_are_uniform_and_fine(source: NoiseSource) -> None:
    u = source.uniform(MANY).numpy()
    assert (u.dtype, u.shape) == (np.float64, (MANY,))
    assert 0 <= u.min() <= u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > ALMOST_NEVER
    for part in (u, 1 - u):
        assert stats.binomtest(int((part < 1e-5).sum()), MANY, 1e-5).pvalue > ALMOST_NEVER
    assert repetitions(source) < 10


def repetitions(source: NoiseSource) -> int:
    """How many of a million uniform numbers came before: half of 10^12 / 2^53 are expected."""
    return MANY - len(torch.unique(source.uniform(MANY)))


def test_numbers_of_few_bits_are_caught_and_the_lowest_bits_are_random() -> None:
    assert repetitions(Sixteen()) > 10
    for bit in range(11):
        ones = (SystemNoise().uniform(DRAWS) * 2 ** (53 - bit)).floor().long() % 2
        assert stats.binomtest(int(ones.sum()), DRAWS, 0.5).pvalue > ALMOST_NEVER / 11


def test_the_tail_ends_where_the_docstring_says(monkeypatch: pytest.MonkeyPatch) -> None:
    class Extreme(SystemNoise):
        def uniform(self, size: int) -> Tensor:
            # The radius from the largest number there is, the angle 0.
            return torch.tensor([1 - 2.0**-53, 0.0], dtype=torch.float64)

    assert float(Extreme().normal(2)[0]) == pytest.approx(8.572, abs=1e-3)
    assert 2 * stats.norm.sf(8.572) < 2e-17


# Nobody shares a draw.


def in_forks(source: NoiseSource) -> list[bytes]:
    """What two forked children and then their parent draw from one source."""
    seen = []
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writer, source.uniform(8).numpy().tobytes())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        seen.append(os.read(reader, 1000))
        os.close(reader)
    return [*seen, source.uniform(8).numpy().tobytes()]


def in_threads(sources: list[NoiseSource]) -> list[bytes]:
    """What many threads draw at the same time, each from its source."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda s: s.normal(500).numpy().tobytes(), sources))


def test_forked_processes_share_no_draw() -> None:
    drawn = in_forks(SystemNoise())
    assert [len(d) for d in drawn] == [64] * 3
    assert len(set(drawn)) == 3
    assert len(set(in_forks(ReproducibleNoise(np.random.default_rng(0))))) < 3


def test_threads_and_clients_share_no_draw() -> None:
    one = SystemNoise()
    assert vars(one) == {}
    assert not [v for v in vars(SystemNoise).values() if isinstance(v, Tensor | np.ndarray)]
    assert len(set(in_threads([one] * 64))) == 64
    assert len(set(in_threads([SystemNoise() for _ in range(64)]))) == 64
    same: list[NoiseSource] = [ReproducibleNoise(np.random.default_rng(0)) for _ in range(64)]
    assert len(set(in_threads(same))) == 1


# Where product code draws from.

TORCH_DRAWS = {
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
    *("normal", "bernoulli", "multinomial", "poisson", "binomial"),
}
IN_PLACE = {
    *("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_"),
    *("log_normal_", "geometric_", "trunc_normal_"),
}
OWN_GENERATORS = {"Generator", "SeedSequence", "default_rng", "PCG64"}


def global_draws(source: str) -> list[str]:
    """Calls that draw from, or seed, a generator of a whole process: Python's, numpy's, torch's."""
    results = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names]
            module = getattr(node, "module", None) or ""
            hidden = module in ("random", "numpy.random", "torch.random", "torch.distributions")
            if hidden or "random" in names or "secrets" in names:
                results.append(f"{node.lineno}: import of {module} {names}")
            if module == "torch" and TORCH_DRAWS & set(names):
                results.append(f"{node.lineno}: {names} hide where they come from")
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, owner = node.func.attr, ast.unparse(node.func.value)
        generator = next((k.value for k in node.keywords if k.arg == "generator"), None)
        own = generator is not None and ast.unparse(generator) != "None"
        if (
            (owner in ("np.random", "numpy.random") and name not in OWN_GENERATORS)
            or (owner == "torch" and name in TORCH_DRAWS and not own)
            or (name in IN_PLACE and not own)
            or (owner == "torch" and name in ("manual_seed", "seed", "set_rng_state"))
            or owner.startswith("torch.distributions")
        ):
            results.append(f"{node.lineno}: {ast.unparse(node)}")
    return results


@pytest.mark.slow
def test_no_private_noise_comes_from_a_generator_of_the_whole_process() -> None:
    results = {}
    for folder in ("panas/privacy", "dprbft"):
        paths = list((ROOT / folder).rglob("*.py"))
        assert len(paths) > 5
        results |= {p.name: draws for p in paths if (draws := global_draws(p.read_text()))}
    assert results == {}


@pytest.mark.parametrize(
    "source",
    [
        *("noise = torch.randn(3)", "g + sigma * torch.randn_like(g)", "torch.zeros(3).normal_()"),
        *("torch.normal(0.0, 1.0, (3,), generator=None)", "np.random.normal(size=3)"),
        *("numpy.random.seed(1)", "import random", "from torch import randn"),
        *("from numpy import random", "from numpy.random import standard_normal"),
        *("torch.distributions.Normal(0.0, 1.0).sample()", "torch.manual_seed(0)"),
        "nn.init.trunc_normal_(w)",
    ],
)
def test_a_global_draw_is_caught(source: str) -> None:
    assert global_draws(source)


def test_a_generator_of_ones_own_is_no_offence() -> None:
    for source in ("torch.randn(3, generator=g)", "np.random.default_rng(s)", "rng.random(3)"):
        assert global_draws(source) == []


def makers(name: str) -> set[str]:
    """The product's files in which a noise source of that name is made."""
    return {
        p.relative_to(ROOT).as_posix()
        for floor in ("panas", "dprbft", "baselines", "attacks", "panas_cli")
        for p in (ROOT / floor).rglob("*.py")
        for node in ast.walk(ast.parse(p.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
    }


@pytest.mark.slow
def test_noise_that_repeats_is_made_only_for_the_search_on_public_data() -> None:
    rehearsals = {"panas/tuning/objective.py", "dprbft/methods/joined/tuning.py"}
    timing = {"dprbft/run/progress/pace.py"}  # of steps on samples that are drawn at random
    # And where a run has no budget, so that its ledger claims no protection.
    unprotected = {"baselines/searches/dp_fnas.py"}
    assert makers("ReproducibleNoise") == rehearsals | timing | unprotected
    assert makers("SystemNoise")


def test_a_poisson_batch_holds_each_sample_with_the_rate() -> None:
    n, q, draws = 200, 0.17, 400
    hits = np.zeros((draws, n))
    for k in range(draws):
        at = poisson_batch(n, q, SystemNoise()).numpy()
        assert len(set(at)) == len(at)
        hits[k, at] = 1
    error = math.sqrt(q * (1 - q) / draws)
    assert abs(hits.mean() - q) < 6 * error / math.sqrt(n)
    assert np.abs(hits.mean(0) - q).max() < 6 * error
    # Sizes vary as a binomial's do: a batch of fixed size would have no variance.
    assert hits.sum(1).var() == pytest.approx(n * q * (1 - q), rel=0.5)
    pairs = np.corrcoef(hits.T[:20])[~np.eye(20, dtype=bool)]
    assert np.abs(pairs).max() < 6 / math.sqrt(draws)


def test_rate_one_takes_all_and_rate_zero_none() -> None:
    noise = ReproducibleNoise(np.random.default_rng(0))
    assert torch.equal(poisson_batch(9, 1.0, noise), torch.arange(9))
    assert len(poisson_batch(9, 0.0, noise)) == 0
    assert len(poisson_batch(0, 0.5, noise)) == 0
