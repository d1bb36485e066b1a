"""What a site does in method `joined`: join, then search, tune, adapt and teach its network.

Each verb may be repeated: a site that has done it already answers the same again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from dprbft.messages import Broadcast, Verb
from dprbft.methods.joined.budget import planned_release
from dprbft.methods.joined.exchange import join, sums
from dprbft.methods.joined.finish import finish
from dprbft.methods.joined.residual import with_residual
from dprbft.methods.joined.state import ROUND, JoinedState
from dprbft.methods.joined.student import learnt_from
from dprbft.methods.joined.student_search import search_student
from dprbft.methods.joined.tuning import tune_residual
from dprbft.paths import search_file, tune_file
from dprbft.site.results.pictures import draw_search, draw_tuning
from dprbft.site.results.records import SearchRecord
from dprbft.site.search import paid_histogram, search
from dprbft.site.site import Site
from panas.evolution.records import EvolutionResult
from panas.privacy.ledger.fingerprints import note_spent
from panas.runtime.errors import BadInput
from panas.search_modes.mode import SearchPlan


def ready(site: Site, content: bytes) -> bytes:
    """Before step 1: whether the budget pays for all of it; nothing is charged."""
    if site.config.privacy.secure_sum:
        return sums().offer(site)
    begun = any(e.charge.phase == "release" for e in site.account.entries)
    if not begun and JoinedState.read(site).round < ROUND:
        planned_release(site)
    return b""


def keys(site: Site, content: bytes) -> bytes:
    """Before step 1 of a secure sum: take part in it."""
    return sums().keys(site, content)


def share(site: Site, content: bytes) -> bytes:
    """The same: share what lets the others open the sum without this site."""
    return sums().share(site, content)


def unmask(site: Site, content: bytes) -> bytes:
    """After step 1 of a secure sum: open the sum over these sites, and no other."""
    return sums().unmask(site, content)


def search_network(site: Site, content: bytes) -> bytes:
    """Step 3, once: the architecture of the site's network."""
    if search_file(site.home).exists():
        return b""
    JoinedState.read(site).check_joined()  # before anything is charged
    reads = site.config.privacy.mode.reads_samples
    record = search(site, partial(_search_student, site) if reads else None)
    draw_search(site, record)
    record.write(site.home)
    return b""


def _search_student(site: Site, histogram: list[float] | None, plan: SearchPlan) -> EvolutionResult:
    return search_student(site, plan)


def tune(site: Site, content: bytes) -> bytes:
    """Before step 4, once: the residual's DP-SGD settings."""
    if not tune_file(site.home).exists():
        record = tune_residual(site)
        draw_tuning(site, record)
        record.write(site.home)
    return b""


def take_answer(site: Site, content: bytes) -> bytes:
    """After step 2: keep the shared head; the secrets of a secure sum are erased."""
    state = JoinedState.read(site)
    answer = Broadcast.from_bytes(content, width=site.width, classes=site.spec.classes)
    if answer.round != ROUND:
        raise BadInput(f"expected the answer to round {ROUND}, got that to round {answer.round}")
    if site.config.privacy.secure_sum:
        sums().close(site)
    if state.round < ROUND:  # it comes late, and gets the head alone
        histogram = paid_histogram(site) or [1.0] * site.spec.classes
        state = replace(state, round=ROUND, answered=False, histogram=tuple(histogram))
    if not state.answered:
        replace(state, answered=True, shared=answer.weight).write(site)
    return b""


def train(site: Site, content: bytes) -> bytes:
    """Steps 4 to 6."""
    state = JoinedState.read(site)
    state.check_joined()
    if len(learnt_from(site)):
        SearchRecord.read(site.home)  # BadInput before the search, and before a sample is read
    if not state.adapted:
        state = with_residual(site, state)
        state.write(site)
    if not state.finished:
        finish(site, state)
        replace(state, finished=True).write(site)
    return b""


def export(site: Site, content: bytes) -> bytes:
    """Note what was spent; network and predictor are written where they are made."""
    note_spent(site.ledger)
    return b""


VERBS: Mapping[Verb, Callable[[Site, bytes], bytes]] = {
    Verb.READY: ready,
    Verb.KEYS: keys,
    Verb.SHARE: share,
    Verb.UNMASK: unmask,
    Verb.ROUND: join,
    Verb.FINISH: take_answer,
    Verb.SEARCH: search_network,
    Verb.TUNE: tune,
    Verb.TRAIN: train,
    Verb.EXPORT: export,
}
