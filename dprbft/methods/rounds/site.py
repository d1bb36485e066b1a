"""What a site does in methods of rounds: search, tune, then train and release in each round.

Each verb may be repeated: a site that has done it already answers the same again.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch

from dprbft.messages import Broadcast, Verb, digest_of
from dprbft.methods import round_method
from dprbft.methods.once import sent_before
from dprbft.methods.preparation import search_once, tune_once
from dprbft.methods.rounds.plan import current_plan, refusal, searched
from dprbft.methods.rounds.state import State
from dprbft.methods.rounds.training import keep_best
from dprbft.methods.rounds.tuning import tune
from dprbft.paths import last_model_file, model_file, sent_file, state_file
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.results.report import SiteReport, Steps, baselines_of, sizes
from dprbft.site.results.scores import SiteRound, note_round, read_scores
from dprbft.site.search import search
from dprbft.site.site import Site
from panas.architecture.head import Head
from panas.architecture.network import Bottom, weights_of
from panas.privacy.ledger.fingerprints import note_spent
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import write_bytes
from panas.training.checkpoint import save_network
from panas.training.evaluate import represent
from panas.training.metrics import measure
from panas.training.warm_start import warm_started


def _ready(site: Site, content: bytes) -> None:
    """Prepare for the next round; BudgetExhausted if the budget is too small for what it plans."""
    round = _broadcast(site, content).round + 1
    if not 1 <= round <= site.config.federation.planned_rounds:
        raise BadInput(f"expected a broadcast before one of the run's rounds, got round {round}")
    state = State.read(site) if state_file(site.home).exists() else _start(site)
    if refused := TuningRecord.read(site.home).refused:
        raise BudgetExhausted(refused)
    if state.round >= round:
        return  # paid for: the server died before the round was whole
    if site.budget.private and state.plan is None:
        # Kept, since finding it takes seconds: the first round begins with it.
        plan = current_plan(site, state)
        state = replace(state, plan=plan, charges=searched(site) if plan else 0)
        state.write(site)
    if refused := refusal(site, state, round):
        raise BudgetExhausted(refused)


def _start(site: Site) -> State:
    """Where the site stands before round 1: warm-started on public samples."""
    record = SearchRecord.read(site.home)
    begin = site.warm_start(record.genome)
    bottom, head = warm_started(begin, site.public, seed=site.config.seed, site=site.id)
    b, h = weights_of(bottom), weights_of(head)
    state = State(
        bottom=b,
        head=h,
        kept_bottom=b,
        kept_head=h,
        genome=record.genome,
        settings=TuningRecord.read(site.home).settings,
        histogram=tuple(record.histogram) if record.histogram else None,
    )
    state = keep_best(site, state, bottom, [(0.0, head)], 0)
    note_round(site.home, round_scores(state))
    _save(site, state, last_model_file(site.home), state.networks(site), 0)
    state.write(site)
    return state


def _round(site: Site, content: bytes) -> bytes:
    """Train against the broadcast and release; the same release again if that was done."""
    state, broadcast = State.read(site), _broadcast(site, content)
    round, answered = broadcast.round + 1, (state.round, state.against)
    if (sent := sent_before(site, answered, round, content)) is not None:
        return sent
    method = round_method(site.config.federation.method)
    state, message = method.site_round(site, state, broadcast, round)
    released = message.to_bytes() if message else b""
    if message:
        write_bytes(sent_file(site.home, round), released)
    replace(state, round=round, answered=False, against=digest_of(content)).write(site)
    return released


def _finish(site: Site, content: bytes) -> None:
    """Take the answer to the round's releases, once."""
    state, broadcast = State.read(site), _broadcast(site, content)
    if state.round != broadcast.round:
        raise BadInput(
            f"expected the answer to round {state.round}, got that to round {broadcast.round}"
        )
    if not state.answered:
        method = round_method(site.config.federation.method)
        state = method.site_finish(site, state, broadcast, broadcast.round)
        note_round(site.home, round_scores(state))
        # Of whole rounds alone: it computed the last release that was answered.
        _save(site, state, last_model_file(site.home), state.networks(site), state.round)
        replace(state, answered=True).write(site)


def _export(site: Site, content: bytes) -> None:
    """Write the network that validation selected, and how it does."""
    if not state_file(site.home).exists():
        return
    state = State.read(site)
    path = model_file(site.home)
    _save(site, state, path, state.kept_networks(site), state.kept.round)
    write_report(site, state)
    note_spent(site.ledger)


def _save(site: Site, state: State, path: Path, networks: tuple[Bottom, Head], round: int) -> None:
    notes = {"client": site.id, "round": round, "facts": site.facts.to_json()}
    save_network(path, *networks, genome=state.genome, spec=site.spec, notes=notes)


VERBS: Mapping[Verb, Callable[[Site, bytes], bytes | None]] = {
    Verb.SEARCH: lambda site, content: search_once(site, search),
    Verb.TUNE: lambda site, content: tune_once(site, tune),
    Verb.READY: _ready,
    Verb.ROUND: _round,
    Verb.FINISH: _finish,
    Verb.EXPORT: _export,
}


def round_scores(state: State) -> SiteRound:
    """The accuracies of a site's state after a round."""
    scores = asdict(state.scores)
    del scores["best"]
    return SiteRound(round=state.round, kept=state.kept.accuracy, **scores)


def write_report(site: Site, state: State) -> None:
    """Measure a site's selected network, and what it must beat, on its test samples."""
    bottom, head = state.kept_networks(site)
    test = site.data.test
    with torch.no_grad():
        z = represent(bottom, test)
        logits = head.cpu()(z.cpu())
    # The noise is that of the plan; None without DP.
    noises = ("noise_multiplier", "release_noise")
    setting = asdict(state.settings) | {name: getattr(state.plan, name, None) for name in noises}
    SiteReport(
        samples=sizes(site),
        metrics=measure(logits, test.y),
        baselines=baselines_of(site),
        steps=Steps(
            public=read_scores(site.home)[0].kept,
            alone=state.scores.local,
            shared=state.scores.shared,
            joined=state.kept.accuracy,
            best=state.scores.best,
            network=state.kept.accuracy,
        ),
        setting=setting,
        shares={},
        selected_round=state.kept.round,
        blend=state.kept.blend,
    ).write(site.home)


def _broadcast(site: Site, content: bytes) -> Broadcast:
    return Broadcast.from_bytes(content, width=site.width, classes=site.spec.classes)
