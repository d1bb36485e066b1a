"""What the rounds of a site will have cost, by the plan that it will make."""

import math
from collections.abc import Iterator
from dataclasses import replace

from dprbft.config.schema import rounds_of
from dprbft.methods.price import PlannedSpending, coming, spending_of
from dprbft.methods.rounds.plan import calibrated, fixed_plan
from dprbft.methods.rounds.tuning import fixed_settings, planned_trials
from dprbft.site.counting import counting_event
from dprbft.site.results.records import PLANNED_NOISE
from dprbft.site.search import search_price
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, Gaussian, Unprotected
from panas.privacy.ledger.charge import Charge
from panas.privacy.plan import Plan
from panas.privacy.release.kind import event_of, kind_named
from panas.runtime.errors import BudgetExhausted
from panas.tuning.space import DPSGDSettings


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon by phase, over the settings that tuning may choose; BudgetExhausted if none is paid.

    Samples are taken to be as many as is public of the site, or as usual: their noised number is
    not known yet. It decides the noise, and moves the sum by less than a hundredth.
    """
    before = list(_before(site))
    plans = _plans(site, before)
    result = spending_of(site, [[*before, *_of_rounds(site, plan)] for plan in plans])
    least, budget = result.total[0], site.budget.epsilon
    if site.budget.private and budget * (1 + 1e-6) < least < math.inf:
        raise BudgetExhausted(
            f"{site.paths.name} would spend epsilon {least:.3f} of {budget:g}; give more "
            "noise, or a larger budget"
        )
    return result


def _before(site: Site) -> Iterator[Charge]:
    """What is charged before the plan of the rounds is made."""
    event = search_price(site).event
    if event is not None:
        is_public = site.config.privacy.mode.needs_public
        yield coming(event, "search", "train" if is_public else "search")
    is_counted = isinstance(event, Gaussian)
    if not is_counted and rounds_of(site.config, site.id) and (count := counting_event(site)):
        yield coming(count, "training")


def _plans(site: Site, before: list[Charge]) -> list[Plan | None]:
    fixed = site.config.training.noise_multiplier
    paid: list[Event] = [c.event for c in before if not isinstance(c.event, Unprotected)]
    if not site.budget.private or not rounds_of(site.config, site.id):
        return [None]
    settings = fixed_settings(site.config)
    if fixed is not None:
        return [fixed_plan(site, settings, fixed)]
    if not planned_trials(site):
        return [calibrated(site, settings, paid)]
    space, plans = site.config.tuning.space, list[Plan | None]()
    for batch in sorted({min(space.batch_sizes), max(space.batch_sizes)}):
        for epochs in sorted({min(space.epochs), max(space.epochs)}) if space.epochs else (None,):
            tuned = DPSGDSettings(
                learning_rate=settings.learning_rate,
                noise_multiplier=PLANNED_NOISE,
                clip=settings.clip,
                batch_size=batch,
                epochs=epochs,
            )
            plan = calibrated(site, tuned, paid)
            factor = space.noise_factor[1]
            noisier = replace(tuned, noise_multiplier=factor * plan.noise_multiplier)
            plans += [plan, calibrated(site, noisier, paid)]
    return plans


def _of_rounds(site: Site, plan: Plan | None) -> Iterator[Charge]:
    kind = site.config.sent
    for _ in rounds_of(site.config, site.id):
        yield coming(plan.training_event if plan else Unprotected(), "training")
        if kind is not None:
            noise = plan.release_noise if plan else None
            event = event_of(kind_named(kind), noise) if plan else Unprotected()
            yield coming(event, "release")
