"""A site's residual over the shared head, by DP-SGD; charged before it touches data.

And what all of joining will have cost a site, known before it begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from dprbft.methods.joined.budget import (
    histogram_event,
    planned_release,
    recipe_of,
    residual_plan,
    settings_of,
    share_of,
)
from dprbft.methods.joined.state import ROUND, JoinedState
from dprbft.methods.rounds.plan import training_charge
from dprbft.site.results.records import PLANNED_NOISE, TuningRecord
from dprbft.site.site import Site
from panas.privacy.accounting.events import Event, SampledGaussian, Unprotected
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream
from panas.training.linear.averaging import log_prior
from panas.training.linear.residual import Chosen, cross_validated, fit_residual, zero_residual
from panas.training.linear.ridge import Weights, fit_public_head, logits
from panas.training.linear.rules import RELEASE_SHARE, Recipe
from panas.tuning.space import DPSGDSettings

RECIPIENT = "whoever sees the network, which learns from it"
"""Of a residual's training, in the ledger."""


def with_residual(site: Site, state: JoinedState) -> JoinedState:
    """The state with a residual, or with the reason why there is none."""
    if site.config.stays:
        return _staying(site, state)
    record = TuningRecord.read(site.home)
    if record.nothing:
        return replace(state.with_residual(None, None), why="tuned")
    try:
        private = site.budget.private
        plan = _plan(site, record.settings)
        charge = training_charge(plan if private else None, RECIPIENT, ROUND)
        with site.ledger.charge(charge, resumes=True):
            rows = site.rows(site.data.train)
            head = head_of(site, state)
            prior = state.log_prior.expand(len(rows.y), -1)
            offset = prior if head is None else logits(head, rows.z) + prior
            residual = trained(rows, offset, plan, record.settings.learning_rate)
    except BudgetExhausted:  # a process that died has spent it
        return replace(state.with_residual(None, None), why="budget")
    return state.with_residual(residual, plan.noise_multiplier if private else None)


def _plan(site: Site, settings: DPSGDSettings) -> Plan:
    """The residual's plan; that of a training in which a process died, if it can be made again."""
    for entry in site.account.entries:
        died = entry.resumable and entry.charge.recipient == RECIPIENT
        if died and isinstance(entry.event, SampledGaussian):
            plan = residual_plan(site, settings, paid=entry.event)
            if plan.training_event == entry.event:
                return plan
    return residual_plan(site, settings)


def head_of(site: Site, state: JoinedState) -> Weights | None:
    """The head that the site's residual is over; None for the prior alone."""
    if state.joins:
        return state.check_joined()
    return public_heads(site).get("public") if state.over else None


def _staying(site: Site, state: JoinedState) -> JoinedState:
    """The residual without noise, over the shared head or none, with the exact prior.

    Privacy: nothing is charged, since nothing of it leaves.
    """
    chosen, exact = without_noise(site, {"shared": state.check_joined()})
    result = state.with_residual(chosen.residual, None)
    return replace(result, histogram=exact, over=chosen.over or None)


def without_noise(site: Site, heads: Mapping[str, Weights]) -> tuple[Chosen, tuple[float, ...]]:
    """The best residual over one of some heads, or over the prior alone (""), and exact counts."""
    rows = site.rows(site.data.train)
    exact = site.data.train.histogram().float()
    prior = log_prior(exact)
    offsets = {name: logits(head, rows.z) + prior for name, head in heads.items()}
    offsets[""] = prior.expand(len(rows.y), -1)
    rng = stream(site.config.seed, "client", site.id, "residual")
    return cross_validated(rows.z, rows.y, offsets, rng), tuple(exact.tolist())


def default_settings(site: Site) -> DPSGDSettings:
    """The settings by rule; the noise is left to the plan."""
    # A site that came late builds on the shared head, whatever the rule says of its own release.
    share = (share_of(site) or RELEASE_SHARE) if JoinedState.read(site).joins else 0.0
    return settings_by(site, recipe_of(site, share))


def settings_by(site: Site, recipe: Recipe) -> DPSGDSettings:
    """A recipe's settings; the noise is left to the plan."""
    return settings_of(recipe, site.config.training.noise_multiplier or PLANNED_NOISE)


def public_heads(site: Site) -> dict[str, Weights]:
    """The head of the labelled public samples, as "public"; none without any."""
    public = site.public
    if not len(public):
        return {}
    rows = Rows(site.phi.of(public), public.y)
    return {"public": fit_public_head(rows, public.classes)}


def trained(
    rows: Rows, offset: Float[Tensor, "n classes"], plan: Plan, learning_rate: float
) -> nn.Linear:
    """A residual over some offset by DP-SGD; the caller has charged it, or discards it.

    Args:
        rows: representations (n, width), classes and groups.
        offset: logits that the residual is added to, one row for each of `rows`.
        plan: batches, epochs, clip and sigma.
        learning_rate: step size of SGD, above 0.
    """
    residual = zero_residual(rows.z.shape[1], offset.shape[1])
    noise = SystemNoise()
    fit_residual(residual, rows, offset, plan=plan, learning_rate=learning_rate, noise=noise)
    return residual.requires_grad_(False)


@dataclass(frozen=True)
class JoiningPrice:
    """Epsilon of what a site spends, each by itself, and of all together, which is less."""

    histogram: float
    release: float
    residual: float  # of its DP-SGD, by the settings of the rule
    together: float


def joining_price(site: Site) -> JoiningPrice:
    """What a site has spent, or will; BudgetExhausted if it cannot pay. Charges nothing."""
    account, parts = site.account, joining_events(site)
    together = [event for part in parts for event in part]
    return JoiningPrice(*(account.price(events) for events in (*parts, together)))


def joining_events(site: Site) -> tuple[list[Event], list[Event], list[Event]]:
    """What histogram, release and residual were charged as, or will be; as `joining_price`."""
    account = site.account
    if not site.budget.private:
        return [Unprotected()], [Unprotected()], [Unprotected()]
    histogram, release = account.events("search"), account.events("release")
    residual, coming = account.events("training"), list[Event]()
    if not histogram:
        histogram = histogram_event(site.budget, site.histogram_share)
        coming += histogram
    if not release and not residual:
        release = [event] if (event := planned_release(site)) else []
        coming += release
    if not residual and not site.config.stays:
        settings = settings_by(site, recipe_of(site, share_of(site) if release else 0.0))
        residual = [residual_plan(site, settings, coming).training_event]
    return histogram, release, residual
