"""What a site does when it is asked: bytes in, a code and bytes out.

Every verb may be repeated: a site that has done it already answers the same again, so that a server
that died can ask once more and nobody is charged twice. A refusal's reason is written to the site's
folder; a code alone crosses the wire.

To a hub elsewhere there is one way out. What is refused as a site joins, before it reads private
samples, follows from the message and the owner's settings. Later its memory may follow from
samples, also by what failed before. So nothing that goes wrong in a verb changes a code, also not a
message that makes no sense: a verb whose answer is a code says DONE, one that sends says ABSENT.
Only that the ledger has too little left is told. DONE means that the site is through, and not that
it succeeded; its owner reads why in `failed.json` and in the node's log.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dprbft.engines.signing import signing_of, summed_of
from dprbft.messages import Broadcast, Code, Hello, Reply, Verb
from dprbft.methods import method_named, round_method, update_method
from dprbft.methods.updates.orders import check_round
from dprbft.methods.updates.verbs import UPDATE_VERBS
from dprbft.paths import (
    SitePlace,
    failed_file,
    hello_file,
    last_model_file,
    model_file,
    refusal_file,
    search_file,
    sent_file,
    state_file,
    tune_file,
)
from dprbft.site import search, tuning
from dprbft.site.data import watching_rows
from dprbft.site.joining import check_allowed, join, leave
from dprbft.site.plan import current_plan, refusal, searched
from dprbft.site.results.pictures import draw_search, draw_tuning
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.results.report import write_report
from dprbft.site.results.scores import SiteRound, note_round
from dprbft.site.results.seen import remembering
from dprbft.site.round import keep_best
from dprbft.site.site import Client, config_of, open_client, same_ledger
from dprbft.site.state import State, weights
from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.privacy.ledger.fingerprints import note_spent
from panas.runtime.errors import BadInput, BudgetExhausted, trail
from panas.runtime.store import read_bytes, write_bytes, write_json
from panas.training.checkpoint import save_network
from panas.training.warm_start import warm_started


@dataclass(frozen=True)
class Machine:
    """Where a site computes, and with how many processes of its own."""

    device: str = "cpu"
    workers: int = 1


SILENT = (Verb.SEARCH, Verb.TUNE, Verb.FINISH, Verb.TRAIN, Verb.EXPORT)
"""Verbs whose answer is a code, and that compute on private samples."""


def serve(place: SitePlace, machine: Machine, verb: Verb, content: bytes) -> Reply:
    """Do what the server asks; the answer to a refusal is a code, its reason stays here."""
    if not place.there:
        return Reply(Code.ABSENT)
    reply, error, at_work = Reply(Code.DONE), Exception(), False
    with watching_rows() as rows_read:
        try:
            work = _work_of(place, machine, verb, content)
            at_work = verb not in (Verb.HELLO, Verb.LEAVE)
            reply = Reply(Code.DONE, work())
        except Exception as e:
            reply, error = Reply(_code_of(e)), e
            at_work = at_work and not isinstance(e, BudgetExhausted)
        read = rows_read()
        hidden = (
            reply.code is not Code.DONE and (read or at_work) and _is_remote(place, verb, content)
        )
    if not place.there:  # it was taken away meanwhile: nothing leaves
        return Reply(Code.ABSENT)
    if reply.code is Code.DONE:
        return reply
    if reply.code is Code.FAILED and not hidden:
        raise error
    _note(place, verb, reply.code, error, failed=hidden and (read or reply.code is Code.FAILED))
    if hidden:
        return Reply(Code.DONE if verb in SILENT else Code.ABSENT)
    return reply


def _code_of(error: Exception) -> Code:
    if isinstance(error, BadInput):
        return Code.REFUSED
    return Code.NO_BUDGET if isinstance(error, BudgetExhausted) else Code.FAILED


def _is_remote(place: SitePlace, verb: Verb, content: bytes) -> bool:
    """Whether a hub elsewhere asks."""
    noted = hello_file(place.home)
    hello = Hello.from_bytes(content if verb is Verb.HELLO else noted.read_bytes())
    return bool(config_of(hello.config).federation.remote)


def _note(place: SitePlace, verb: Verb, code: Code, error: Exception, *, failed: bool) -> None:
    """Write for the owner what went wrong; of an error that was not foreseen no text, which may
    hold data."""
    unforeseen = code is Code.FAILED
    reason = type(error).__name__ if unforeseen else str(error)
    trace = trail(error) if unforeseen else []
    record = {"verb": verb, "code": code.name, "reason": reason, "trace": trace}
    write_json(refusal_file(place.home), record)
    path = failed_file(place.home)
    if failed and verb is not Verb.HELLO and not path.is_file():  # the first says why
        write_json(path, record)


def _work_of(place: SitePlace, machine: Machine, verb: Verb, content: bytes) -> Callable[[], bytes]:
    """What a verb has a site do; BadInput if the owner or the method does not allow it."""
    refusal_file(place.home).unlink(missing_ok=True)
    if verb in (Verb.HELLO, Verb.LEAVE):
        return lambda: _greeted(place, verb, content)
    check_allowed(place)
    client = _with_keys(remembering(open_client(place, machine.device)))
    name = client.config.federation.method
    updates = client.config.federation.exchanges_updates
    own = {} if updates else method_named(name).VERBS
    if verb not in (UPDATE_VERBS if updates else {*own, *VERBS}):
        raise BadInput(f"expected what a site of method {name} does, got {verb}")

    def work() -> bytes:
        with same_ledger(client):
            if updates:
                return UPDATE_VERBS[verb](update_method(name), client, content)
            if verb in own:
                return own[verb](client, content)
            return VERBS[verb](client, machine, content)

    return work


def _greeted(place: SitePlace, verb: Verb, content: bytes) -> bytes:
    (join if verb is Verb.HELLO else leave)(place, content)
    return b""


def _with_keys(client: Client) -> Client:
    """The site and its node key, where a run among machines sums in secret."""
    names = client.config.federation.remote
    if not names or not client.config.privacy.secure_sum:
        return client
    summed = summed_of(Hello.from_bytes(read_bytes(hello_file(client.home))))
    place = client.place
    return replace(client, signing=signing_of(place.folder, names, client.id, place.run, summed))


def _search(client: Client, machine: Machine, content: bytes) -> bytes:
    """Find the architecture, once."""
    if not search_file(client.home).exists():
        found = search.search(client, machine.workers)
        draw_search(client, found)
        found.write(client.home)
    return b""


def _tune(client: Client, machine: Machine, content: bytes) -> bytes:
    """Find the DP-SGD settings, once."""
    if not tune_file(client.home).exists():
        found = tuning.tune(client, machine.workers)
        draw_tuning(client, found)
        found.write(client.home)
    return b""


def _ready(client: Client, machine: Machine, content: bytes) -> bytes:
    """Prepare for the next round; BudgetExhausted if the budget is too small for what it plans."""
    round = _broadcast(client, content).round + 1
    if not 1 <= round <= client.config.federation.planned_rounds:
        raise BadInput(f"expected a broadcast before one of the run's rounds, got round {round}")
    state = State.read(client) if state_file(client.home).exists() else _start(client)
    if refused := TuningRecord.read(client.home).refused:
        raise BudgetExhausted(refused)
    if state.round >= round:
        return b""  # paid for: the server died before the round was whole
    if client.budget.private and state.plan is None:
        # Kept, since finding it takes seconds: the first round begins with it.
        plan = current_plan(client, state)
        state = replace(state, plan=plan, charges=searched(client) if plan else 0)
        state.write(client)
    if refused := refusal(client, state, round):
        raise BudgetExhausted(refused)
    return b""


def _start(client: Client) -> State:
    """Where the site stands before round 1: warm-started on public samples."""
    found = SearchRecord.read(client.home)
    begin = client.warm_start(found.genome)
    bottom, head = warm_started(begin, client.public, seed=client.config.seed, client=client.id)
    b, h = weights(bottom), weights(head)
    state = State(
        bottom=b,
        head=h,
        kept_bottom=b,
        kept_head=h,
        genome=found.genome,
        settings=TuningRecord.read(client.home).settings,
        histogram=tuple(found.histogram) if found.histogram else None,
    )
    state = keep_best(client, state, bottom, [(0.0, head)], 0)
    note_round(client.home, SiteRound.of(state))
    _save(client, state, last_model_file(client.home), state.networks(client), 0)
    state.write(client)
    return state


def _round(client: Client, machine: Machine, content: bytes) -> bytes:
    """Train against the broadcast and release; the same release again if that was done."""
    state, broadcast = State.read(client), _broadcast(client, content)
    round, digest = broadcast.round + 1, hashlib.sha256(content).hexdigest()
    if state.round == round:
        _check_same(state.against, digest, round)
        path = sent_file(client.home, round)
        return read_bytes(path) if path.exists() else b""
    if not state.round < round:
        raise BadInput(f"expected a round after {state.round}, got round {round}; start a new run")
    check_round(client.config, client.id, round)
    method = round_method(client.config.federation.method)
    state, message = method.client_round(client, state, broadcast, round)
    released = message.to_bytes() if message else b""
    if message:
        write_bytes(sent_file(client.home, round), released)
    replace(state, round=round, answered=False, against=digest).write(client)
    return released


def _finish(client: Client, machine: Machine, content: bytes) -> bytes:
    """Take the answer to the round's releases, once."""
    state, broadcast = State.read(client), _broadcast(client, content)
    if state.round != broadcast.round:
        raise BadInput(
            f"expected the answer to round {state.round}, got that to round {broadcast.round}"
        )
    if not state.answered:
        method = round_method(client.config.federation.method)
        state = method.client_finish(client, state, broadcast, broadcast.round)
        note_round(client.home, SiteRound.of(state))
        # Of whole rounds alone: it computed the last release that was answered.
        _save(client, state, last_model_file(client.home), state.networks(client), state.round)
        replace(state, answered=True).write(client)
    return b""


def _export(client: Client, machine: Machine, content: bytes) -> bytes:
    """Write the network that validation selected, and how it does."""
    if not state_file(client.home).exists():
        return b""
    state = State.read(client)
    path = model_file(client.home)
    _save(client, state, path, state.kept_networks(client), state.kept.round)
    write_report(client, state)
    note_spent(client.ledger)
    return b""


def _save(
    client: Client, state: State, path: Path, networks: tuple[Bottom, Head], round: int
) -> None:
    notes = {"client": client.id, "round": round, "facts": client.facts.to_json()}
    save_network(path, *networks, genome=state.genome, spec=client.spec, notes=notes)


VERBS: dict[Verb, Callable[[Client, Machine, bytes], bytes]] = {
    Verb.SEARCH: _search,
    Verb.TUNE: _tune,
    Verb.READY: _ready,
    Verb.ROUND: _round,
    Verb.FINISH: _finish,
    Verb.EXPORT: _export,
}


def _broadcast(client: Client, content: bytes) -> Broadcast:
    return Broadcast.from_bytes(content, width=client.width, classes=client.spec.classes)


def _check_same(known: str, digest: str, round: int) -> None:
    if known != digest:
        raise BadInput(
            f"expected the broadcast that round {round} was trained against, got another; a run "
            "that has trained cannot begin anew: give another directory"
        )
