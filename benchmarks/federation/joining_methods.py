"""What each row of `benchmarks.joining` does with a federation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from benchmarks.joining_world import DELTA, HISTOGRAM, Site, World
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, release_multiplier, tighten_release_noise
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.kinds import moments
from panas.privacy.schedule import TrainingSchedule
from panas.training.linear.averaging import average, log_prior
from panas.training.linear.residual import fit_residual, zero_residual
from panas.training.linear.ridge import (
    exact_moments,
    logits,
    own_head,
    ridge,
    shared_head,
    shrunk_head,
)

RELEASE = 0.7  # share of epsilon
EPOCHS_ALONE, EPOCHS_JOINED, CLIP = 48, 24, 1.0


@lru_cache(maxsize=64)
def plan_of(n: int, epsilon: float, *, joined: bool) -> Plan:
    """What a site spends besides its histogram: on DP-SGD, and on a release where it joins."""
    budget = Budget(epsilon, DELTA)
    schedule = TrainingSchedule(
        samples=n,
        epochs=EPOCHS_JOINED if joined else EPOCHS_ALONE,
        releases=int(joined),
        release_share=RELEASE,
        spent=(Gaussian(release_multiplier(budget, 1, HISTOGRAM)),),
    )
    batch = n if joined and n < 500 else n // 2
    return calibrate(budget, schedule, batch_size=batch, clip=CLIP)


@lru_cache(maxsize=16)
def all_released(n: int, epsilon: float) -> float:
    """Noise multiplier of one release that takes all that the histogram leaves."""
    budget = Budget(epsilon, DELTA)
    spent = (Gaussian(release_multiplier(budget, 1, HISTOGRAM)),)
    m = release_multiplier(budget, 1, 0.5)
    plan = Plan(
        samples=n,
        batch_size=n,
        clip=CLIP,
        noise_multiplier=1.0,
        epochs=1,
        rounds=0,
        releases=1,
        release_noise=m,
    )
    return tighten_release_noise(plan, budget, spent).release_noise or m


def released(rows: Rows, world: World, m: float) -> Moments:
    """A site's moments as a server receives them."""
    s = moments.SENSITIVITY * m
    return moments.estimate(moments.run(rows, world.classes, s, world.noise), world.classes, s)


def summed(parts: Sequence[Moments], variance: float) -> Moments:
    """The sum of moments, with noise of this variance in all."""
    A, B = torch.stack([m.A for m in parts]).sum(0), torch.stack([m.B for m in parts]).sum(0)
    return Moments(A, B, variance)


@dataclass(frozen=True)
class Heads:
    """What the server made of the sites' releases, and what each of them had sent."""

    shared: Tensor
    sent: tuple[Moments, ...]  # of a site by itself, for its own head


def pooled_head(world: World, *, secure: bool) -> Heads:
    """The shared head; with a secure sum the server's noise is that of one site."""
    sent = []
    for site in world.sites:
        m = plan_of(len(site.train.y), world.epsilon, joined=True).release_noise
        assert m is not None
        sent.append(released(site.train, world, m))
    total = summed(sent, sum(x.variance for x in sent))
    if secure:
        exact = [exact_moments(s.train.z, s.train.y, world.classes) for s in world.sites]
        s2 = sent[0].variance
        alone = released(
            Rows(world.test.z[:0], world.test.y[:0]), world, math.sqrt(s2) / moments.SENSITIVITY
        )
        total = summed([*exact, alone], s2)
    counts = torch.stack([s.histogram for s in world.sites]).sum(0)
    return Heads(shared_head(total, counts, public_moments(world), world.labelled), tuple(sent))


def public_moments(world: World) -> Moments:
    """The exact moments of the labelled public samples."""
    return exact_moments(world.public.z, world.public.y, world.classes)


def predictions(world: World, site: Site, heads: Mapping[bool, Heads]) -> dict[str, Tensor]:
    """What each method says of the test samples at one site."""
    prior, test = log_prior(site.histogram), world.test.z
    public = ridge(public_moments(world), 0.9 if world.labelled < 500 else 0.3)
    exact = summed([exact_moments(s.train.z, s.train.y, world.classes) for s in world.sites], 0.0)
    counts = torch.stack([s.histogram for s in world.sites]).sum(0)
    m = all_released(len(site.train.y), world.epsilon)
    own = own_head(released(site.train, world, m), world.labelled)
    known = {"public": public} if world.labelled else {}
    pooled = shared_head(exact, counts, public_moments(world), world.labelled)
    found = {
        "own release": logits(own, test) + prior,
        **{
            name: averaged(world, site, known, over=known.get("public"), joined=False)
            for name in ("alone", "alone again")
        },
        "shared": logits(heads[False].shared, test) + prior,
        "pooled": logits(pooled, test) + prior,
    }
    if known:
        found["public"] = logits(public, test) + prior
    at = next(i for i, other in enumerate(world.sites) if other is site)
    for secure, name in ((False, "joined"), (True, "secure sum")):
        shared, more = heads[secure].shared, {"shared": heads[secure].shared}
        if not secure:  # in a secure sum a site makes no release of its own
            sent = heads[secure].sent[at]
            more |= {"own": own_head(sent, world.labelled), "shrunk": shrunk_head(sent, shared)}
        found[name] = averaged(world, site, known | more, over=shared, joined=True)
    return found


def averaged(
    world: World, site: Site, known: Mapping[str, Tensor], *, over: Tensor | None, joined: bool
) -> Tensor:
    """The average of heads that are known and of a residual that DP-SGD trains over one of them."""
    prior, n = log_prior(site.histogram), len(site.train.y)
    plan = plan_of(n, world.epsilon, joined=joined)
    residual = zero_residual(site.train.z.shape[1], world.classes)

    def offset(z: Tensor) -> Tensor:
        return prior.expand(len(z), -1) if over is None else logits(over, z) + prior

    fit_residual(
        residual,
        site.train,
        offset(site.train.z),
        plan=plan,
        learning_rate=learning_rate(n * world.epsilon, joined=joined),
        noise=world.noise,
    )

    def answers(z: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            trained = {"residual": residual(z) + offset(z)}
        return {name: logits(w, z) for name, w in known.items()} | trained

    y = site.validation.y
    chosen = average(answers(site.validation.z), y, prior, with_prior=["residual"])
    return chosen.probabilities(answers(world.test.z), prior)


def learning_rate(signal: float, *, joined: bool) -> float:
    """By n times epsilon; chosen on seeds 100 to 102 of Fashion-MNIST at 14 x 14."""
    rate = 2 * math.sqrt(signal / 1200) if joined else signal / 600
    return min(8.0, max(0.25, rate))
