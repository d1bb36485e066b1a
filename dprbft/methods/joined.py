"""Joined: one release of a common representation, one shared head, and a student of all of it.

Every site computes the same fixed map phi of a sample (`panas.features`), which no private sample
has shaped, so that what sites release can be added up. In this order:

1. a site releases, once: its noised label histogram (`privacy.histogram_share` of epsilon) and the
   noised second moments of phi (`privacy.release_share`); in a secure sum the label counts are part
   of the moments, and the histogram stays with the site; where public facts say that this would
   not pay (`panas.training.linear.split`) it sends nothing, and has more for itself
2. the server adds them up, the noisier ones with less weight, and exact moments of labelled public
   samples; it balances the classes as far as noise lets it know their counts, and broadcasts one
   ridge head
3. each site searches the architecture of its own network: the more it agrees with the shared head
   on public samples, the fitter; no label is needed
4. each site adapts: a linear residual on phi by DP-SGD, with what is left of epsilon, over the
   shared head and the log of its own label frequencies
5. its network learns from that, on public samples (`dprbft.site.predictor.student`)
6. what it predicts with is the average of all of these, weighed by its validation split

Privacy: steps 1 and 4 are charged before they touch data. The weights of the average are chosen on
the validation split and stay on the site; that choice is not covered.

Source: `docs/joining.md` has what was measured, and what was tried and did not pay.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from dprbft.messages import Broadcast, NoisedHistogram, Release, Verb
from dprbft.methods import PublicSide
from dprbft.paths import histogram_file, masked_file, sent_file, state_file
from dprbft.secure_sum.session import check_libraries
from dprbft.site.predictor.budget import may_release, planned_release, share_of
from dprbft.site.predictor.finish import finish
from dprbft.site.predictor.residual import rows_of, with_residual
from dprbft.site.predictor.state import KIND, ROUND, SHARED, JoinedState, kept_release, unsent_event
from dprbft.site.predictor.student import learnt_from
from dprbft.site.results.records import SearchRecord
from dprbft.site.search import paid_histogram
from dprbft.site.site import Client
from panas.privacy.ledger.fingerprints import note_spent
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.gate import Released, ReleaseRequest, release
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive, read_bytes, read_json, write_bytes
from panas.search_modes.mode import WHOEVER
from panas.training.linear.ridge import exact_moments, pooled, shared_head

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
    "tuning": {"trials": 4, "initial": 3},
}
"""Settings that take minutes with ten sites on one core."""


def server_round(
    side: PublicSide,
    releases: Iterable[Release],
    previous: Broadcast,
    round: int,
    rng: np.random.Generator,
) -> Broadcast:
    """Step 2: the ridge head of all releases and the labelled public samples."""
    classes, width = previous.weight.shape
    total = pooled((_moments(message, classes) for message in releases), classes, width)
    return sum_round(side, total, round)


def sum_round(side: PublicSide, total: Moments, round: int) -> Broadcast:
    """The same of the sum of all sites' moments and label counts."""
    classes = len(total.B)
    known = None
    if len(side.public) and side.feature_map is not None:
        z = side.feature_map(side.public.inputs())
        known = exact_moments(z, side.public.y, classes)
    head = shared_head(total, known, len(side.public))
    return Broadcast(round, head.float(), torch.zeros(classes))


def _moments(message: Release, classes: int) -> Moments:
    """What a message says: noised moments, with the noised counts that came along."""
    found = message.estimate(classes)
    if not isinstance(found, Moments):
        raise BadInput(f"expected releases of {KIND}, got {message.kind}; start a new run")
    if not message.histogram:
        return found
    noise = message.histogram.noise or 0.0
    return replace(found, counts=message.histogram.counts, counts_variance=noise**2)


def ready(client: Client, content: bytes) -> bytes:
    """Before step 1: whether the budget pays for all of it; nothing is charged."""
    if client.config.privacy.secure_sum:
        return _sums().offer(client)
    begun = any(e.charge.phase == "release" for e in client.account.entries)
    if not begun and JoinedState.read(client).round < ROUND:
        planned_release(client)
    return b""


def join(client: Client, content: bytes) -> bytes:
    """Step 1: charge and release, once; the same bytes again if that was done."""
    with exclusive(state_file(client.home)):  # one at a time: one message leaves for a charge
        return _joined(client, content)


def _joined(client: Client, content: bytes) -> bytes:
    summed = client.config.privacy.secure_sum
    if not summed:
        _check_before(client, content)
    state, digest = JoinedState.read(client), hashlib.sha256(content).hexdigest()
    path = (masked_file if summed else sent_file)(client.home, ROUND)
    if state.round == ROUND:
        if state.against != digest:
            raise BadInput(
                "expected the broadcast that the site has answered, got another; a run that has "
                "joined cannot begin anew: give another directory"
            )
        return read_bytes(path) if path.exists() else b""
    # Before any charge: nothing is charged for rows that cannot be computed.
    rows = rows_of(client, client.data.train)
    # In a secure sum counts leave with the moments; where nothing leaves, the histogram stays, too.
    seen_by = "server" if may_release(client) and not summed else WHOEVER
    histogram = paid_histogram(client, seen_by) or [1.0] * client.spec.classes
    pays = share_of(client) > 0  # as what the site has by the histogram
    if summed:
        sent, noise = _masked(client, content, rows)
    elif not pays:
        sent, noise = b"", None
    else:
        sent, noise = _sent(client, histogram, rows)
    state = replace(
        state,
        round=ROUND,
        answered=False,
        against=digest,
        histogram=tuple(histogram),
        over=SHARED if pays else "public" if len(client.public) else None,
        release_noise=noise,
    )
    state.write(client)
    return sent


def _check_before(client: Client, content: bytes) -> None:
    """Refuse what is no broadcast before step 1: it is kept as what the site has answered."""
    before = Broadcast.from_bytes(content, width=client.width, classes=client.spec.classes)
    if before.round != ROUND - 1:
        raise BadInput(f"expected the broadcast before round {ROUND}, got that of {before.round}")


def _sent(client: Client, histogram: list[float], rows: Rows) -> tuple[bytes, float | None]:
    """A message for the server alone, which is on disk, and its noise multiplier."""
    message = kept_release(client) or _release(client, histogram, rows)
    return (message.to_bytes(), message.noise_multiplier) if message else (b"", None)


def _masked(client: Client, content: bytes, rows: Rows) -> tuple[bytes, float | None]:
    """A masked message, and the noise multiplier of the sum; none if the budget pays for none."""
    try:
        found, noise = _sums().masked_release(client, content, rows)
    except BudgetExhausted:
        return b"", None
    write_bytes(masked_file(client.home, ROUND), found)
    return found, noise.noise_multiplier or None


def keys(client: Client, content: bytes) -> bytes:
    """Before step 1 of a secure sum: take part in it."""
    return _sums().keys(client, content)


def share(client: Client, content: bytes) -> bytes:
    """The same: share what lets the others open the sum without this site."""
    return _sums().share(client, content)


def unmask(client: Client, content: bytes) -> bytes:
    """After step 1 of a secure sum: open the sum over these sites, and no other."""
    return _sums().unmask(client, content)


def _sums() -> ModuleType:
    """A site's part in a secure sum; BadInput where its libraries are missing."""
    check_libraries()
    from dprbft.site.predictor import secure_sum

    return secure_sum


def _release(client: Client, histogram: list[float], rows: Rows) -> Release | None:
    """The message of step 1, written before its charge is noted as used.

    A process that died before that has sent nothing: its charge pays for this message. None if the
    budget pays for none.
    """
    counts, path = _noised(client, histogram), sent_file(client.home, ROUND)

    def message(released: Released) -> Release:
        return Release.of(released, counts).compressed(client.config.federation.compression)

    try:
        event = unsent_event(client) or planned_release(client)
        assert event is not None
        request = ReleaseRequest(
            kind=KIND,
            event=event,
            client=client.id,
            round=ROUND,
            classes=client.spec.classes,
        )
        released = release(
            request,
            lambda: rows,
            ledger=client.ledger,
            noise=SystemNoise(),
            keep=lambda released: write_bytes(path, message(released).to_bytes()),
        )
    except BudgetExhausted:
        return None
    return message(released)


def _noised(client: Client, histogram: list[float]) -> NoisedHistogram | None:
    """The histogram with its charge's number and noise; None where none was paid for."""
    charges = read_json(histogram_file(client.home))["receipt"]["charges"]
    if not charges:
        return None
    charge = next(e.charge for e in client.account.entries if e.id == charges[-1])
    m, moved = getattr(charge.event, "noise_multiplier", None), charge.sensitivity
    noise = None if m is None or moved is None else moved * m
    return NoisedHistogram(torch.tensor(histogram), charges[-1], noise)


def take_answer(client: Client, content: bytes) -> bytes:
    """After step 2: keep the shared head; the secrets of a secure sum are erased."""
    state = JoinedState.read(client)
    answer = Broadcast.from_bytes(content, width=client.width, classes=client.spec.classes)
    if answer.round != ROUND:
        raise BadInput(f"expected the answer to round {ROUND}, got that to round {answer.round}")
    if client.config.privacy.secure_sum:
        _sums().close(client)
    if state.round < ROUND:  # it comes late, and gets the head alone
        histogram = paid_histogram(client) or [1.0] * client.spec.classes
        state = replace(state, round=ROUND, answered=False, histogram=tuple(histogram))
    if not state.answered:
        replace(state, answered=True, shared=answer.weight).write(client)
    return b""


def train(client: Client, content: bytes) -> bytes:
    """Steps 4 to 6."""
    state = JoinedState.read(client)
    state.check_joined()
    if len(learnt_from(client)):
        SearchRecord.read(client.home)  # BadInput before the search, and before a sample is read
    if not state.adapted:
        state = with_residual(client, state)
        state.write(client)
    if not state.finished:
        finish(client, state)
        replace(state, finished=True).write(client)
    return b""


def export(client: Client, content: bytes) -> bytes:
    """Note what was spent; network and predictor are written where they are made."""
    note_spent(client.ledger)
    return b""


VERBS: Mapping[Verb, Callable[[Client, bytes], bytes]] = {
    Verb.READY: ready,
    Verb.KEYS: keys,
    Verb.SHARE: share,
    Verb.UNMASK: unmask,
    Verb.ROUND: join,
    Verb.FINISH: take_answer,
    Verb.TRAIN: train,
    Verb.EXPORT: export,
}
