"""DPRBFT: representation-based federated training (DPFNAS, algorithm 2), made sound.

A round, in the paper's order:

1. receive the shared head
2. train bottom (and head) locally by DP-SGD
3. release representations
4. the server trains the shared head on all releases
5. broadcast it to all clients
6. each replaces its head

Preset `paper` is exactly this, with raw rows in step 3. In `sound` the head is held fixed during
step 2, so that feature spaces agree; step 3 is a DP release; and after step 6 a client keeps the
blend of its own and the shared head that its validation split prefers. Its own head is fitted to
its own noised release, plus the log of its noised class frequencies: both were paid for already.

Privacy: steps 2 and 3 are charged before they touch data. The validation split chooses round and
blend; that choice stays on the client and is not covered.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from dprbft.client import Client, State, check_finite, current_plan, plan_facts, weights
from dprbft.config import RunConfig
from dprbft.messages import Broadcast, Release
from dprbft.server import aggregate, blend, to_broadcast, to_head, with_prior
from panas.network import Bottom, Head
from panas.privacy.accounting import Unprotected
from panas.privacy.randomness import SystemNoise
from panas.privacy.release import release
from panas.seeds import stream
from panas.training import (
    Optimisation,
    accuracy,
    fit,
    fit_private,
    head_scores,
    represent,
)

BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the own head that a client tries."""


def client_round(
    client: Client, state: State, broadcast: Broadcast, round: int
) -> tuple[State, Release | None]:
    """Steps 1 to 3: train against the broadcast head, then release."""
    f = client.config.federation
    bottom, _ = state.networks(client)
    head = to_head(broadcast).to(client.device)
    trained = train_locally(client, state, bottom, head, round, train_head=f.train_head)
    if trained is None:
        return skip_round(state), None
    state, message = trained, None
    own = head
    if client.releases:
        kind = client.config.privacy.release
        noised = state.plan is not None and kind != "raw_rows"
        released = release(
            kind,
            lambda: (represent(bottom, client.data.train), client.data.train.y),
            classes=client.blueprint.classes,
            event=state.plan.release_event if state.plan and noised else Unprotected(),
            ledger=client.ledger,
            client=client.id,
            round=round,
            noise=SystemNoise(),
        )
        message = Release.of(released)
        if not f.train_head and kind != "raw_rows":
            own = own_head(client, state, message, broadcast)
    facts = dict(state.facts)
    if state.plan and state.plan.releases:
        facts["plan"] = plan_facts(replace(state.plan, releases=state.plan.releases - 1))
    facts["charges"] = len(client.ledger.account(client.id).protected())
    facts["local"] = accuracy(bottom, own, client.data.test)
    return replace(state, bottom=weights(bottom), head=weights(own), facts=facts), message


def skip_round(state: State) -> State:
    """The state after a round that the budget could not pay for again."""
    facts = state.facts | {"local": None}
    if state.plan:
        releases = max(0, state.plan.releases - 1)
        rest = replace(state.plan, rounds=state.plan.rounds - 1, releases=releases)
        facts["plan"] = plan_facts(rest)
    return replace(state, facts=facts)


def own_head(client: Client, state: State, message: Release, broadcast: Broadcast) -> Head:
    """A client's own head from its own release, at no further cost."""
    how = Optimisation(epochs=0)
    rng = stream(client.config.seed, "client", client.id, "own-head")
    fitted = to_head(aggregate([message], broadcast, round=message.round, how=how, rng=rng))
    histogram = state.facts["histogram"]
    return with_prior(fitted, torch.tensor(histogram)) if histogram else fitted


def train_locally(
    client: Client, state: State, bottom: Bottom, head: Head, round: int, *, train_head: bool
) -> State | None:
    """One round of local training in place, charged first; returns the state with its plan.

    None if the round died before and the budget cannot pay for it again: it is skipped.
    """
    setting = state.setting
    how = Optimisation(
        learning_rate=setting.learning_rate,
        momentum=client.config.training.momentum,
        batch_size=setting.batch_size,
        epochs=client.config.training.epochs,
    )
    facts = dict(state.facts)
    if not client.budget.private:
        client.ledger.charge(
            client.id,
            Unprotected(),
            phase="training",
            mechanism="sgd",
            recipient="server",
            sensitivity=None,
            round=round,
        )
        rng = stream(client.config.seed, "client", client.id, "round", round)
        fit(bottom, head, client.data.train, how=how, rng=rng, train_head=train_head)
    else:
        plan = current_plan(client, state)
        if plan is None:
            return None
        client.ledger.charge(
            client.id,
            plan.training_event,
            phase="training",
            mechanism="dp-sgd",
            recipient="server",
            sensitivity=plan.clip,
            round=round,
        )
        fit_private(
            bottom,
            head,
            client.data.train,
            plan=plan,
            how=how,
            noise=SystemNoise(),
            train_head=train_head,
        )
        facts["plan"] = plan_facts(replace(plan, rounds=plan.rounds - 1))
    check_finite(bottom, client.id)
    facts["round"] = round
    facts["charges"] = len(client.ledger.account(client.id).protected())
    return replace(state, facts=facts)


def server_round(
    config: RunConfig,
    releases: Sequence[Release],
    previous: Broadcast,
    round: int,
    rng: np.random.Generator,
) -> Broadcast:
    """Step 4: the new shared head; the old one if nobody released anything."""
    f = config.federation
    if not releases:
        return replace(previous, round=round)
    how = Optimisation(
        learning_rate=f.server_learning_rate,
        batch_size=f.server_batch_size,
        epochs=f.server_epochs,
    )
    return aggregate(releases, previous, round=round, how=how, rng=rng)


def client_finish(client: Client, state: State, broadcast: Broadcast, round: int) -> State:
    """Step 6: replace the head, and keep what validation prefers so far."""
    bottom, own = state.networks(client)
    shared = to_head(broadcast)
    if client.config.federation.head == "local":
        choices = [(1.0, own.cpu())]
    elif client.config.federation.head == "shared":
        choices = [(0.0, shared)]
    else:
        choices = [(a, blend(own, shared, a)) for a in BLENDS]
    facts = dict(state.facts)
    facts["global"] = accuracy(bottom, shared.to(client.device), client.data.test)
    state = replace(state, head=weights(shared), facts=facts)
    return keep_best(client, state, bottom, choices, round)


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


def first_broadcast(head: Head) -> Broadcast:
    """The head before round 1."""
    return to_broadcast(head, 0)
