"""What a site's one release and its residual may cost, from what its ledger says is left.

Everything that the ledger holds counts as spent, of processes that died too: what is left is less,
and the noise is larger, or a step is left out.
"""

from collections.abc import Sequence
from dataclasses import replace

from dprbft.site.site import Client
from panas.privacy.accounting.events import Event, Gaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, fits, release_multiplier, tighten_release_noise
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BudgetExhausted
from panas.training.linear.recipe import Recipe, alone_recipe, joined_recipe, residual_schedule
from panas.training.linear.split import RELEASE_SHARE, Pooling, release_share
from panas.tuning.space import DPSGDSettings

SHARES = (0.5, 0.1, 0.01)
"""Of epsilon, that a release which is to take all that is left is tried at first."""
NO_NOISE = 1e-9
"""Noise multiplier of a plan that nothing is charged for: training without a budget."""


def recipe_of(client: Client, share: float) -> Recipe:
    """The settings of a residual that nobody has tuned, beside a release of this share, or none."""
    n, epsilon = client.data.train.units, client.budget.epsilon
    return joined_recipe(n, epsilon, share) if share else alone_recipe(n, epsilon)


def share_of(client: Client) -> float:
    """The share of epsilon for the release, set or by rule from public facts; 0 for no release.

    Where nothing is trained under the budget, a release takes nothing away.
    """
    config, budget = client.config, client.budget
    if config.federation.clients < 2:
        return 0.0  # nobody to join with
    if config.privacy.release_share is not None:
        return config.privacy.release_share
    if config.stays or not budget.private:
        return RELEASE_SHARE
    pooling = Pooling(
        sites=config.federation.clients,
        samples=client.data.train.units,
        classes=client.spec.classes,
        budget=budget,
        secure_sum=config.privacy.secure_sum,
    )
    return release_share(pooling, Rows(client.phi(client.public.inputs()), client.public.y))


def planned_release(client: Client) -> Gaussian | Unprotected | None:
    """What the release is charged as; None where the site makes none.

    BudgetExhausted if what is left pays for no release and residual with any noise.
    """
    share = share_of(client)
    if not client.budget.private:
        return Unprotected() if share else None
    if client.config.stays:
        if not share:
            return None
        return Gaussian(max(_all_of(budget, spent) for budget, spent in _bounds(client)))
    recipe, plans = recipe_of(client, share), []
    for budget, spent in _bounds(client):
        schedule = residual_schedule(client.data.train.units, recipe, spent, share=share)
        plan = calibrate(
            budget, schedule, batch_size=recipe.batch_size, clip=recipe.clip, epochs=recipe.epochs
        )
        plans.append((plan, budget, spent))
    fixed = client.config.training.noise_multiplier
    sigma, m = fixed or max(plan.noise_multiplier for plan, _, _ in plans), 0.0
    for plan, budget, spent in plans:
        sharp = tighten_release_noise(replace(plan, noise_multiplier=sigma), budget, spent)
        if fixed and not fits(sharp.events(), budget, spent):
            raise BudgetExhausted(
                f"expected training.noise_multiplier = {fixed:g} to fit epsilon "
                f"{budget.epsilon:g} beside the release, got too little noise; raise it"
            )
        m = max(m, sharp.release_noise or 0.0)
    return Gaussian(m) if share else None


def _all_of(budget: Budget, spent: list[Event]) -> float:
    """Noise multiplier of one release with all that is left of a budget."""
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
        return tighten_release_noise(alone, budget, spent).release_noise or m
    raise BudgetExhausted(
        f"expected a budget that affords a release, got epsilon {budget.epsilon:g}; raise epsilon"
    )


def residual_plan(client: Client, settings: DPSGDSettings, coming: Sequence[Event] = ()) -> Plan:
    """The plan of the residual's DP-SGD, with the tuned noise or the least that is left for, once
    events that are still to come have been charged.

    BudgetExhausted if no noise is enough.
    """
    if not client.budget.private:
        return _without_noise(client, settings)
    plans, recipe = [], recipe_of(client, 0.0)
    for budget, spent in client.bounds():
        schedule = residual_schedule(client.data.train.units, recipe, [*spent, *coming])
        plans.append(
            calibrate(
                budget,
                schedule,
                batch_size=settings.batch_size,
                clip=settings.clip,
                epochs=settings.epochs,
            )
        )
    least = max(plans, key=lambda plan: plan.noise_multiplier)
    fixed = client.config.training.noise_multiplier
    noise = fixed or max(least.noise_multiplier, settings.noise_multiplier)
    return replace(least, noise_multiplier=noise)


def alone_plan(client: Client) -> tuple[Plan, Recipe]:
    """The plan of a site that spends all but its histogram on itself; nothing is charged for it."""
    recipe = alone_recipe(client.data.train.units, client.budget.epsilon)
    settings = DPSGDSettings(
        learning_rate=recipe.learning_rate,
        noise_multiplier=NO_NOISE,
        clip=recipe.clip,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
    )
    if not client.budget.private:
        return _without_noise(client, settings), recipe
    histogram = histogram_event(client.budget, client.config.privacy.histogram_share)
    schedule = residual_schedule(client.data.train.units, recipe, histogram)
    plan = calibrate(client.budget, schedule, batch_size=recipe.batch_size, clip=recipe.clip)
    return plan, recipe


def _without_noise(client: Client, settings: DPSGDSettings) -> Plan:
    return Plan(
        samples=client.data.train.units,
        batch_size=settings.batch_size,
        clip=settings.clip,
        noise_multiplier=NO_NOISE,
        epochs=settings.epochs or 1,
        rounds=1,
    )


def _bounds(client: Client) -> list[tuple[Budget, list[Event]]]:
    """As `Client.bounds`, with the histogram that is still to come."""
    coming: list[Event] = []
    if not any(e.charge.phase == "search" for e in client.account.entries):
        coming = histogram_event(client.budget, client.config.privacy.histogram_share)
    return [(budget, [*spent, *coming]) for budget, spent in client.bounds()]


def histogram_event(budget: Budget, share: float) -> list[Event]:
    """What a noised label histogram is charged as; [] where the budget affords none."""
    try:
        return [Gaussian(release_multiplier(budget, 1, share))]
    except BudgetExhausted:
        return []  # none is made then
