"""A client's plan for the rounds to come, from what its ledger says is left of its budget."""

from dataclasses import replace

from dprbft.site.site import Client
from dprbft.site.state import State
from panas.privacy.accounting.events import Event, Unprotected
from panas.privacy.calibration import (
    calibrate,
    release_multiplier,
    rescale_noise,
    tighten_release_noise,
)
from panas.privacy.ledger.charge import Entry
from panas.privacy.plan import Plan
from panas.runtime.errors import BudgetExhausted


def current_plan(client: Client, state: State) -> Plan | None:
    """The plan of a client's remaining rounds, from what its budget has left.

    Before its first round that is the calibrated plan with the tuned noise, or more where the
    budget needs more, and what that leaves goes to sharper releases; a noise multiplier that the
    user fixed is taken as it is, and the ledger stops the run when it is spent. Later it is the
    plan of the round before, unless the ledger holds charges that no finished round accounts for:
    then a process died, what it charged counts as spent, and all remaining noise is raised.

    Returns:
        The plan; None if what died has spent so much that its round cannot be repeated.

    Raises:
        BudgetExhausted: if the budget cannot pay for the remaining rounds with any noise.

    """
    schedule, setting = client.schedule(), state.settings
    fixed = client.config.training.noise_multiplier
    plan = state.plan
    accounted = state.charges
    if plan is None and fixed is None:
        before = searched(client)
        plan = calibrate(
            client.budget,
            replace(schedule, spent=before),
            batch_size=setting.batch_size,
            clip=setting.clip,
            epochs=setting.epochs,
        )
        noise = max(plan.noise_multiplier, setting.noise_multiplier)
        plan = tighten_release_noise(replace(plan, noise_multiplier=noise), client.budget, before)
        accounted = sum(e.charge.phase == "search" for e in _protected(client))
    if plan is None:
        m = None
        if schedule.releases:
            m = release_multiplier(client.budget, schedule.releases, schedule.release_share)
        return Plan(
            samples=schedule.samples,
            batch_size=setting.batch_size,
            clip=setting.clip,
            noise_multiplier=fixed or 0.0,
            epochs=setting.epochs or schedule.epochs,
            rounds=schedule.rounds,
            releases=schedule.releases,
            release_noise=m,
        )
    if fixed is not None or len(_protected(client)) <= accounted:
        return plan
    try:
        return rescale_noise(plan, client.budget, client.charged())
    except BudgetExhausted:
        return None


def _protected(client: Client) -> list[Entry]:
    entries = client.ledger.account(client.id).entries
    return [e for e in entries if not isinstance(e.event, Unprotected)]


def searched(client: Client) -> list[Event]:
    """What the search has charged to the client's training samples."""
    entries = client.ledger.account(client.id).entries_on("train")
    return [
        e.event
        for e in entries
        if e.charge.phase == "search" and not isinstance(e.event, Unprotected)
    ]
