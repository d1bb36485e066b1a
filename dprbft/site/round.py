"""What every method's client does in a round: train under its plan, then keep what serves it best.

Privacy: training is charged before it touches data. The validation split chooses what is kept;
that choice stays on the client and is not covered.
"""

from collections.abc import Sequence
from dataclasses import replace

from dprbft.site.plan import current_plan, plan_facts
from dprbft.site.site import Client, State, check_finite, weights
from panas.architecture.network import Bottom, Head
from panas.privacy.accounting.events import REPLACE, Unprotected
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig, accuracy, fit, fit_private, head_scores, represent


def train_locally(
    client: Client, state: State, bottom: Bottom, head: Head, round: int
) -> State | None:
    """One round of local training in place, charged first; returns the state with its plan.

    The head moves if `client.train_head` says so.

    None if the round died before and the budget cannot pay for it again: it is skipped.
    """
    setting = state.setting
    optimizer = OptimizerConfig(
        learning_rate=setting.learning_rate,
        momentum=client.config.training.momentum,
        batch_size=setting.batch_size,
        epochs=setting.epochs or client.config.training.epochs,
    )
    facts = dict(state.facts)
    if not client.budget.private:
        rng = stream(client.config.seed, "client", client.id, "round", round)
        with client.ledger.charge(
            client.id,
            Unprotected(),
            phase="training",
            mechanism="sgd",
            recipient="server",
            sensitivity=None,
            round=round,
        ):
            fit(
                bottom,
                head,
                client.data.train,
                optimizer=optimizer,
                rng=rng,
                train_head=client.train_head,
            )
    else:
        plan = current_plan(client, state)
        if plan is None:
            return None
        with client.ledger.charge(
            client.id,
            plan.training_event,
            phase="training",
            mechanism="dp-sgd",
            recipient="server",
            sensitivity=plan.clip * (2 if plan.relation == REPLACE else 1),
            round=round,
        ):
            fit_private(
                bottom,
                head,
                client.data.train,
                plan=plan,
                optimizer=optimizer,
                noise=SystemNoise(),
                train_head=client.train_head,
            )
        facts["plan"] = plan_facts(replace(plan, rounds=plan.rounds - 1))
    check_finite(bottom, client.id)
    facts["round"] = round
    facts["charges"] = len(client.ledger.account(client.id).protected())
    return replace(state, facts=facts)


def skip_round(state: State) -> State:
    """The state after a round that the budget could not pay for again."""
    facts = state.facts | {"local": None}
    if state.plan:
        facts["plan"] = plan_facts(after_release(replace(state.plan, rounds=state.plan.rounds - 1)))
    return replace(state, facts=facts)


def after_release(plan: Plan) -> Plan:
    """The plan once a round's release is made, or skipped.

    Rows leave in disjoint parts: each record's one release stays planned while there are rounds.
    """
    if plan.flip is not None:
        return replace(plan, releases=min(plan.releases, plan.rounds))
    return replace(plan, releases=max(0, plan.releases - 1))


def keep_best(
    client: Client,
    state: State,
    bottom: Bottom,
    choices: Sequence[tuple[float, Head]],
    round: int,
) -> State:
    """Keep the choice with the best validation accuracy, if no earlier round did better.

    Ties go to the lower validation cross-entropy: small splits tie often. Test accuracies are
    recorded for the report; nothing is chosen by them, except "best", which says so.
    """
    z = represent(bottom, client.data.validation)
    scores = [head_scores(z, client.data.validation, h.to(client.device)) for _, h in choices]
    top = max(range(len(choices)), key=lambda k: (scores[k][0], -scores[k][1]))
    (share, head), (right, loss) = choices[top], scores[top]
    test = accuracy(bottom, head, client.data.test)
    facts = dict(state.facts)
    facts["best"] = max(test, facts.get("best", 0.0))
    facts |= {"validation": right, "blend": share}
    kept = facts.get("kept")
    if kept and (right, -loss) < (kept["validation"], -kept["loss"]):
        return replace(state, facts=facts)
    facts["kept"] = {
        "round": round,
        "blend": share,
        "validation": right,
        "loss": loss,
        "accuracy": test,
    }
    return replace(state, kept_bottom=weights(bottom), kept_head=weights(head), facts=facts)
