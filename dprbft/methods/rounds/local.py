"""Local training: each site alone, the baseline that joining a federation must beat.

Bottom and head train together by DP-SGD on the site's whole budget; nothing is released, so
nothing of it pays for releases. Privacy: covers the weights, should they ever be shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dprbft.messages import Broadcast, Release
from dprbft.methods.rounds import dprbft
from dprbft.methods.rounds.state import State
from dprbft.methods.rounds.training import keep_best, skip_round, train_round
from dprbft.methods.side import Side
from dprbft.site.site import Site
from panas.architecture.network import weights_of
from panas.training.evaluate import accuracy

COLUMNS: Mapping[str, Mapping[str, Any]] = {"sound": {}}
"""Nothing leaves, so that there is nothing to publish otherwise."""

SMOKE: Mapping[str, Any] = {
    **dprbft.SMOKE,
    "training": {"epochs": 15, "learning_rate": 1.0, "batch_size": 128},
    "federation": {"rounds": 1},
}
"""Settings that take seconds on small images."""

CPU: Mapping[str, Any] = dprbft.CPU
"""Settings that take minutes with ten sites on one core."""


def site_round(
    site: Site, state: State, broadcast: Broadcast, round: int
) -> tuple[State, Release | None]:
    """Train bottom and head; release nothing.

    Args:
        site: its training samples, ledger and settings.
        state: what the site kept of the round before.
        broadcast: unused.
        round: from 1.
    """
    bottom, head = state.networks(site)
    trained = train_round(site, state, bottom, head, round)
    if trained is None:
        return skip_round(state), None
    scores = replace(trained.scores, local=accuracy(bottom, head, site.data.test))
    return replace(trained, bottom=weights_of(bottom), head=weights_of(head), scores=scores), None


def server_round(
    side: Side,
    releases: Iterable[Release],
    previous: Broadcast,
    round: int,
    rng: np.random.Generator,
) -> Broadcast:
    """There is no server; the broadcast stays as it was and is sent to nobody.

    Args:
        side: unused.
        releases: none.
        previous: returned, under the new number.
        round: from 1.
        rng: unused.
    """
    return replace(previous, round=round)


def site_finish(site: Site, state: State, broadcast: Broadcast, round: int) -> State:
    """Keep the own head; there is no other.

    Args:
        site: its validation samples.
        state: after `site_round`.
        broadcast: unused.
        round: from 1.
    """
    bottom, head = state.networks(site)
    state = replace(state, scores=replace(state.scores, shared=state.scores.local))
    return keep_best(site, state, bottom, [(1.0, head)], round)
