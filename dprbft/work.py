"""The tasks that an engine runs for one client: pure functions of small, serialisable inputs.

A task names its client; the worker loads that client's samples itself. What comes back is JSON
or bytes. The engine's processes import this module and nothing above it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from dprbft.client import (
    LEAST_NOISE,
    Client,
    State,
    blueprint_of,
    build_client,
    settings_of,
    weights,
)
from dprbft.config import RunConfig
from dprbft.federation import Federation
from dprbft.layout import checkpoint_folder, search_file
from dprbft.local_training import keep_best
from dprbft.messages import Broadcast
from dprbft.methods import method_named
from dprbft.searching import (
    MIN_SEARCH,
    charge,
    dp_search,
    histogram_event,
    judge_of,
    planned_trials,
)
from dprbft.server import to_broadcast
from panas.architecture import search_architecture, search_without_data
from panas.cost import cost, cost_table
from panas.errors import BadInput, BudgetExhausted
from panas.evolution import EvolutionConfig, EvolutionResult
from panas.genome import Genome
from panas.network import Bottom, Head
from panas.privacy.accounting import Unprotected
from panas.privacy.randomness import SystemNoise
from panas.privacy.release import label_histogram
from panas.rehearsal import deployable, tune_settings
from panas.search_data import SearchData, private_data, proxy_data
from panas.seeds import stream, torch_generator
from panas.space import SearchSpace, random_genome
from panas.store import read_json
from panas.training import Optimisation
from panas.tuning import Setting, TuningConfig, TuningResult, TuningSpace


@dataclass(frozen=True)
class Task:
    """Which client, of which run, and where to compute."""

    config: str
    run: Path
    client: int
    device: str

    def load(self) -> Client:
        """The client."""
        return build_client(_parse(self.config), self.client, self.run, self.device)


@lru_cache(maxsize=2)
def _parse(text: str) -> RunConfig:
    return RunConfig.model_validate_json(text)


def check(config: RunConfig, federation: Federation) -> None:
    """Refuse settings that a later stage would refuse, before anything is written or charged.

    Raises:
        BadInput: what that stage would say.

    """
    blueprint = blueprint_of(config, federation)
    blueprint.head(torch_generator(stream(config.seed, "head")))
    space = _space(config, blueprint.shape)
    random_genome(space, stream(config.seed, "check"))
    _tuning_space(config)
    least = MIN_SEARCH.get(config.privacy.search, 0)
    for client in federation.clients:
        if len(client.search) < least:
            raise BadInput(
                f"expected at least {least} search samples for client {client.id}, got "
                f"{len(client.search)}; raise data.search_fraction"
            )
    if config.privacy.search == "proxy":
        alike, rng = torch.ones(federation.classes), stream(config.seed, "check")
        proxy_data(federation.public, alike, samples=1, rng=rng)


def search(task: Task) -> dict[str, Any]:
    """A client's architecture search; charges the ledger first. Returns what best.json holds.

    Everything in it was paid for: with noised scores it holds no other, and after a private
    selection the winner alone, not how many candidates there were.
    """
    client = task.load()
    c = client.config
    s = c.search
    space = _space(c, client.blueprint.shape)
    config = EvolutionConfig(
        population=s.population,
        generations=s.generations,
        crossover=s.crossover,
        mutation=s.mutation,
    )
    how = Optimisation(
        learning_rate=s.learning_rate,
        optimiser=s.optimiser,
        decay=s.decay,
        batch_size=s.batch_size,
        epochs=s.epochs,
    )
    histogram, noise = None, None
    record: EvolutionResult | None
    if c.privacy.search == "dp":
        best, fitness, record, noise = dp_search(client, space, config, how)
    else:
        if c.privacy.search == "data-free":
            record = search_without_data(
                blueprint=client.blueprint,
                space=space,
                config=config,
                seed=c.seed,
                client=client.id,
                algorithm=s.algorithm,
            )
        else:
            histogram = _pay_for_search(client)
            record = search_architecture(
                _search_data(client, histogram),
                blueprint=client.blueprint,
                space=space,
                config=config,
                how=how,
                seed=c.seed,
                client=client.id,
                device=client.device,
                algorithm=s.algorithm,
            )
        best, fitness = record.best, record.fitness
    b = client.blueprint
    price = cost(best, shape=b.shape, width=b.width, classes=b.classes, norm=b.norm)
    table = cost_table(best, shape=b.shape, width=b.width, classes=b.classes, norm=b.norm)
    return {
        "client": client.id,
        "genome": str(best),
        "blocks": best.to_json(),
        "fitness": fitness,
        "cost": asdict(price),
        "cost_table": [asdict(row) for row in table],
        "evaluations": record.evaluations if record else None,
        "privacy": c.privacy.search,
        "histogram": histogram,
        "noise": noise,
        "logbook": record.logbook if record else [],
        "history": [asdict(e) for e in record.history] if record else [],
    }


def _space(config: RunConfig, shape: tuple[int, int, int]) -> SearchSpace:
    s = config.search
    return SearchSpace(
        shape=shape,
        min_blocks=s.min_blocks,
        max_blocks=s.max_blocks,
        widths=s.widths,
        kernels=s.kernels,
    )


def _tuning_space(config: RunConfig) -> TuningSpace:
    t = config.tuning
    return TuningSpace(
        learning_rate=t.learning_rate,
        clip=t.clip,
        noise_factor=t.noise_factor,
        batch_sizes=t.batch_sizes,
        epochs=t.epochs,
    )


def _pay_for_search(client: Client) -> list[float] | None:
    """Charge what the search will look at; returns the noised histogram that a proxy needs."""
    if client.config.privacy.search == "unaccounted":
        with charge(client, Unprotected(), "search on private samples", "search", None):
            return None
    # Without a budget there is nothing to be sparing of, and still no reason to be exact.
    event = histogram_event(client) if client.budget.private else Unprotected()
    alike = [1.0] * client.blueprint.classes
    if event is None:
        return alike  # nothing can be learnt of the labels for so little
    try:
        noised = label_histogram(
            lambda: client.data.train.y,
            classes=client.blueprint.classes,
            event=event,
            ledger=client.ledger,
            client=client.id,
            noise=SystemNoise(),
        )
    except BudgetExhausted:
        return alike  # searches that died have spent what it costs
    return [float(x) for x in noised]


def _search_data(client: Client, histogram: list[float] | None) -> SearchData:
    rng = stream(client.config.seed, "client", client.id, "search-data")
    mode = client.config.privacy.search
    if mode == "unaccounted":
        warm = client.config.federation.warm_start == "public"
        public = client.public if warm else client.public.take([])
        return private_data(client.data.search, public, rng)
    # A dp search rehearses on public samples as they are; its own samples only score.
    counts = torch.tensor(histogram) if histogram else torch.ones(client.blueprint.classes)
    return proxy_data(client.public, counts, samples=len(client.data.train), rng=rng)


def tune(task: Task) -> dict[str, Any]:
    """A client's DP-SGD settings. Returns what best.json holds."""
    client = task.load()
    c = client.config
    found = read_json(search_file(task.run, client.id))
    fixed = Setting(
        learning_rate=c.training.learning_rate,
        noise_multiplier=c.training.noise_multiplier or LEAST_NOISE,
        clip=c.training.clip,
        batch_size=c.training.batch_size,
    )
    kept: dict[str, Any] = {
        "client": client.id,
        "setting": fixed.as_dict() | {"noise_multiplier": c.training.noise_multiplier},
        "predicted": None,
        "trials": [],
    }
    if not planned_trials(client):
        return kept
    judge = None
    if c.privacy.search == "dp":
        try:
            judge = judge_of(client, found["noise"])
        except BudgetExhausted:
            return kept  # trials that died have spent the search split; training has its own budget
    try:
        result = _tune(client, found, judge)
    except BudgetExhausted as e:
        # Training says so again and stops there, with the warm-started network kept.
        return kept | {"refused": str(e)}
    return {
        "client": client.id,
        "setting": result.best.as_dict(),
        "predicted": result.predicted,
        "trials": [asdict(r) for r in result.trials],
    }


def _tune(
    client: Client, found: dict[str, Any], judge: Callable[[Bottom, Head], float] | None
) -> TuningResult:
    c, t = client.config, client.config.tuning
    return tune_settings(
        _search_data(client, found["histogram"]),
        Genome.parse(found["genome"]),
        blueprint=client.blueprint,
        space=_tuning_space(c),
        config=TuningConfig(initial=min(t.initial, t.trials), trials=t.trials, parallel=t.parallel),
        budget=client.budget,
        schedule=client.schedule(),
        warm=client.warm,
        momentum=c.training.momentum,
        train_head=client.train_head,
        seed=c.seed,
        client=client.id,
        device=client.device,
        judge=judge,
    )


def start(task: Task) -> bytes:
    """A client's state before round 1: warm-started on public samples, plan calibrated."""
    client = task.load()
    genome, setting, found = settings_of(task.run, client)
    bottom, head = deployable(
        genome,
        blueprint=client.blueprint,
        public=client.public,
        warm=client.warm,
        train_head=client.train_head,
        seed=client.config.seed,
        client=client.id,
        device=client.device,
    )
    facts = {
        "genome": str(genome),
        "setting": setting.as_dict(),
        "histogram": found["histogram"],
        "plan": None,
        "round": 0,
        "charges": 0,
        "local": None,
        "global": None,
    }
    b, h = weights(bottom), weights(head)
    state = State(b, h, b, h, facts)
    return keep_best(client, state, bottom, [(0.0, head)], 0).to_bytes()


@dataclass(frozen=True)
class RoundTask:
    """A client's task in one round, with what it needs as bytes."""

    task: Task
    round: int
    state: bytes
    broadcast: bytes

    def load(self) -> tuple[Client, State, Broadcast]:
        """Client, state and broadcast."""
        client = self.task.load()
        state = State.from_bytes(self.state, checkpoint_folder(self.task.run))
        b = client.blueprint
        return client, state, Broadcast.from_bytes(self.broadcast, width=b.width, classes=b.classes)


def local_round(work: RoundTask) -> tuple[bytes, bytes | None]:
    """A participant's half of a round: its new state, and the bytes of its release, if any."""
    client, state, broadcast = work.load()
    method = method_named(client.config.federation.method)
    state, message = method.client_round(client, state, broadcast, work.round)
    return state.to_bytes(), message.to_bytes() if message else None


def finish_round(work: RoundTask) -> bytes:
    """What a participant makes of the server's answer: its new state."""
    client, state, broadcast = work.load()
    method = method_named(client.config.federation.method)
    return method.client_finish(client, state, broadcast, work.round).to_bytes()


def initial_broadcast(task: Task) -> bytes:
    """The head before round 1, which all clients can also compute by themselves."""
    client = task.load()
    head = client.blueprint.head(torch_generator(stream(client.config.seed, "head")))
    return to_broadcast(head, 0).to_bytes()
