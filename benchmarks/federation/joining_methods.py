"""What each row of `benchmarks.joining` does with a federation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from benchmarks.joining_world import DELTA, Site, World
from dprbft.site.site import USUAL
from panas.data.samples import Samples
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, release_multiplier, tighten_release_noise
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.kinds import moments
from panas.privacy.unit import planned_units
from panas.training.baselines import fit_baselines
from panas.training.linear.averaging import average, log_prior, worth_of
from panas.training.linear.public_models import (
    PublicForest,
    PublicLogistic,
    fit_public_forest,
    fit_public_logistic,
)
from panas.training.linear.residual import fit_residual, zero_residual
from panas.training.linear.ridge import (
    exact_moments,
    fit_public_head,
    least_penalty,
    logits,
    noise_penalty,
    ridge,
    shared_head,
)
from panas.training.linear.rules import (
    Pooling,
    Recipe,
    alone_recipe,
    histogram_share,
    joined_recipe,
    release_share,
    residual_schedule,
)


@lru_cache(maxsize=64)
def plan_of(n: int, epsilon: float, share: float) -> Plan:
    """What a site spends besides its histogram: `share` of epsilon on a release, if it joins, and
    the rest on DP-SGD."""
    budget = Budget(epsilon, DELTA)
    recipe = recipe_of(n, epsilon, share)
    spent = (Gaussian(release_multiplier(budget, 1, histogram_share(epsilon))),)
    schedule = residual_schedule(n, recipe, spent, share=share)
    return calibrate(budget, schedule, batch_size=recipe.batch_size, clip=recipe.clip)


def recipe_of(n: int, epsilon: float, share: float) -> Recipe:
    """Settings of DP-SGD, for whoever joins and whoever does not."""
    return joined_recipe(n, epsilon, share) if share else alone_recipe(n, epsilon)


@lru_cache(maxsize=16)
def all_released(n: int, epsilon: float) -> float:
    """Noise multiplier of one release that takes all that the histogram leaves."""
    budget = Budget(epsilon, DELTA)
    spent = (Gaussian(release_multiplier(budget, 1, histogram_share(epsilon))),)
    m = release_multiplier(budget, 1, 0.5)
    plan = Plan(
        samples=n,
        batch_size=n,
        clip=1.0,
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
    """What the server made of the sites' releases."""

    share: float  # of epsilon that a release takes; 0: nobody releases anything
    shared: Tensor | None


@dataclass(frozen=True)
class Known:
    """What is the same for all sites of a federation."""

    joined: Heads
    secure: Heads  # where the server sees the noised sum alone
    public: Tensor | None  # the head of labelled public samples
    pooled: Tensor  # the head of all sites' exact moments
    forest: PublicForest | None  # of labelled public samples
    logistic: PublicLogistic | None  # of the same
    say: Mapping[str, Tensor]  # both, of the test samples


def known_of(world: World) -> Known:
    """The heads of a federation, and the models of its public samples."""
    exact = summed([exact_moments(s.train.z, s.train.y, world.classes) for s in world.sites], 0.0)
    public = exact_moments(world.public.z, world.public.y, world.classes)
    forest = fit_public_forest(world.public_samples)
    logistic = fit_public_logistic(world.public_samples)
    return Known(
        joined=pooled_head(world, secure=False),
        secure=pooled_head(world, secure=True),
        public=fit_public_head(world.public, world.classes) if world.labelled else None,
        pooled=shared_head(with_counts(exact, world), public, world.labelled),
        forest=forest,
        logistic=logistic,
        say=said_by(forest, logistic, world.test_samples),
    )


def said_by(
    forest: PublicForest | None, logistic: PublicLogistic | None, samples: Samples
) -> dict[str, Tensor]:
    """What the models of public samples say of others, as logits."""
    x, models = samples.inputs(), {"forest": forest, "logistic": logistic}
    return {name: model.logits(x) for name, model in models.items() if model is not None}


def pooled_head(world: World, *, secure: bool) -> Heads:
    """The shared head; with a secure sum the server's noise is that of one site."""
    d = world.test.z.shape[1]
    # Who takes part in a secure sum is known before a histogram is paid for.
    n = USUAL if secure else units_of(world.sites[0], world)
    pooling = Pooling(
        sites=len(world.sites),
        samples=n,
        classes=world.classes,
        budget=Budget(world.epsilon, DELTA),
        secure_sum=secure,
    )
    share = release_share(pooling, world.public)
    m = plan_of(n, world.epsilon, share).release_noise
    if m is None:
        return Heads(0.0, None)
    s2 = (moments.SENSITIVITY * m) ** 2
    if secure:
        nobody = Rows(torch.zeros(0, d), torch.zeros(0, dtype=torch.int64))
        exact = [exact_moments(s.train.z, s.train.y, world.classes) for s in world.sites]
        total = summed([*exact, released(nobody, world, m)], s2)
    else:
        sent = [released(site.train, world, m) for site in world.sites]
        total = summed(sent, s2 * len(sent))
    public = exact_moments(world.public.z, world.public.y, world.classes)
    counted = with_counts(total, world)
    return Heads(share, shared_head(counted, public, world.labelled, world.seen))


def with_counts(total: Moments, world: World) -> Moments:
    """The same with how many samples of each class all sites have, by their noised histograms."""
    counts = torch.stack([s.histogram for s in world.sites]).sum(0)
    variance = len(world.sites) * histogram_noise(world) ** 2
    return replace(total, counts=counts, counts_variance=variance)


def histogram_noise(world: World) -> float:
    """Standard deviation of the noise on each count of a site's label histogram."""
    return release_multiplier(Budget(world.epsilon, DELTA), 1, histogram_share(world.epsilon))


def predictions(world: World, at: int, known: Known) -> dict[str, Tensor]:
    """What each method says of the test samples at one site, as logits or log probabilities."""
    site, test = world.sites[at], world.test.z
    prior = log_prior(site.histogram)
    public = {} if known.public is None else {"public": known.public}
    sent = released(site.train, world, all_released(len(site.train.y), world.epsilon))
    own = ridge(sent, max(noise_penalty(sent), least_penalty(world.labelled)))
    results = {"own release": logits(own, test) + prior}
    results["forest on public and own"] = forest_of_both(world, site)
    if known.forest is not None:  # its votes as they are
        results["forest on public"] = known.say["forest"] * known.forest.temperature
    if "logistic" in known.say:
        results["logistic on public"] = known.say["logistic"]
    results |= {name: logits(head, test) + prior for name, head in public.items()}
    for name in ("alone", "alone again"):
        results[name] = averaged(world, site, known, public, over=known.public, share=0.0)
    results["pooled"] = pooled_at(world, site, known.pooled)
    if known.joined.shared is not None:
        results["shared"] = logits(known.joined.shared, test) + prior
    joined = of_heads(world, at, known, known.joined)
    return results | {"joined": results["alone"] if joined is None else joined}


def in_sum(world: World, at: int, known: Known) -> dict[str, Tensor]:
    """The same of a secure sum on its own map, and of what it is to be compared with there."""
    site, public = world.sites[at], {} if known.public is None else {"public": known.public}
    alone = averaged(world, site, known, public, over=known.public, share=0.0)
    joined = of_heads(world, at, known, known.secure)
    return {
        "alone, map of the sum": alone,
        "secure sum": alone if joined is None else joined,
        "pooled, map of the sum": pooled_at(world, site, known.pooled),
    }


def pooled_at(world: World, site: Site, head: Tensor) -> Tensor:
    """What the head of exact moments says, with all that a site knows of its label frequencies."""
    held = {"pooled": logits(head, site.validation.z)}
    prior, worth = log_prior(site.histogram), worth_of(site.histogram, histogram_noise(world))
    chosen = average(held, site.validation.y, prior, worth=worth)
    return logs(chosen.probabilities({"pooled": logits(head, world.test.z)}, prior))


def logs(said: Tensor) -> Tensor:
    """Log probabilities, finite."""
    return said.clamp(min=1e-30).log()


def of_heads(world: World, at: int, known: Known, heads: Heads) -> Tensor | None:
    """What a site says that has joined; None where nobody has, for whom that is as alone."""
    site, shared = world.sites[at], heads.shared
    if shared is None:
        return None
    more = {"shared": shared} | ({} if known.public is None else {"public": known.public})
    return averaged(world, site, known, more, over=shared, share=heads.share)


def units_of(site: Site, world: World) -> int:
    """How many samples the site plans with: by its noised histogram, as in a run."""
    noise = histogram_noise(world) * math.sqrt(world.classes)
    return planned_units(float(site.histogram.sum()), noise)


def forest_of_both(world: World, site: Site) -> Tensor:
    """What a forest of the raw values of public and the site's own samples says: not private."""
    parts = [world.public_samples, site.samples]
    fitted = fit_baselines(parts, "public and own", world.seed, ("random forest",))
    p = fitted.probabilities(world.test_samples)
    none = torch.zeros(len(world.test.y), world.classes)
    return torch.from_numpy(p["random forest"]).clamp(min=1e-6).log() if p else none


def averaged(
    world: World,
    site: Site,
    known: Known,
    heads: Mapping[str, Tensor],
    *,
    over: Tensor | None,
    share: float,
) -> Tensor:
    """The average of heads, a table's public forest and logistic regression, and a residual that
    DP-SGD trains over one head."""
    prior, n = log_prior(site.histogram), units_of(site, world)
    residual = zero_residual(site.train.z.shape[1], world.classes)

    def offset(z: Tensor) -> Tensor:
        return prior.expand(len(z), -1) if over is None else logits(over, z) + prior

    fit_residual(
        residual,
        site.train,
        offset(site.train.z),
        plan=plan_of(n, world.epsilon, share),
        learning_rate=recipe_of(n, world.epsilon, share).learning_rate,
        noise=world.noise,
    )

    def answers(z: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            said = {"residual": residual(z) + offset(z)}
        return said | {name: logits(w, z) for name, w in heads.items()}

    held, of_test = answers(site.validation.z), answers(world.test.z)
    if world.table:  # of images these are worse than their heads, and mislead
        held |= said_by(known.forest, known.logistic, site.held)
        of_test |= known.say
    worth = worth_of(site.histogram, histogram_noise(world))
    chosen = average(held, site.validation.y, prior, ["residual"], worth=worth)
    return logs(chosen.probabilities(of_test, prior))
