"""What a site does when it is asked, in methods that exchange updates; each verb may be repeated.

A site that has done it already answers the same again. What a message says is checked whole before
a sample is read or charged. A site's memory is one file, `state.safetensors`
in its folder for the run; it never leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from dprbft.messages import Verb, digest_of
from dprbft.methods import update_method
from dprbft.methods.once import sent_before
from dprbft.methods.updates.contract import Turn, UpdateMethod
from dprbft.paths import sent_file, state_file
from dprbft.site.results.report import SiteReport, Steps, baselines_of, sizes
from dprbft.site.results.scores import SiteRound, note_round, read_scores
from dprbft.site.site import Site
from dprbft.updates import Bundle, Order, Update
from panas.privacy.ledger.fingerprints import note_spent
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes
from panas.training.any_model import accuracy_of
from panas.training.metrics import measure

PLACE = "verbs"  # in the record of what is kept: where the site stands, beside the method's own


def ready(site: Site, content: bytes) -> None:
    """Before round 1: plan all rounds; BudgetExhausted if the budget does not pay for them."""
    if not state_file(site.home).exists():
        method = _method(site)
        memory = method.site_start(site)
        right = accuracy_of(method.predictor(site, memory)(site.data.test), site.data.test)
        note_round(site.home, _scores(0, None, right))
        _keep(site, memory, {"round": 0, "against": "", "finished": False})


def round(site: Site, content: bytes) -> bytes:
    """Train and send; the same bytes again if that was done."""
    order, kept = Order.from_bytes(content), Bundle.read(state_file(site.home))
    method = _method(site)
    answered = kept.record[PLACE]["round"], kept.record[PLACE]["against"]
    if (sent := sent_before(site, answered, order.round, content)) is not None:
        return sent
    method.check_order(site, _own(kept), order)
    turn = method.site_round(site, _own(kept), order)
    message, path = _message(site, order, turn), sent_file(site.home, order.round)
    for old in path.parent.glob("*") if path.parent.is_dir() else ():
        old.unlink()  # of rounds before, which the server has answered
    if message:
        write_bytes(path, message)
    known = read_scores(site.home)[-1].kept  # stands where a round measures nothing
    note_round(site.home, _scores(order.round, turn.local, turn.shared, known))
    _keep(
        site, turn.memory, {"round": order.round, "against": digest_of(content), "finished": False}
    )
    return message


def finish(site: Site, content: bytes) -> None:
    """Take the result of all rounds, once."""
    kept = Bundle.read(state_file(site.home))
    if not kept.record[PLACE]["finished"]:
        method = _method(site)
        order = Order.from_bytes(content)
        _check_result(site, kept.record[PLACE]["round"], order.round)
        method.check_order(site, _own(kept), order)
        memory = method.site_finish(site, _own(kept), order)
        _keep(site, memory, {**kept.record[PLACE], "finished": True})


def export(site: Site, content: bytes) -> None:
    """Measure what the site predicts with, and what that must beat."""
    if not state_file(site.home).exists():
        return
    kept, method = Bundle.read(state_file(site.home)), _method(site)
    memory, test = _own(kept), site.data.test
    metrics = measure(method.predictor(site, memory)(test), test.y)
    accuracy = metrics.accuracy if metrics.accuracy is not None else 0.0
    scores, size = read_scores(site.home), method.size(site, memory)
    seen = [s for r in scores for s in (r.local, r.shared) if s is not None]
    SiteReport(
        samples=sizes(site),
        metrics=metrics,
        baselines=baselines_of(site),
        steps=Steps(
            public=None,
            alone=None,
            local=scores[-1].local,
            shared=scores[-1].shared,
            joined=accuracy,
            best=max([accuracy, *seen]),
            network=accuracy,
        ),
        setting=asdict(size),
        shares={},
        selected_round=kept.record[PLACE]["round"],
    ).write(site.home)
    note_spent(site.ledger)


VERBS: Mapping[Verb, Callable[[Site, bytes], bytes | None]] = {
    Verb.READY: ready,
    Verb.ROUND: round,
    Verb.FINISH: finish,
    Verb.EXPORT: export,
}


def _method(site: Site) -> UpdateMethod:
    return update_method(site.config.federation.method)


def _message(site: Site, order: Order, turn: Turn) -> bytes:
    """What a round sends; refused where no charge of this run's ledger covers it."""
    if not turn.update:
        return b""
    known = {entry.id for entry in site.account.entries}
    if not turn.receipts or not known.issuperset(turn.receipts):
        raise BadInput(
            f"expected the receipts of charges for what round {order.round} sends, got none that "
            f"the ledger of {site.paths.name} knows; charge it first"
        )
    return Update(site.id, order.round, turn.update, turn.receipts).to_bytes()


def _own(kept: Bundle) -> Bundle:
    return Bundle(kept.arrays, {k: v for k, v in kept.record.items() if k != PLACE})


def _keep(site: Site, memory: Bundle, standing: Mapping[str, object]) -> None:
    record = {**memory.record, PLACE: dict(standing)}
    replace(memory, record=record).write(state_file(site.home))


def _scores(
    number: int, local: float | None, shared: float | None, known: float = 0.0
) -> SiteRound:
    kept = shared if shared is not None else local if local is not None else known
    views = {"local": local, "shared": shared}
    return SiteRound(round=number, validation=kept, kept=kept, blend=0.0, **views)


def _check_result(site: Site, after: int, number: int) -> None:
    """Refuse a result that follows no round of the run, or none that the site has answered."""
    rounds = site.config.federation.planned_rounds
    if not after < number <= rounds + 1:
        raise BadInput(
            f"expected the result of rounds after {after}, and of {rounds} at most, got that after "
            f"{number - 1}"
        )
