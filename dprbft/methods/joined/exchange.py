"""Joined: one release of a common representation, one shared head, and a student of all of it.

Every site computes the same fixed map phi of a sample (`panas.features`), which no private sample
has shaped, so that what sites release can be added up. In this order:

1. a site releases, once: its noised label histogram (`privacy.histogram_share` of epsilon) and the
   noised second moments of phi (`privacy.release_share`); in a secure sum the label counts are part
   of the moments, and the histogram stays with the site; where public facts say that this would
   not pay (`panas.training.linear.rules`) it sends nothing, and has more for itself
2. the server adds them up, the noisier ones with less weight, and exact moments of labelled public
   samples; it balances the classes as far as noise lets it know their counts, and broadcasts one
   ridge head
3. each site searches the architecture of its own network: the more it agrees with the shared head
   on public samples, the fitter; no label is needed
4. each site adapts: a linear residual on phi by DP-SGD, with what is left of epsilon, over the
   shared head and the log of its own label frequencies
5. its network learns from that, on public samples (`dprbft.methods.joined.student`)
6. what it predicts with is the average of all of these, weighed by its validation split

Privacy: steps 1 and 4 are charged before they touch data. The weights of the average and its
label frequencies are chosen on the validation split and stay on the site; that is not covered.

Source: `docs/results/joining.md` has what was measured.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dprbft.messages import Broadcast, NoisedHistogram, Release, digest_of
from dprbft.methods.joined import secure_sum
from dprbft.methods.joined.budget import may_release, planned_release, share_of
from dprbft.methods.joined.state import KIND, ROUND, SHARED, JoinedState, kept_release, unsent_event
from dprbft.methods.once import sent_before
from dprbft.methods.side import Side
from dprbft.paths import histogram_file, masked_file, sent_file, state_file
from dprbft.site.search import paid_histogram
from dprbft.site.site import Site
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.gate import Released, ReleaseRequest, release
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive, read_json, write_bytes
from panas.search_modes.mode import WHOEVER
from panas.training.linear.ridge import exact_moments, pooled, shared_head
from panas.training.linear.second_moments import public_moments

COLUMNS: Mapping[str, Mapping[str, Any]] = {"sound": {}}
"""It is this project's own; nothing else was published."""

SMOKE: Mapping[str, Any] = {
    "search": {"population": 2, "generations": 0, "epochs": 2, "max_blocks": 3, "widths": [16]},
    "tuning": {"trials": 0},
    "training": {"student_steps": 200},
}
"""Settings that take seconds on small images."""

CPU: Mapping[str, Any] = {
    "search": {"population": 4, "generations": 2, "epochs": 4, "max_blocks": 5},
    "tuning": {"trials": 4},
}
"""Settings that take minutes with ten sites on one core."""


def server_round(
    side: Side,
    releases: Iterable[Release],
    previous: Broadcast,
    round: int,
    rng: np.random.Generator,
) -> Broadcast:
    """Step 2: the ridge head of all releases and the labelled public samples.

    Args:
        side: public samples and the common map.
        releases: second moments of sites, read one at a time.
        previous: for the head's shape (classes, d).
        round: from 1.
        rng: unused.
    """
    classes, width = previous.weight.shape
    total = pooled((_moments(message, classes) for message in releases), classes, width)
    return sum_round(side, total, round)


def sum_round(side: Side, total: Moments, round: int) -> Broadcast:
    """The same of the sum of all sites' moments and label counts.

    Args:
        side: public samples and the common map.
        total: the sum.
        round: from 1.
    """
    classes, phi = len(total.B), side.feature_map
    moments = seen = None
    if phi is not None:
        z = phi.of(side.public)
        if len(z):
            moments = exact_moments(z, side.public.y, classes)
        if side.unlabelled is not None:
            z = torch.cat([z, phi.of(side.unlabelled)])
        seen = public_moments(z)
    head = shared_head(total, moments, len(side.public), seen)
    return Broadcast(round, head.float(), torch.zeros(classes))


def _moments(message: Release, classes: int) -> Moments:
    result = message.estimate(classes)
    if not isinstance(result, Moments):
        raise BadInput(f"expected releases of {KIND}, got {message.kind}; start a new run")
    if not message.histogram:
        return result
    noise = message.histogram.noise or 0.0
    return replace(result, counts=message.histogram.counts, counts_variance=noise**2)


def join(site: Site, content: bytes) -> bytes:
    """Step 1: charge and release, once; the same bytes again if that was done."""
    with exclusive(state_file(site.home)):  # one at a time: one message leaves for a charge
        return _joined(site, content)


def _joined(site: Site, content: bytes) -> bytes:
    summed = site.config.secure_sum
    if not summed:  # kept as what the site has answered
        before = Broadcast.from_bytes(content, width=site.width, classes=site.spec.classes)
        if before.round != ROUND - 1:
            raise BadInput(
                f"expected the broadcast before round {ROUND}, got that of {before.round}"
            )
    state, sent_at = JoinedState.read(site), masked_file if summed else sent_file
    answered = state.round, state.against
    if (sent := sent_before(site, answered, ROUND, content, sent_at)) is not None:
        return sent
    # Before any charge: nothing is charged for rows that cannot be computed.
    rows = site.rows(site.data.train)
    # In a secure sum counts leave with the moments; where nothing leaves, the histogram stays, too.
    seen_by = "server" if may_release(site) and not summed else WHOEVER
    histogram = paid_histogram(site, seen_by) or [1.0] * site.spec.classes
    pays = share_of(site) > 0  # as what the site has by the histogram
    if summed:
        sent, noise = _masked(site, content, rows)
    elif not pays:
        sent, noise = b"", None
    else:
        message = kept_release(site) or _release(site, histogram, rows)
        sent, noise = (message.to_bytes(), message.noise_multiplier) if message else (b"", None)
    state = replace(
        state,
        round=ROUND,
        answered=False,
        against=digest_of(content),
        histogram=tuple(histogram),
        over=SHARED if pays else "public" if len(site.public) else None,
        release_noise=noise,
    )
    state.write(site)
    return sent


def _masked(site: Site, content: bytes, rows: Rows) -> tuple[bytes, float | None]:
    """A masked message, and the noise multiplier of the sum; none if the budget pays for none."""
    try:
        result, noise = secure_sum.masked_release(site, content, rows)
    except BudgetExhausted:
        return b"", None
    write_bytes(masked_file(site.home, ROUND), result)
    return result, noise.noise_multiplier or None


def _release(site: Site, histogram: list[float], rows: Rows) -> Release | None:
    """The message of step 1, written before its charge is noted as used.

    A process that died before that has sent nothing: its charge pays for this message. None if the
    budget pays for none.
    """
    counts, path = _noised(site, histogram), sent_file(site.home, ROUND)

    def message(released: Released) -> Release:
        return Release.of(released, counts).compressed(site.config.federation.compression)

    try:
        event = unsent_event(site) or planned_release(site)
        assert event is not None
        request = ReleaseRequest(
            kind=KIND,
            event=event,
            site=site.id,
            round=ROUND,
            classes=site.spec.classes,
        )
        released = release(
            request,
            lambda: rows,
            ledger=site.ledger,
            noise=SystemNoise(),
            keep=lambda released: write_bytes(path, message(released).to_bytes()),
        )
    except BudgetExhausted:
        return None
    return message(released)


def _noised(site: Site, histogram: list[float]) -> NoisedHistogram | None:
    """The histogram with its charge's number and noise; None where none was paid for."""
    charges = read_json(histogram_file(site.home))["receipt"]["charges"]
    if not charges:
        return None
    charge = next(e.charge for e in site.account.entries if e.id == charges[-1])
    m, moved = getattr(charge.event, "noise_multiplier", None), charge.sensitivity
    noise = None if m is None or moved is None else moved * m
    return NoisedHistogram(torch.tensor(histogram), charges[-1], noise)
