"""What a site's one release and its residual may cost, from what its ledger says is left.

Everything that the ledger holds counts as spent, of processes that died too: what is left is less,
and the noise is larger, or a step is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from dprbft.config.map_width import USUAL
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, Gaussian, SampledGaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import (
    calibrate,
    fits,
    release_multiplier,
    rescale_noise,
    tighten_release_noise,
)
from panas.privacy.ledger.account import Account
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BudgetExhausted
from panas.training.linear.rules import (
    RELEASE_SHARE,
    Pooling,
    Recipe,
    alone_recipe,
    histogram_share,
    joined_recipe,
    release_share,
    residual_schedule,
)
from panas.tuning.space import DPSGDSettings

SHARES = (0.5, 0.1, 0.01)
"""Of epsilon, that a release which is to take all that is left is tried at first."""
NO_NOISE = 1e-9
"""Noise multiplier of a plan that nothing is charged for: training without a budget."""


def recipe_of(site: Site, share: float) -> Recipe:
    """The settings of a residual that nobody has tuned, beside a release of this share, or none."""
    n, epsilon = site.units, site.budget.epsilon
    return joined_recipe(n, epsilon, share) if share else alone_recipe(n, epsilon)


def settings_of(recipe: Recipe, noise_multiplier: float) -> DPSGDSettings:
    """A recipe's settings with some noise."""
    return DPSGDSettings(
        learning_rate=recipe.learning_rate,
        noise_multiplier=noise_multiplier,
        clip=recipe.clip,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
    )


def may_release(site: Site) -> bool:
    """Whether the site could make a release, however many samples it turns out to have."""
    return site.config.federation.clients > 1 and site.config.privacy.release_share != 0


def share_of(site: Site) -> float:
    """The share of epsilon for the release, set or by rule from public facts; 0 for no release.

    Where nothing is trained under the budget, a release takes nothing away.
    """
    config, budget = site.config, site.budget
    if config.federation.clients < 2:
        return 0.0  # nobody to join with
    if config.privacy.release_share is not None:
        return config.privacy.release_share
    if config.stays or not budget.private:
        return RELEASE_SHARE
    pooling = Pooling(
        sites=config.federation.clients,
        # Who takes part in a secure sum is known before a histogram is paid for.
        samples=(site.declared_units or USUAL) if config.secure_sum else site.units,
        classes=site.spec.classes,
        budget=budget,
        secure_sum=config.secure_sum,
    )
    return release_share(pooling, Rows(site.phi.of(site.public), site.public.y))


def planned_release(site: Site) -> Gaussian | Unprotected | None:
    """What the release is charged as; None where the site makes none.

    BudgetExhausted if what is left pays for no release and residual with any noise.
    """
    share = share_of(site)
    if not site.budget.private:
        return Unprotected() if share else None
    if site.config.stays and not share:
        return None
    (budget, spent), *life = _bounds(site)
    fixed = site.config.training.noise_multiplier
    stays = site.config.stays
    plan = _all_of(budget, spent) if stays else dearest_plan(budget, spent, share, fixed=fixed)
    return Gaussian(within(plan, life, site).release_noise or 0.0) if share else None


def dearest_plan(
    budget: Budget, spent: Sequence[Event], share: float, *, fixed: float | None = None
) -> Plan:
    """A release, and the residual that costs most of any number of samples: every step reads them
    all.

    So noise of a release, and whether there is any, follow from public numbers. BudgetExhausted
    where nothing is left beside what was spent, or too little for training noise that is fixed.

    Args:
        budget: of the run's share, finite.
        spent: what the site was charged before.
        share: of epsilon that the release has, in [0, 1); 0: no release.
        fixed: noise multiplier of the training, where the settings say it; None: calibrated.
    """
    recipe = joined_recipe(1, budget.epsilon, share) if share else alone_recipe(1, budget.epsilon)
    plan = calibrate(
        budget,
        residual_schedule(1, recipe, spent, share=share),
        batch_size=1,
        clip=recipe.clip,
        epochs=recipe.epochs,
    )
    plan = tighten_release_noise(
        replace(plan, noise_multiplier=fixed or plan.noise_multiplier), budget, spent
    )
    if fixed and not fits(plan.events(), budget, spent):
        raise BudgetExhausted(
            f"expected training.noise_multiplier = {fixed:g} to fit epsilon "
            f"{budget.epsilon:g} beside the release, got too little noise; raise it"
        )
    return plan


def within(plan: Plan, life: Sequence[tuple[Budget, list[Event]]], site: Site) -> Plan:
    """The plan of a run's share with as much more noise as the budget for life asks for.

    Args:
        plan: of the run's share.
        life: budget and charges of each account that the site's data have.
        site: its settings say whether the training noise is fixed.
    """
    fixed = site.config.training.noise_multiplier is not None
    for budget, spent in life:
        plan = rescale_noise(plan, budget, (), spent, fixed=fixed)
    return plan


def largest_run(account: Account, most: float = math.inf) -> float:
    """The largest epsilon of one more run that the budget for life admits.

    It is at the owner's delta, rounded down to a thousandth, at most `most`, and one that the
    default method can plan; 0 where there is none.

    By its default settings; the ledger admits the same share, and `planned_release` plans the same.
    """
    budget, spent = account.budget, account.protected()
    if not budget.private:
        return min(budget.epsilon, most)
    left = math.floor(1000 * min(account.left(), most)) / 1000
    if not left > 0:
        return 0.0
    share = Budget(left, budget.delta)
    histogram = histogram_event(share, histogram_share(share.epsilon))
    try:
        plan = dearest_plan(share, histogram, RELEASE_SHARE)
        if spent:
            rescale_noise(plan, budget, (), [*spent, *histogram])
    except BudgetExhausted:
        return 0.0
    return left


def _all_of(budget: Budget, spent: list[Event]) -> Plan:
    for share in SHARES:
        m = release_multiplier(budget, 1, share)
        if not fits([Gaussian(m)], budget, spent):
            continue
        alone = Plan(
            samples=1,
            batch_size=1,
            clip=1.0,
            noise_multiplier=1.0,
            epochs=1,
            rounds=0,
            releases=1,
            release_noise=m,
        )
        return tighten_release_noise(alone, budget, spent)
    raise BudgetExhausted(
        f"expected a budget that affords a release, got epsilon {budget.epsilon:g}; raise epsilon"
    )


def residual_plan(
    site: Site,
    settings: DPSGDSettings,
    coming: Sequence[Event] = (),
    paid: SampledGaussian | None = None,
) -> Plan:
    """The plan of the residual's DP-SGD, with the tuned noise or the least that is left for.

    BudgetExhausted if no noise is enough.

    Args:
        site: its number of units, budget and ledger.
        settings: as tuned, or by the recipe.
        coming: events that are still to be charged before.
        paid: what a training was charged as within which a process died: its noise is taken.
    """
    if not site.budget.private:
        return _without_noise(site, settings)
    n, fixed = site.units, site.config.training.noise_multiplier
    (budget, spent), *life = [(b, _without(s, paid)) for b, s in site.bounds()]
    plan = calibrate(
        budget,
        residual_schedule(n, recipe_of(site, 0.0), [*spent, *coming]),
        batch_size=settings.batch_size,
        clip=settings.clip,
        epochs=settings.epochs,
    )
    if noise := paid.noise_multiplier if paid else fixed:
        return replace(plan, noise_multiplier=noise)
    plan = replace(plan, noise_multiplier=max(plan.noise_multiplier, settings.noise_multiplier))
    return within(plan, [(b, [*s, *coming]) for b, s in life], site)


def _without(events: Sequence[Event], paid: Event | None) -> list[Event]:
    """Events without one of them."""
    result = list(events)
    if paid in result:
        result.remove(paid)
    return result


def alone_plan(site: Site) -> tuple[Plan, Recipe]:
    """The plan of a site that spends all but its histogram on itself; nothing is charged for it."""
    recipe = alone_recipe(site.units, site.budget.epsilon)
    if not site.budget.private:
        return _without_noise(site, settings_of(recipe, NO_NOISE)), recipe
    histogram = histogram_event(site.budget, site.histogram_share)
    schedule = residual_schedule(site.units, recipe, histogram)
    plan = calibrate(site.budget, schedule, batch_size=recipe.batch_size, clip=recipe.clip)
    return plan, recipe


def _without_noise(site: Site, settings: DPSGDSettings) -> Plan:
    return Plan(
        samples=site.units,
        batch_size=settings.batch_size,
        clip=settings.clip,
        noise_multiplier=NO_NOISE,
        epochs=settings.epochs or 1,
        rounds=1,
    )


def _bounds(site: Site) -> list[tuple[Budget, list[Event]]]:
    """As `Site.bounds`, with the histogram that is still to come."""
    coming: list[Event] = []
    if not any(e.charge.phase == "search" for e in site.account.entries):
        coming = histogram_event(site.budget, site.histogram_share)
    return [(budget, [*spent, *coming]) for budget, spent in site.bounds()]


def histogram_event(budget: Budget, share: float) -> list[Event]:
    """What a noised label histogram is charged as; [] where the budget affords none."""
    try:
        return [Gaussian(release_multiplier(budget, 1, share))]
    except BudgetExhausted:
        return []  # none is made then
