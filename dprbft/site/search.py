"""What an engine runs for one client's search: its architecture, then its DP-SGD settings.

Each generation and each trial is logged before the next begins, so that a client whose process was
killed goes on where it was. The noised label histogram of a proxy search is kept as soon as it is
paid for: a search that goes on looks at the same samples.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dprbft.config.schema import RunConfig
from dprbft.paths import histogram_file, latency_file, search_file, search_log, tune_log
from dprbft.simulation.federation import Federation
from dprbft.site.search_modes import MIN_SEARCH, charge, histogram_event, planned_trials
from dprbft.site.site import LEAST_NOISE, Client, spec_of
from dprbft.site.task import Task
from panas.architecture.cost import cost, cost_table
from panas.architecture.genome import Genome
from panas.architecture.latency import limited
from panas.architecture.limits import Constraints
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.data.search_split import SearchData, private_data, proxy_data
from panas.evolution.records import EvolutionConfig, EvolutionResult
from panas.evolution.site_search import search_architecture, search_without_data, size_of
from panas.privacy.accounting.events import Unprotected
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import label_histogram
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal, open_journal
from panas.runtime.seeds import stream, torch_generator
from panas.runtime.store import read_json, write_json
from panas.training.warm_start import WarmStart
from panas.tuning.bayesian import tune as tune_settings
from panas.tuning.budgeted import BudgetedSpace, ScheduleConstraint
from panas.tuning.objective import training_objective
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import TuningResult


def check(config: RunConfig, federation: Federation) -> None:
    """Refuse settings that a later stage would refuse, before anything is written or charged.

    Raises:
        BadInput: what that stage would say.

    """
    spec = spec_of(config, federation)
    spec.head(torch_generator(stream(config.seed, "head")))
    space = _space(config, spec, None)
    random_genome(space, stream(config.seed, "check"))
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
    """A client's architecture search; charges the ledger first. Returns what best.json holds."""
    client = task.load()
    c, b = client.config, client.spec
    histogram = _histogram(client, task.run)
    log = search_log(task.run, client.id)
    with open_journal(log, {"search": c.privacy.search, "client": client.id}) as journal:
        space, config = _space(c, b, task.run), c.search.evolution
        record = _search(task, client, space, config, histogram, journal)
    best = record.best
    price = cost(best, shape=b.shape, width=b.width, classes=b.classes, norm=b.norm)
    table = cost_table(best, shape=b.shape, width=b.width, classes=b.classes, norm=b.norm)
    return {
        "client": client.id,
        "genome": str(best),
        "blocks": best.to_json(),
        "fitness": record.fitness,
        "cost": asdict(price),
        "cost_table": [asdict(row) for row in table],
        "evaluations": record.evaluations,
        "passes": record.passes,
        "privacy": c.privacy.search,
        "histogram": histogram,
        "front": [[str(g), *rest] for g, *rest in record.front],
        "logbook": [r.to_json() for r in record.records],
        "history": [e.to_json() for e in record.history],
    }


def _search(
    task: Task,
    client: Client,
    space: SearchSpace,
    config: EvolutionConfig,
    histogram: list[float] | None,
    journal: Journal,
) -> EvolutionResult:
    c, size = client.config, size_of(client.spec, client.config.search.size)
    if c.privacy.search == "data-free":
        return search_without_data(
            spec=client.spec,
            space=space,
            config=config,
            seed=c.seed,
            client=client.id,
            algorithm=c.search.algorithm,
            size=size,
            workers=task.workers,
            journal=journal,
        )
    return search_architecture(
        _search_data(client, histogram),
        spec=client.spec,
        space=space,
        config=config,
        optimizer=c.search.optimizer,
        seed=c.seed,
        client=client.id,
        device=client.device,
        algorithm=c.search.algorithm,
        size=size,
        workers=task.workers,
        journal=journal,
    )


def _space(config: RunConfig, spec: NetworkSpec, run: Path | None) -> SearchSpace:
    """The space with its limits; without a run, as if every latency were allowed."""
    s = config.search
    return limited(
        s.space(spec.shape),
        spec,
        Constraints(
            parameters=s.max_parameters,
            macs=s.max_macs,
            bytes=s.max_bytes,
            latency_ms=s.max_latency_ms if run else None,
        ),
        table=latency_file(run) if run else None,
    )


def _histogram(client: Client, run: Path) -> list[float] | None:
    """The noised label histogram that a proxy needs, paid for once; None for other searches."""
    mode, path = client.config.privacy.search, histogram_file(run, client.id)
    if mode == "unaccounted" and not search_log(run, client.id).exists():
        with charge(client, Unprotected(), "search on private samples", "search", None):
            return None
    if mode != "proxy":
        return None
    if not path.exists():
        write_json(path, {"client": client.id, "histogram": _paid_histogram(client)})
    return list(read_json(path)["histogram"])


def _paid_histogram(client: Client) -> list[float]:
    """The client's noised label histogram, charged first; all classes alike if nothing is left."""
    # Without a budget there is nothing to be sparing of, and still no reason to be exact.
    event = histogram_event(client) if client.budget.private else Unprotected()
    alike = [1.0] * client.spec.classes
    if event is None:
        return alike  # nothing can be learnt of the labels for so little
    try:
        noised = label_histogram(
            lambda: client.data.train.y,
            classes=client.spec.classes,
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
    counts = torch.tensor(histogram) if histogram else torch.ones(client.spec.classes)
    return proxy_data(client.public, counts, samples=len(client.data.train), rng=rng)


def tune(task: Task) -> dict[str, Any]:
    """A client's DP-SGD settings. Returns what best.json holds."""
    client = task.load()
    c = client.config
    found = read_json(search_file(task.run, client.id))
    fixed = DPSGDSettings(
        learning_rate=c.training.optimizer.learning_rate,
        noise_multiplier=c.training.noise_multiplier or LEAST_NOISE,
        clip=c.training.clip,
        batch_size=c.training.optimizer.batch_size,
    )
    kept: dict[str, Any] = {
        "client": client.id,
        "setting": fixed.to_json() | {"noise_multiplier": c.training.noise_multiplier},
        "predicted": None,
        "trials": [],
    }
    if not planned_trials(client):
        return kept
    log = tune_log(task.run, client.id)
    with open_journal(log, {"tune": found["genome"], "client": client.id}) as journal:
        try:
            result = _tune(task, client, found, journal)
        except BudgetExhausted as e:
            # Training says so again and stops there, with the warm-started network kept.
            return kept | {"refused": str(e)}
    return {"client": client.id, **result.to_json()}


def _tune(task: Task, client: Client, found: dict[str, Any], journal: Journal) -> TuningResult:
    c = client.config
    start = WarmStart(
        genome=Genome.parse(found["genome"]),
        spec=client.spec,
        optimizer=client.warm,
        device=client.device,
    )
    schedule = client.schedule()
    objective = training_objective(
        _search_data(client, found["histogram"]),
        start,
        schedule,
        momentum=c.training.optimizer.momentum,
        seed=c.seed,
        client=client.id,
    )
    return tune_settings(
        objective,
        BudgetedSpace(c.tuning.space, ScheduleConstraint(client.budget, schedule)),
        c.tuning.config,
        rng=stream(c.seed, "client", client.id, "tune"),
        execution=Execution(workers=task.workers, journal=journal),
    )
