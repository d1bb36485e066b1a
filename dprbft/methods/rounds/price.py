"""What the rounds of a site will have cost, by the plan that it will make."""

from collections.abc import Iterator
from dataclasses import replace

from dprbft.config.schema import rounds_of
from dprbft.methods.price import PlannedSpending, spending_of
from dprbft.methods.rounds.plan import calibrated, fixed_plan
from dprbft.methods.rounds.training import training_charge
from dprbft.methods.rounds.tuning import fixed_settings, planned_trials
from dprbft.site.counting import COUNT, counting_event
from dprbft.site.results.records import PLANNED_NOISE
from dprbft.site.search import search_price
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, Gaussian, Unprotected
from panas.privacy.ledger.charge import Charge
from panas.privacy.plan import Plan
from panas.privacy.release.kind import event_of, kind_named
from panas.tuning.space import DPSGDSettings

SERVER = "server"


def planned_spending(site: Site) -> PlannedSpending:
    """Epsilon by phase, over the settings that tuning may choose; BudgetExhausted if none is paid.

    Samples are taken to be as many as is public of the site, or as usual: their noised number is
    not known yet. It decides the noise, and moves the sum by less than a hundredth.
    """
    before = list(_before(site))
    plans = _plans(site, before)
    return spending_of(site, [[*before, *_of_rounds(site, plan)] for plan in plans])


def _before(site: Site) -> Iterator[Charge]:
    """What is charged before the plan of the rounds is made."""
    event = search_price(site).event
    subset = "search" if isinstance(event, Unprotected) and not _is_public(site) else "train"
    if event is not None:
        mechanism = "label-histogram" if _is_public(site) else "search on private samples"
        yield Charge(event, "search", mechanism, SERVER, None, subset)
    is_counted = isinstance(event, Gaussian)
    if not is_counted and rounds_of(site.config, site.id) and (count := counting_event(site)):
        yield Charge(count, "training", COUNT, SERVER, 1.0)


def _is_public(site: Site) -> bool:
    return site.config.privacy.mode.needs_public


def _plans(site: Site, before: list[Charge]) -> list[Plan | None]:
    fixed, coming = site.config.training.noise_multiplier, [c.event for c in before]
    paid: list[Event] = [e for e in coming if not isinstance(e, Unprotected)]
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
    for number in rounds_of(site.config, site.id):
        yield training_charge(plan, SERVER, number)
        if kind is None:
            continue
        event = event_of(kind_named(kind), plan.release_noise) if plan else Unprotected()
        yield Charge(event, "release", kind, SERVER, None, round=number)
