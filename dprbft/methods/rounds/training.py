"""What every method's site does in a round: train under its plan, then keep what serves it best.

Privacy: training is charged before it touches data. The validation split chooses what is kept;
that choice stays on the site and is not covered.
"""

from collections.abc import Sequence
from dataclasses import replace

from dprbft.methods.rounds.plan import current_plan, training_charge
from dprbft.methods.rounds.state import Kept, State
from dprbft.site.site import Site
from dprbft.site.training import RoundOfTraining, train_charged
from panas.architecture.head import Head
from panas.architecture.network import Bottom, weights_of
from panas.privacy.plan import Plan
from panas.runtime.seeds import stream
from panas.training.evaluate import accuracy, head_scores, represent
from panas.training.sgd import OptimizerConfig, fit, set_trainable


def train_round(site: Site, state: State, bottom: Bottom, head: Head, round: int) -> State | None:
    """One round of local training in place, charged first; returns the state with its plan.

    None if the round died before and the budget cannot pay for it again: it is skipped. Where
    training diverges to NaN or infinity, the weights stay as they were.

    Args:
        site: its training samples, its ledger and the shared settings.
        state: its plan, and the rounds that it began.
        bottom: trains.
        head: trains if the method lets it.
        round: from 1.
    """
    config, train = _optimizer(site, state), site.data.train
    plan = current_plan(site, state) if site.budget.private else None
    if plan is None and site.budget.private:
        return None
    rng = stream(site.config.seed, "client", site.id, "round", round)
    train_charged(
        site,
        set_trainable(bottom, head, config.train_head)[0],
        train,
        RoundOfTraining(
            charge=training_charge(plan, "server", round),
            plan=plan,
            config=config,
            plain=lambda: fit(bottom, head, train, config=config, rng=rng),
        ),
    )
    plan = replace(plan, rounds=plan.rounds - 1) if plan else state.plan
    return replace(state, plan=plan, round=round, charges=accounted(site))


def _optimizer(site: Site, state: State) -> OptimizerConfig:
    optimizer, settings = site.config.training.optimizer, state.settings
    return replace(
        optimizer,
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        epochs=settings.epochs or optimizer.epochs,
        train_head=site.spec.head_moves,
    )


def accounted(site: Site) -> int:
    """How many protected charges the run has made."""
    return len(site.account.protected())


def skip_round(state: State) -> State:
    """The state after a round that the budget could not pay for again."""
    plan = replace(state.plan, rounds=state.plan.rounds - 1) if state.plan else None
    return replace(state, plan=after_release(plan), scores=replace(state.scores, local=None))


def after_release(plan: Plan | None) -> Plan | None:
    """The plan once a round's release is made, or skipped."""
    return replace(plan, releases=max(0, plan.releases - 1)) if plan else None


def keep_best(
    site: Site, state: State, bottom: Bottom, choices: Sequence[tuple[float, Head]], round: int
) -> State:
    """Keep the choice with the best validation accuracy, if no earlier round did better.

    Ties go to the lower validation cross-entropy: small splits tie often. Test accuracies are for
    the report; nothing is chosen by them, except "best".

    Args:
        site: its validation and test samples.
        state: with the best of the rounds before.
        bottom: as it was trained in this round.
        choices: share of the own head, and the head, of each candidate.
        round: from 1.
    """
    z = represent(bottom, site.data.validation)
    scores = [head_scores(z, site.data.validation, h.to(site.device)) for _, h in choices]
    top = max(range(len(choices)), key=lambda k: (scores[k][0], -scores[k][1]))
    (share, head), (right, loss) = choices[top], scores[top]
    test = accuracy(bottom, head, site.data.test)
    best = max(test, state.scores.best)
    state = replace(state, scores=replace(state.scores, validation=right, blend=share, best=best))
    if (right, -loss) < (state.kept.validation, -state.kept.loss):
        return state
    kept = Kept(round=round, blend=share, validation=right, loss=loss, accuracy=test)
    return replace(state, kept_bottom=weights_of(bottom), kept_head=weights_of(head), kept=kept)
