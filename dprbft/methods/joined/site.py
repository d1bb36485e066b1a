"""What a site does in method `joined`: join, then search, tune, adapt and teach its network.

Each verb may be repeated: a site that has done it already answers the same again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from dprbft.messages import Broadcast, Verb
from dprbft.methods.joined import secure_sum
from dprbft.methods.joined.budget import planned_release
from dprbft.methods.joined.exchange import join
from dprbft.methods.joined.finish import finish
from dprbft.methods.joined.inputs import before
from dprbft.methods.joined.residual import with_residual
from dprbft.methods.joined.state import ROUND, JoinedState
from dprbft.methods.joined.student_search import search_student
from dprbft.methods.joined.tuning import tune_residual
from dprbft.methods.preparation import search_once, tune_once
from dprbft.site.results.records import SearchRecord
from dprbft.site.search import paid_histogram, search
from dprbft.site.site import Site
from panas.privacy.ledger.fingerprints import note_spent
from panas.runtime.errors import BadInput


def ready(site: Site, content: bytes) -> bytes:
    """Before step 1: whether the budget pays for all of it; nothing is charged."""
    if site.config.secure_sum:
        return secure_sum.offer(site)
    begun = any(e.charge.phase == "release" for e in site.account.entries)
    if not begun and JoinedState.read(site).round < ROUND:
        planned_release(site)
    return b""


def search_student_network(site: Site) -> SearchRecord:
    """Step 3: the architecture of the site's network."""
    JoinedState.read(site).check_joined()  # before anything is charged
    reads = site.config.privacy.mode.reads_samples
    searching = (lambda histogram, plan: search_student(site, plan)) if reads else None
    return search(site, searching, before(site))


def take_answer(site: Site, content: bytes) -> None:
    """After step 2: keep the shared head; the secrets of a secure sum are erased."""
    state = JoinedState.read(site)
    answer = Broadcast.from_bytes(content, width=site.width, classes=site.spec.classes)
    if answer.round != ROUND:
        raise BadInput(f"expected the answer to round {ROUND}, got that to round {answer.round}")
    if site.config.secure_sum:
        secure_sum.close(site)
    if state.round < ROUND:  # it comes late, and gets the head alone
        histogram = paid_histogram(site) or [1.0] * site.spec.classes
        state = replace(state, round=ROUND, answered=False, histogram=tuple(histogram))
    if not state.answered:
        replace(state, answered=True, shared=answer.weight).write(site)


def train(site: Site, content: bytes) -> None:
    """Steps 4 to 6."""
    state = JoinedState.read(site)
    state.check_joined()
    if site.config.has_networks:
        SearchRecord.read(site.home)  # BadInput before the search, and before a sample is read
    if not state.adapted:
        state = with_residual(site, state)
        state.write(site)
    if not state.finished:
        finish(site, state)
        replace(state, finished=True).write(site)


def export(site: Site, content: bytes) -> None:
    """Note what was spent; network and predictor are written where they are made."""
    note_spent(site.ledger)


VERBS: Mapping[Verb, Callable[[Site, bytes], bytes | None]] = {
    Verb.READY: ready,
    # Of a secure sum, before and after step 1.
    Verb.KEYS: lambda site, content: secure_sum.keys(site, content),
    Verb.SHARE: lambda site, content: secure_sum.share(site, content),
    Verb.UNMASK: lambda site, content: secure_sum.unmask(site, content),
    Verb.ROUND: join,
    Verb.FINISH: take_answer,
    Verb.SEARCH: lambda site, content: search_once(site, search_student_network),
    Verb.TUNE: lambda site, content: tune_once(site, tune_residual),
    Verb.TRAIN: train,
    Verb.EXPORT: export,
}
