"""DPRBFT: representation-based federated training (DPFNAS, algorithm 2), made sound.

A round, in the paper's order:

1. receive the shared head
2. train bottom (and head) locally by DP-SGD
3. release representations
4. the server trains the shared head on all releases
5. broadcast it to all sites
6. each replaces its head

Preset `paper` is exactly this, with raw rows in step 3. In `sound` the head is held fixed during
step 2, so that feature spaces agree; step 3 is a DP release; and after step 6 a site keeps the
blend of its own and the shared head that its validation split prefers. Its own head is fitted to
its own noised release, plus the log of its noised class frequencies: both were paid for already.

Step 3 releases `privacy.release` (`panas.privacy.release.kind`). With `none` nothing leaves and the
first head stays: no bytes, no epsilon, the baseline that every shared head must beat.

Privacy: steps 2 and 3 are charged before they touch data. The validation split chooses round and
blend; that choice stays on the site and is not covered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dprbft.messages import Broadcast, Release
from dprbft.methods.rounds.heads import aggregate, blend, to_head, with_prior
from dprbft.methods.rounds.state import State
from dprbft.methods.rounds.training import (
    accounted,
    after_release,
    keep_best,
    skip_round,
    train_round,
)
from dprbft.methods.side import Side
from dprbft.site.site import Site
from panas.architecture.head import Head
from panas.architecture.network import Bottom, weights_of
from panas.privacy.accounting.events import Unprotected
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import ReleaseRequest, release
from panas.privacy.release.kind import event_of, kind_named
from panas.runtime.seeds import stream
from panas.training.evaluate import accuracy, represent
from panas.training.sgd import OptimizerConfig

COLUMNS: Mapping[str, Mapping[str, Any]] = {"paper": {"preset": "paper"}, "sound": {}}
"""Settings of a run for what was published, and for what is covered by the budget."""

SMOKE: Mapping[str, Any] = {
    "search": {
        "population": 4,
        "generations": 0,
        "epochs": 3,
        "min_blocks": 4,
        "max_blocks": 5,
        "widths": [32],
    },
    "tuning": {"trials": 0},
    "training": {"epochs": 12, "learning_rate": 1.0, "batch_size": 128},
    "federation": {"rounds": 2},
}
"""Settings that take seconds on small images."""

CPU: Mapping[str, Any] = {
    "search": {"population": 4, "generations": 2, "epochs": 4, "max_blocks": 5},
    "tuning": {"trials": 0},
    "training": {"epochs": 5},
    "federation": {"rounds": 5},
}
"""Settings that take minutes with ten sites on one core."""

BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the own head that a site tries."""


def site_round(
    site: Site, state: State, broadcast: Broadcast, round: int
) -> tuple[State, Release | None]:
    """Steps 1 to 3: train against the broadcast head, then release.

    Args:
        site: its training samples, ledger and settings.
        state: what the site kept of the round before.
        broadcast: the shared head.
        round: from 1.
    """
    bottom, _ = state.networks(site)
    head = to_head(broadcast).to(site.device)
    trained = train_round(site, state, bottom, head, round)
    if trained is None:
        return skip_round(state), None
    state, kind = trained, site.config.sent
    message = send(site, state, bottom, round, kind) if kind else None
    rows = message is not None and isinstance(message.estimate(site.spec.classes), Rows)
    own = head if site.spec.head_moves or rows else own_head(site, state, message, broadcast)
    state = replace(
        state,
        bottom=weights_of(bottom),
        head=weights_of(own),
        plan=after_release(state.plan),
        charges=accounted(site),
        scores=replace(state.scores, local=accuracy(bottom, own, site.data.test)),
    )
    return state, message


def send(site: Site, state: State, bottom: Bottom, round: int, kind: str) -> Release:
    """Step 3: charge for the release of this round, read the samples, make the message.

    Args:
        site: its training samples and its ledger.
        state: its plan, and the rounds that it began.
        bottom: as it was trained in this round.
        round: from 1.
        kind: name of a release in `panas/privacy/release/kinds/`.
    """
    what, plan = kind_named(kind), state.plan
    samples = site.public if what.READS == "public" else site.data.train
    request = ReleaseRequest(
        kind=kind,
        event=event_of(what, plan.release_noise) if plan else Unprotected(),
        site=site.id,
        round=round,
        classes=site.spec.classes,
    )
    released = release(
        request,
        lambda: Rows(represent(bottom, samples), samples.y, samples.groups),
        ledger=site.ledger,
        noise=SystemNoise(),
    )
    return Release.of(released).compressed(site.config.federation.compression)


def own_head(site: Site, state: State, message: Release | None, broadcast: Broadcast) -> Head:
    """A site's own head from its own release, at no further cost; the shared one without.

    Args:
        site: for its device and settings.
        state: with the heads of the rounds before.
        message: the site's own release; None where it made none.
        broadcast: what the server answered.
    """
    own = broadcast
    if message is not None:
        optimizer = OptimizerConfig(epochs=0)
        rng = stream(site.config.seed, "client", site.id, "own-head")
        own = aggregate([message], broadcast, round=message.round, optimizer=optimizer, rng=rng)
    fitted = to_head(own)
    return with_prior(fitted, torch.tensor(state.histogram)) if state.histogram else fitted


def server_round(
    side: Side,
    releases: Iterable[Release],
    previous: Broadcast,
    round: int,
    rng: np.random.Generator,
) -> Broadcast:
    """Step 4: the new shared head; the old one if nobody released anything.

    Args:
        side: for the server's optimiser.
        releases: of this round.
        previous: the shared head before it.
        round: from 1.
        rng: orders the rows that the head trains on.
    """
    optimizer = side.config.federation.server
    return aggregate(releases, previous, round=round, optimizer=optimizer, rng=rng)


def site_finish(site: Site, state: State, broadcast: Broadcast, round: int) -> State:
    """Step 6: replace the head, and keep what validation prefers so far.

    Args:
        site: its validation and test samples, and settings.
        state: after `site_round`.
        broadcast: the new shared head.
        round: from 1.
    """
    bottom, own = state.networks(site)
    shared = to_head(broadcast)
    shares = {"local": BLENDS[-1:], "shared": BLENDS[:1], "blend": BLENDS}
    choices = [(a, blend(own, shared, a)) for a in shares[site.config.federation.head]]
    right = accuracy(bottom, shared.to(site.device), site.data.test)
    state = replace(state, head=weights_of(shared), scores=replace(state.scores, shared=right))
    return keep_best(site, state, bottom, choices, round)
