"""The mechanism audit: its own arithmetic, then every mechanism that the ledger prices.

Each mechanism is audited on the neighbours that move it most. The bound must stay below the claim
and be no empty one, and must exceed the claim once a bug is planted. All audits go through the
product's own functions; a bug is planted in the noise that they are dealt, or in a function that
they call. One adversary, `fitted_score`, finds every bug; he knows nothing of it.

10^5 draws of a release take one call: torch.vmap runs the code once, on a batch of noise. That this
is what a loop gives is tested too. Steps of DP-SGD are drawn one by one.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from plans import plan_of
from site_data import with_data
from torch import Tensor, nn

from attacks.epsilon.mechanism import (
    ScoreFunction,
    ceiling,
    fitted_score,
    gaussian_score,
    lower_bound,
)
from dprbft.config.files import build_config
from dprbft.methods.rounds import dprbft
from dprbft.methods.rounds.state import State
from dprbft.run.sites.plan import plan_sites
from dprbft.run.view import RunView
from dprbft.site.joining import join
from dprbft.site.site import Site, open_site
from panas.architecture.genome import Genome
from panas.architecture.network import weights_of
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    Event,
    Gaussian,
    Relation,
    SampledGaussian,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise, poisson_batch
from panas.privacy.release import histogram as histograms
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.histogram import label_histogram
from panas.privacy.release.kind import ReleaseEvent
from panas.privacy.release.kinds import class_sums, moments
from panas.runtime.errors import BadInput
from panas.tuning.space import DPSGDSettings

DELTA = 0.01
"""The delta of the audits: where this many draws see most of a Gaussian (see the module)."""

FEW, QUICK, FULL = 8_000, 20_000, 100_000
"""Draws of each world: FULL wherever one call gives them all, the others where a loop must."""


def seeded(seed: int) -> NoiseSource:
    return ReproducibleNoise(np.random.default_rng(seed))


# The arithmetic of the bound.


def gaussians(seed: int, shift: float, draws: int) -> tuple[Tensor, Tensor]:
    noise = seeded(seed)
    return noise.normal(draws) + shift, noise.normal(draws)


def alarms(shift: float, truth: float, delta: float, twice: bool = False) -> float:
    """How often the bound exceeds the truth at confidence 95 %, over 200 seeds."""
    found = 0
    for seed in range(200):
        a, b = gaussians(seed, shift, 2000)
        if twice:  # The planted bug: what chooses the event also judges it.
            a, b = torch.cat([a, a]), torch.cat([b, b])
        found += lower_bound(a, b, delta) > truth
    return found / 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "multiplier", [2.0, *(pytest.param(m, marks=pytest.mark.slow) for m in (math.inf, 1.0))]
)
def test_the_bound_exceeds_the_truth_no_more_often_than_it_says(multiplier: float) -> None:
    truth = epsilon([Gaussian(multiplier)], DELTA) if multiplier < math.inf else 0.0
    assert alarms(1 / multiplier, truth, DELTA) <= 0.05


@pytest.mark.slow
def test_a_bound_judged_on_the_draws_that_chose_it_is_caught() -> None:
    assert alarms(0.0, 0.0, 0.0) <= 0.05
    assert alarms(0.0, 0.0, 0.0, twice=True) > 0.05


@pytest.mark.parametrize(("multiplier", "claim"), [(1.876, 1.0), (0.826, 3.0)])
def test_the_bound_reaches_most_of_a_gaussians_claim(multiplier: float, claim: float) -> None:
    assert epsilon([Gaussian(multiplier)], DELTA) == pytest.approx(claim, rel=0.01)
    found = lower_bound(*gaussians(1, 1 / multiplier, FULL), DELTA)
    assert 0.8 * claim < found < claim


def test_direction_and_order_of_the_worlds_do_not_matter() -> None:
    a, b = gaussians(3, 2.0, QUICK)
    found = [lower_bound(*pair, 0.0) for pair in ((a, b), (b, a), (-a, -b))]
    assert min(found) > 2.5
    # One output in twenty of one world alone, at one end of the scores.
    for end in (-9.0, 9.0):
        c = b.clone()
        c[::20] = end
        assert lower_bound(c, b, 0.0) > 4
        assert lower_bound(b, c, 0.0) > 4


def test_worlds_without_overlap_reach_the_ceiling_and_delta_excuses_what_is_seldom() -> None:
    a, b = torch.full((QUICK,), math.inf), torch.zeros(QUICK)
    assert lower_bound(a, b, DELTA) == pytest.approx(ceiling(QUICK, DELTA))
    assert ceiling(QUICK, DELTA) == pytest.approx(math.log((0.9996 - DELTA) / 3.688e-4), abs=1e-3)
    assert ceiling(FULL, DELTA) > ceiling(QUICK, DELTA)
    assert ceiling(FULL, DELTA, 1 - 1e-6) < ceiling(FULL, DELTA)
    assert lower_bound(b, b, 0.0) == 0.0
    assert ceiling(2, 0.0) == 0.0
    a, b = torch.zeros(QUICK), torch.zeros(QUICK)
    a[:: QUICK // 160] = 1.0  # Eight in a thousand outputs give their world away.
    assert lower_bound(a, b, 0.0) > 2
    assert lower_bound(a, b, 0.01) == 0.0


def test_the_bound_is_clopper_and_pearson_s() -> None:
    # Of 1,000 judged: 300 hits, 100 misses; scipy.stats.beta at 2.5 % each gives the two figures.
    def world(hits: int) -> Tensor:
        half = torch.cat([torch.ones(hits), torch.zeros(1000 - hits)])
        return torch.cat([half, half])

    assert lower_bound(world(300), world(100), 0.0) == pytest.approx(
        math.log(0.2717 / 0.1203), abs=2e-3
    )


def test_what_says_nothing_or_is_out_of_range_is_refused() -> None:
    ten = torch.zeros(10)
    for bad in (torch.zeros(1), torch.tensor([0.0, math.nan, 1.0])):
        for pair in ((bad, ten), (ten, bad)):
            with pytest.raises(BadInput, match="two or more scores"):
                lower_bound(*pair, 0.0)
    for delta, confidence in ((1.0, 0.9), (-0.1, 0.9), (0.0, 1.0), (0.0, 0.0)):
        with pytest.raises(BadInput, match="probabilities"):
            lower_bound(ten, ten, delta, confidence)


def test_scores_are_log_likelihood_ratios() -> None:
    mean_in, mean_out, std = (torch.tensor(v) for v in ([1.0, 0.0], [0.0, 3.0], [2.0, 0.5]))
    x = seeded(0).normal(5, 2)
    normal = torch.distributions.Normal
    ratio = normal(mean_in, std).log_prob(x) - normal(mean_out, std).log_prob(x)
    torch.testing.assert_close(gaussian_score(mean_in, mean_out, std)(x), ratio.sum(1))


def test_the_fitted_score_finds_the_likelihood_ratio_and_directions_without_noise() -> None:
    noise = seeded(5)
    shift, std = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 4.0, 1.0])
    a, b = (noise.normal(50_000, 3) * std for _ in range(2))
    x = torch.eye(3)
    fitted = fitted_score(a + shift, b)(x)
    wanted = gaussian_score(shift, torch.zeros(3), std)(x) + 0.5 * (1 + 0.25)
    torch.testing.assert_close(fitted, wanted.double(), atol=0.03, rtol=0.0)
    # Noise of one number is that of another: their difference has none.
    a[:, 2], b[:, 2] = a[:, 0] + 0.01, b[:, 0]
    score = fitted_score(a, b)
    assert float(score(a).min()) > float(score(b).max())
    assert not fitted_score(torch.ones(9, 2), torch.ones(9, 2))(torch.ones(4, 2)).any()


# Mechanisms, and the noise they are dealt.


class Dealt:
    """Hands out numbers that were drawn beforehand, one after the other."""

    def __init__(self, normals: Tensor, uniforms: Tensor) -> None:
        self._normals, self._uniforms = normals, uniforms

    def normal(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        assert len(self._normals) >= size, "deal more NUMBERS"
        dealt, self._normals = self._normals[:size], self._normals[size:]
        return dealt.reshape(shape)

    def uniform(self, size: int) -> Tensor:
        assert len(self._uniforms) >= size, "deal more NUMBERS"
        dealt, self._uniforms = self._uniforms[:size], self._uniforms[size:]
        return dealt


NUMBERS = 16
"""Normal, and uniform, numbers dealt a draw: enough for two releases at d = 2 and 2 classes."""

Noise = Callable[[], NoiseSource]
"""Called once a release, as sites do."""

Deal = Callable[[Tensor, Tensor], Noise]
Mechanism = Callable[[Noise], Tensor]
"""From noise to one output, flattened."""


FIXED = 1
"""A seed whose third uniform number puts the canary into its batch."""


def sound(normals: Tensor, uniforms: Tensor) -> Noise:
    one = Dealt(normals, uniforms)
    return lambda: one


def half_the_noise(normals: Tensor, uniforms: Tensor) -> Noise:
    return sound(normals / 2, uniforms)


def bare(first: int, last: int) -> Deal:
    """No noise on the numbers `first` to `last`, in the order in which noise is drawn."""
    mask = torch.ones(NUMBERS, dtype=torch.float64)
    mask[first:last] = 0.0
    return lambda normals, uniforms: sound(normals * mask, uniforms)


def always_sampled(normals: Tensor, uniforms: Tensor) -> Noise:
    return sound(normals, 0.0 * uniforms)


def reused(normals: Tensor, uniforms: Tensor) -> Noise:
    return lambda: Dealt(normals, uniforms)


def fixed_seed(normals: Tensor, uniforms: Tensor) -> Noise:
    noise = seeded(FIXED)
    return sound(0.0 * normals + noise.normal(NUMBERS), 0.0 * uniforms + noise.uniform(NUMBERS))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism on two neighbours, what it is charged as, and the noise of each number."""

    world_in: Mechanism
    world_out: Mechanism
    events: Sequence[Event]
    relation: Relation = "add-or-remove-one"
    loop: bool = False

    @property
    def claim(self) -> float:
        return epsilon(self.events, DELTA, relation=self.relation)


def outputs(
    mechanism: Mechanism, deal: Deal, source: NoiseSource, draws: int, loop: bool = False
) -> Tensor:
    """`draws` independent outputs (draws, d): in one batched call, or one by one."""

    def once(normals: Tensor, uniforms: Tensor) -> Tensor:
        return mechanism(deal(normals, uniforms))

    normals = source.normal(draws, NUMBERS)
    uniforms = source.uniform(draws * NUMBERS).reshape(draws, NUMBERS)
    if loop:
        return torch.stack([once(n, u) for n, u in zip(normals, uniforms, strict=True)])
    return torch.vmap(once)(normals, uniforms)


def found(
    case: Case,
    deal: Deal = sound,
    *,
    score: ScoreFunction | None = None,
    draws: int = FULL,
    source: NoiseSource | None = None,
    confidence: float = 0.95,
) -> float:
    """The lower bound of an audit; by `fitted_score`, on a pilot of its own, if none is given."""
    noise = source or seeded(11)
    if score is None:
        pilot = [outputs(w, deal, noise, 4000, case.loop) for w in (case.world_in, case.world_out)]
        score = fitted_score(*pilot)
    drawn = [outputs(w, deal, noise, draws, case.loop) for w in (case.world_in, case.world_out)]
    return lower_bound(score(drawn[0]), score(drawn[1]), DELTA, confidence)


def holds(case: Case, bound: float) -> None:
    """Below the claim, and above half of it."""
    assert 0.5 * case.claim < bound < case.claim


# The neighbours. D is the bystander and the canary; the canary's row is too long and is clipped
# to norm 1, so that it moves every release by its whole sensitivity.

BYSTANDER = (torch.tensor([[0.3, 0.4]]), torch.tensor([1]))
CANARY = (torch.tensor([[5.0, 0.0]]), torch.tensor([0]))
OPPOSITE = (torch.tensor([[-5.0, 0.0]]), torch.tensor([1]))
MOVED = (torch.tensor([[0.0, 5.0]]), torch.tensor([0]))
"""The canary in the next round: the weights, and so its representation, have moved."""

Rows = tuple[Tensor, Tensor]
M = 1.0


def together(*parts: Rows) -> Rows:
    return torch.cat([z for z, _ in parts]), torch.cat([y for _, y in parts])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(tmp_path / "ledger.jsonl")


def opened(path: Path, relation: Relation = ADD_OR_REMOVE) -> Ledger:
    ledger = Ledger(path)
    ledger.open_account(Budget(1e6, 1e-5), allow_unprotected=True, relation=relation)
    return ledger


def releases(ledger: Ledger, kind: str, event: ReleaseEvent, *rounds: Rows) -> Mechanism:
    """What leaves a site in some rounds, by the function that lets it leave."""

    def mechanism(noise: Noise) -> Tensor:
        arrays: list[Mapping[str, Tensor]] = [
            release(
                ReleaseRequest(kind=kind, event=event, site=0, round=i, classes=2),
                lambda rows=rows: rows,
                ledger=ledger,
                noise=noise(),
            ).arrays
            for i, rows in enumerate(rounds)
        ]
        return torch.cat([a[k].flatten().double() for a in arrays for k in sorted(a)])

    return mechanism


def released(ledger: Ledger, kind: str, event: ReleaseEvent | None = None) -> Case:
    """One release, of the worst neighbours there are."""
    charged = event or Gaussian(M)
    # The number of rows is no secret.
    other = (OPPOSITE,) if kind == "raw_rows" else ()
    return Case(
        world_in=releases(ledger, kind, charged, together(CANARY, BYSTANDER)),
        world_out=releases(ledger, kind, charged, together(*other, BYSTANDER)),
        events=[charged],
    )


def two_rounds(ledger: Ledger) -> Case:
    """Two releases of moments, between which the representations have changed."""
    event = Gaussian(1.5)
    first, second = together(CANARY, BYSTANDER), together(MOVED, BYSTANDER)
    return Case(
        world_in=releases(ledger, "moments", event, first, second),
        world_out=releases(ledger, "moments", event, BYSTANDER, BYSTANDER),
        events=[event, event],
    )


def histogram(beside: Ledger, relation: Relation) -> Case:
    ledger = opened(beside.path.with_name(f"{relation}.jsonl"), relation)

    def world(*labels: int) -> Mechanism:
        return lambda noise: label_histogram(
            lambda: (torch.tensor(labels), None),
            classes=2,
            event=Gaussian(M),
            ledger=ledger,
            noise=noise(),
        )

    return Case(
        world_in=world(0, 1),
        world_out=world(1, 1) if relation == "replace-one" else world(1),
        events=[Gaussian(M)],
        relation=relation,
    )


def cases(ledger: Ledger) -> dict[str, Case]:
    return {
        "moments": released(ledger, "moments"),
        "class_sums": released(ledger, "class_sums"),
        "two rounds": two_rounds(ledger),
        "histogram": histogram(ledger, "add-or-remove-one"),
        "histogram, replaced": histogram(ledger, "replace-one"),
    }


CASES = ["moments", "class_sums", "two rounds", "histogram", "histogram, replaced"]


def without_noise(mechanism: Mechanism) -> Tensor:
    """The mean output."""
    zeros = torch.zeros(NUMBERS, dtype=torch.float64)
    return mechanism(sound(zeros, zeros))


def best_score(name: str, case: Case) -> ScoreFunction:
    """The likelihood ratio, by an adversary who knows the mechanism."""
    mean_in, mean_out = without_noise(case.world_in), without_noise(case.world_out)
    # Equal noise for all, but for the off-diagonal number of A, the second of three.
    std = torch.full_like(mean_in, {"two rounds": 1.5}.get(name, M))
    std *= 1.0 if name == "histogram" else math.sqrt(2)
    if name in ("moments", "two rounds"):
        std[1::7] /= math.sqrt(2)
    return gaussian_score(mean_in, mean_out, std)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_leaves_keeps_its_promise(ledger: Ledger, name: str) -> None:
    case = cases(ledger)[name]
    holds(case, found(case, score=best_score(name, case)))
    holds(case, found(case))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_draws_is_what_a_loop_gives(ledger: Ledger, name: str) -> None:
    case = cases(ledger)[name]
    for world in (case.world_in, case.world_out):
        batched, looped = (outputs(world, sound, seeded(2), 10, loop) for loop in (False, True))
        assert torch.equal(batched, looped)


PLANTED: dict[str, tuple[str, Deal]] = {
    "half the noise of moments": ("moments", half_the_noise),
    "half the noise of class sums": ("class_sums", half_the_noise),
    "half the noise of a histogram": ("histogram", half_the_noise),
    "the label's row of moments in clear": ("moments", bare(0, 4)),
    "class counts in clear": ("class_sums", bare(4, 6)),
    "one noise for two rounds": ("two rounds", reused),
    "a fixed seed for moments": ("moments", fixed_seed),
    "a fixed seed for class sums": ("class_sums", fixed_seed),
    "a fixed seed for a histogram": ("histogram", fixed_seed),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_wrong_noise_is_caught(ledger: Ledger, bug: str) -> None:
    name, deal = PLANTED[bug]
    case = cases(ledger)[name]
    assert found(case, deal) > case.claim


@pytest.mark.parametrize("name", ["moments", "class_sums"])
def test_rows_that_are_not_clipped_are_caught(
    ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (moments, class_sums):
        monkeypatch.setattr(kind, "grid_rows", lambda z: z.double())
    case = cases(ledger)[name]
    assert found(case) > case.claim


@pytest.mark.parametrize("name", CASES)
def test_half_the_sensitivity_is_caught(ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch):
    for kind in (moments, class_sums):
        monkeypatch.setattr(kind, "SENSITIVITY", kind.SENSITIVITY / 2)
    halves = {relation: delta / 2 for relation, delta in histograms.SENSITIVITY.items()}
    monkeypatch.setattr(histograms, "SENSITIVITY", halves)
    case = cases(ledger)[name]
    assert found(case) > case.claim


@pytest.mark.parametrize("kind", ["moments", "class_sums", "raw_rows"])
def test_what_is_charged_as_unprotected_is_so(ledger: Ledger, kind: str) -> None:
    case = released(ledger, kind, Unprotected())
    assert case.claim == math.inf
    assert found(case) == pytest.approx(ceiling(FULL, DELTA))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moments", "class_sums"])
def test_noise_of_the_operating_system_is_enough(ledger: Ledger, name: str) -> None:
    # Not seeded: the confidence is such that a sound mechanism fails this once in 10^6 runs.
    case = cases(ledger)[name]
    sure = 1 - 1e-6
    holds(case, found(case, source=SystemNoise(), confidence=sure))
    assert found(case, half_the_noise, source=SystemNoise(), confidence=sure) > case.claim


# Rows of public samples: whatever the weights gave away is charged to the training.


def sent(site: Site) -> Mapping[str, Tensor]:
    """What a site with given weights sends as public rows."""
    generator = torch.Generator().manual_seed(0)
    genome = Genome.parse("c4k3")
    bottom = site.spec.bottom(genome, generator)
    state = State(
        bottom=weights_of(bottom),
        head=weights_of(site.spec.head(generator)),
        kept_bottom={},
        kept_head={},
        genome=genome,
        settings=DPSGDSettings(learning_rate=1.0, noise_multiplier=1.0, clip=1.0, batch_size=1),
        plan=plan_of(3, 1),
    )
    return dprbft.send(site, state, bottom, 0, "public_rows").arrays


def test_public_rows_are_the_same_bits_whatever_the_private_samples(tmp_path: Path) -> None:
    changes = {"privacy": {"release": "public_rows"}, "federation": {"clients": 2}}
    config = build_config(
        {"data": {"limit": 200}, "network": {"width": 16}, "federation": {"method": "dprbft"}},
        changes,
    )
    plan_sites(tmp_path, config).write(tmp_path)
    view = RunView(tmp_path, config)
    join(view.sites[0], view.hello(0))
    site = open_site(view.sites[0])
    train = site.data.train
    fewer = replace(site.data, train=train.take(torch.arange(1, len(train))))
    neighbour = with_data(site, fewer)

    def same_bits(a: Site, b: Site) -> bool:
        first, second = sent(a), sent(b)
        assert first.keys() == second.keys()
        return all(torch.equal(first[k], second[k]) for k in first)

    assert same_bits(site, neighbour)
    # The planted bug: the private samples leave as the public ones.
    worlds = [replace(c, public=c.data.train) for c in (site, neighbour)]
    assert not same_bits(*worlds)


# A step of DP-SGD.

RATE, SIGMA, CLIP = 1 / 3, 1.0, 0.3


class Step:
    """One step on the weights of a linear model: the real batch, the real gradient, once a draw.

    The canary, whose gradient is clipped, comes after two bystanders in other directions. The
    clipped sum draws no noise, so that it is computed once a batch and remembered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clip: float = CLIP) -> None:
        self._model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
        nn.init.zeros_(self._model[1].weight)
        self.x = torch.tensor([[0.0, 0.4], [0.0, -0.1], [1000.0, 0.0]]).reshape(3, 1, 1, 2)
        self.y = torch.tensor([1, 1, 0])
        self._gradient = PrivateGradient(self._model)
        real = PrivateGradient._clipped_sum
        known: dict[tuple[float, ...], Tensor] = {}

        def remembered(
            gradient: PrivateGradient, x: Tensor, y: Tensor, _: float, groups: None
        ) -> Tensor:
            batch = tuple(x.flatten().tolist())
            if batch not in known:
                known[batch], again = (real(gradient, x, y, clip, groups) for _ in range(2))
                assert torch.equal(known[batch], again)
            return known[batch].clone()

        monkeypatch.setattr(PrivateGradient, "_clipped_sum", remembered)
        self.plan = plan_of(3, 1, CLIP, SIGMA)

    def world(self, samples: int) -> Mechanism:
        # The shape checks of the tests take four times as long as the step itself.
        sample, step = inspect.unwrap(poisson_batch), inspect.unwrap(PrivateGradient.step)

        def mechanism(noise: Noise) -> Tensor:
            source = noise()
            batch = sample(samples, RATE, source)
            step(self._gradient, self.x[batch], self.y[batch], self.plan.clip_and_noise, source)
            grad = self._model[1].weight.grad
            assert grad is not None
            return grad.flatten().double()

        return mechanism

    def case(self) -> Case:
        assert self.plan.rate == RATE
        return Case(
            world_in=self.world(3),
            world_out=self.world(2),
            events=[SampledGaussian(RATE, SIGMA, 1)],
            loop=True,
        )


@pytest.mark.parametrize(
    "draws",
    [
        pytest.param(QUICK, marks=pytest.mark.thorough),
        pytest.param(FULL, marks=pytest.mark.thorough),
    ],
)
def test_a_step_of_dp_sgd_keeps_its_promise(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Step(monkeypatch).case()
    holds(case, found(case, draws=draws))


@pytest.mark.parametrize(
    "deal",
    [
        pytest.param(half_the_noise, marks=pytest.mark.slow),
        *(pytest.param(deal, marks=pytest.mark.thorough) for deal in (always_sampled, fixed_seed)),
    ],
)
def test_a_step_with_wrong_noise_is_caught(deal: Deal, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Step(monkeypatch).case()
    assert found(case, deal, draws=FEW) > case.claim


@pytest.mark.thorough
@pytest.mark.parametrize("clip", [2 * CLIP, 1e6])
def test_a_gradient_that_is_clipped_too_little_is_caught(
    clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Step(monkeypatch, clip).case()
    assert found(case, draws=FEW) > case.claim
