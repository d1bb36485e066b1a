"""A site's plan for the rounds to come, from what its ledger says is left of its budget."""

from collections.abc import Sequence
from dataclasses import replace

from dprbft.methods.rounds.state import State
from dprbft.site.counting import COUNT, count_units, counting_event
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, Unprotected
from panas.privacy.calibration import (
    calibrate,
    epsilon_of,
    release_multiplier,
    rescale_noise,
    tighten_release_noise,
)
from panas.privacy.ledger.charge import Charge, Entry, covers
from panas.privacy.plan import Plan
from panas.runtime.errors import BudgetExhausted
from panas.tuning.space import DPSGDSettings


def current_plan(site: Site, state: State) -> Plan | None:
    """The plan of a site's remaining rounds, from what its budget has left.

    A new plan before the first round, later that of the round before. If the ledger holds charges
    that no finished round accounts for, a process died: what it charged counts as spent, and all
    remaining noise is raised. A training that it had begun is made again for the same charge.
    Noise that the user fixed stays as it is, and the ledger stops the run when it is spent.

    None if what died has spent so much that its round cannot be repeated. BudgetExhausted if the
    budget cannot pay for the remaining rounds with any noise.
    """
    fixed = site.config.training.noise_multiplier
    if fixed is not None:
        return state.plan or fixed_plan(site, state.settings, fixed)
    plan, accounted = state.plan, state.charges
    charged = [e for e in site.account.entries if not isinstance(e.event, Unprotected)]
    if plan is None:
        if (count := counting_event(site)) is not None:
            calibrated(site, state.settings, [count])  # refused before samples are counted
        count_units(site)
        plan = calibrated(site, state.settings, [])
        accounted = searched(site)
    if len(charged) - has_begun(site, plan, state.round + 1) <= accounted:
        return plan
    try:
        for budget, spent in site.bounds():
            seen, done = _apart(site, spent)
            plan = rescale_noise(plan, budget, done, seen)
    except BudgetExhausted:
        return None
    return plan


def training_charge(plan: Plan | None, recipient: str, round: int) -> Charge:
    """What a round of training is charged as.

    Args:
        plan: of DP-SGD; None: the charge is unprotected.
        recipient: who sees what is trained, as the ledger names it.
        round: from 1.
    """
    return Charge(
        event=plan.training_event if plan else Unprotected(),
        phase="training",
        mechanism="dp-sgd" if plan else "sgd",
        recipient=recipient,
        sensitivity=plan.clip if plan else None,
        round=round,
    )


def has_begun(site: Site, plan: Plan, round: int) -> bool:
    """Whether a process died within the round's training, whose charge pays for it again.

    Args:
        site: its ledger.
        plan: under which the round is trained.
        round: from 1.
    """
    entry = next(iter(site.account.entries[-1:]), None)
    if entry is None or not entry.resumable:
        return False
    wanted = training_charge(plan, entry.charge.recipient, round)
    return covers(entry.charge, replace(wanted, run=entry.charge.run))


def searched(site: Site) -> int:
    """How many protected charges the run has made before its plan was chosen."""
    entries = site.account.entries
    return sum(_before_plans(e) and not isinstance(e.event, Unprotected) for e in entries)


def _before_plans(entry: Entry) -> bool:
    """Whether a charge was made before the plan was chosen: for a search, or to count samples."""
    return entry.charge.phase == "search" or entry.charge.mechanism == COUNT


def calibrated(site: Site, settings: DPSGDSettings, coming: list[Event]) -> Plan:
    """The plan with the tuned noise, or more, once events that are `coming` are charged, too; what
    that leaves sharpens releases.

    Args:
        site: its budget, ledger and schedule.
        settings: as tuned, or of the configuration.
        coming: events that are still to be charged before.
    """
    # Rounds that died before the first one was whole are for `rescale_noise` to count.
    (budget, before), *life = [
        (b, [*_apart(site, spent)[0], *coming]) for b, spent in site.bounds()
    ]
    plan = calibrate(
        budget,
        replace(site.schedule(), spent=before),
        batch_size=settings.batch_size,
        clip=settings.clip,
        epochs=settings.epochs,
    )
    noise = max(plan.noise_multiplier, settings.noise_multiplier)
    plan = tighten_release_noise(replace(plan, noise_multiplier=noise), budget, before)
    for budget, before in life:
        plan = rescale_noise(plan, budget, (), before)
    return plan


def _apart(site: Site, spent: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """What was spent before the plan was chosen, which may have chosen it, and what under it."""
    before, done = list(spent), list[Event]()
    for entry in site.account.entries:
        if not _before_plans(entry) and entry.event in before:
            before.remove(entry.event)
            done.append(entry.event)
    return before, done


def fixed_plan(site: Site, settings: DPSGDSettings, noise_multiplier: float) -> Plan:
    """The plan with noise that the user fixed.

    Args:
        site: its budget and schedule.
        settings: batch size, clip and epochs.
        noise_multiplier: of the training, above 0.
    """
    s = site.schedule()
    m = release_multiplier(site.budget, s.releases, s.release_share) if s.releases else None
    return Plan(
        samples=s.samples,
        batch_size=settings.batch_size,
        clip=settings.clip,
        noise_multiplier=noise_multiplier,
        epochs=settings.epochs or s.epochs,
        rounds=s.rounds,
        releases=s.releases,
        release_noise=m,
    )


def refusal(site: Site, state: State, round: int) -> str | None:
    """Why a site cannot pay for a round and all that it plans after it; None if it can.

    Args:
        site: its budget and ledger.
        state: its plan, as of the round before.
        round: from 1.
    """
    if not site.budget.private:
        return None
    try:
        plan = current_plan(site, state)
    except BudgetExhausted as e:
        return str(e)
    if plan is None or site.config.training.noise_multiplier is None:
        return None
    # Noise that the user fixed is planned for no budget; what is asked is whether this round fits.
    coming: list[Event] = [] if has_begun(site, plan, round) else [plan.training_event]
    coming += [plan.release_event] if plan.releases else []
    for budget, spent in site.bounds():
        total = epsilon_of([*spent, *coming], budget)
        if total > budget.epsilon:
            return (
                f"expected to stay within epsilon {budget.epsilon:g}, got {total:.3f} with round "
                f"{round}; stopped before it, the last valid model is kept; raise epsilon or "
                "plan fewer rounds"
            )
    return None
