"""What a client's search looks at, by `privacy.search`, and what that costs.

| mode | looks at | charged to | price |
|---|---|---|---|
| `proxy` | public samples, resampled to a noised label histogram | train | the histogram's |
| `data-free` | noise | nothing | 0 |
| `dp` | the private search split, by noised scores | search | up to the whole budget |
| `unaccounted` | the private search split (the paper) | search | infinity |

The search split and the training samples are disjoint parts of a client's data, declared before
either is touched, so that they compose in parallel: what `dp` spends on the one part takes nothing
from the other, and the client's epsilon is the larger of the two. What a search does cost is the
samples it holds back from training.

In `dp`, candidates train on the public part, at no cost, and every search sample scores them.
Without a public part the search split is divided once more: "search/train" trains candidates by
DP-SGD, "search/validation" scores them, and each pays for all candidates out of its own budget.
Noise then comes from the operating system, never from the run's seed, which is why such a search
does not repeat. A search that died has spent what it charged; the next one makes do with the rest.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dprbft.config.participation import rounds_of
from dprbft.simulation.federation import search_parts
from dprbft.site.site import Client
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, Head
from panas.architecture.space import SearchSpace
from panas.data.samples import Samples
from panas.evolution.fitness import TrainingFitness
from panas.evolution.genetic import evolve
from panas.evolution.noised_selection import (
    NoisedScores,
    Scoring,
    calibrate_candidates,
    calibrate_scores,
    noised_share,
    select,
)
from panas.evolution.records import EvolutionConfig, EvolutionResult
from panas.evolution.site_search import prior_of
from panas.privacy.accounting.events import Event, Gaussian, Relation, Unprotected
from panas.privacy.ledger.ledger import Receipt
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan, epsilon_of, release_multiplier
from panas.runtime.errors import BudgetExhausted
from panas.runtime.journal import Journal
from panas.runtime.seeds import stream, torch_generator
from panas.training.sgd import OptimizerConfig, accuracy, fit_private

VALIDATION = 0.3
"""Share of the search split that scores, where the rest has to train the candidates."""

MIN_SEARCH = {"dp": 10, "unaccounted": 4}
"""With fewer search samples a score would be noise, or there would be none to score on."""


def planned_trials(client: Client) -> int:
    """How many settings tuning will try; 0 where it has nothing to learn from, or nothing to do."""
    c = client.config
    if c.privacy.search == "data-free" or (c.privacy.search == "dp" and not len(client.public)):
        return 0
    tunes = client.budget.private and c.training.noise_multiplier is None
    return c.tuning.trials if tunes and rounds_of(c, client.id) else 0


@dataclass(frozen=True)
class SearchPrice:
    """What a client's whole search, tuning included, will have cost.

    Attributes:
        epsilon: as the ledger will show it for the search.
        text: one line that says so.

    """

    epsilon: float
    text: str


def search_price(client: Client, *, paid: bool = False, done: int = 0) -> SearchPrice:
    """The price of a client's search, known before it begins; reads no private sample.

    Args:
        client: whose search it is.
        paid: whether its label histogram is there already.
        done: generations of its search that are through.

    """
    mode, budget = client.config.privacy.search, client.budget
    if mode == "data-free":
        return SearchPrice(0.0, "epsilon 0 (data-free search: genomes are scored on noise)")
    if mode == "unaccounted" or not budget.private:
        return SearchPrice(math.inf, f"epsilon infinity ({mode} search: nothing bounds it)")
    account = client.ledger.account(client.id)
    before = account.events("search")
    if mode == "proxy":
        event = None if paid else histogram_event(client)
        affordable = event is not None and _fits(client, [*client.schedule().spent, event])
        spent = _cost(client, [*before, event] if affordable and event else before)
        what = "one noised label histogram" if affordable else "no histogram: all classes alike"
        what = "a noised label histogram, paid already" if paid else what
        text = f"epsilon {spent:.2f} of {budget.epsilon:g}, for {what}"
        return SearchPrice(spent, f"{text} (search on proxies of public data)")
    scoring = planned_scoring(client, done)
    parts = _parts(client)
    planned = scoring.events() if scoring.noise else ()
    after = [_cost(client, [*account.events_on(parts[-1]), *planned])]
    if len(parts) > 1 and planned:
        plan = planned_candidates(client, scoring)
        events = [*account.events_on(parts[0]), *scoring.training_events(plan)]
        after.append(_cost(client, events))
    number = f"{scoring.candidates} + {scoring.trials} noised scores"
    if scoring.algorithm == "random":
        number = f"about {scoring.candidates} candidates, one winner, {scoring.trials} scores"
    text = f"epsilon {max(after):.2f} on the search split, which no training sample shares"
    return SearchPrice(max(after), f"{text} (dp search, {scoring.algorithm}: {number})")


def _relation(client: Client) -> Relation:
    return client.ledger.account(client.id).relation


def _cost(client: Client, events: Sequence[Event]) -> float:
    return epsilon_of(events, client.budget, relation=_relation(client))


def _fits(client: Client, events: Sequence[Event]) -> bool:
    return _cost(client, events) <= client.budget.epsilon


def histogram_event(client: Client) -> Gaussian | None:
    """What a proxy's label histogram costs; None if no noise is enough for the budget."""
    try:
        share = client.config.privacy.histogram_share
        return Gaussian(release_multiplier(client.budget, 1, share))
    except BudgetExhausted:
        return None


def _parts(client: Client) -> tuple[str, ...]:
    return search_parts(client.config, len(client.public))


def _spent(client: Client, part: str) -> list[Event]:
    return list(client.ledger.account(client.id).events_on(part))


def planned_scoring(client: Client, done: int = 0) -> Scoring:
    """How a dp search scores, with the noise that what is left of the budget needs.

    `done` generations are through, and paid for already.
    """
    s = client.config.search
    draft = Scoring(
        algorithm=s.algorithm,
        population=s.population if s.algorithm == "random" else max(s.population, s.offspring or 0),
        generations=s.generations - done,
        trials=planned_trials(client),
        noise=0.0,
    )
    if not client.budget.private or draft.generations < 0:
        return draft
    spent = _spent(client, _parts(client)[-1])
    return calibrate_scores(draft, client.budget, spent, _relation(client))


def planned_candidates(client: Client, scoring: Scoring) -> Plan:
    """How a dp search without public samples trains each candidate."""
    t, n = client.config.training, len(client.data.search)
    draft = Plan(
        samples=n - _scoring_samples(n),
        batch_size=t.batch_size,
        clip=t.clip,
        noise_multiplier=1.0,
        epochs=client.config.search.epochs,
        rounds=1,
    )
    spent = _spent(client, "search/train")
    return calibrate_candidates(scoring, client.budget, draft, spent, _relation(client))


def _divided(client: Client) -> tuple[Samples, Samples]:
    """The search split's parts that train and score candidates; by lot, whatever the labels are."""
    search = client.data.search
    order = stream(client.config.seed, "client", client.id, "search-data").permutation(len(search))
    scoring = _scoring_samples(len(search))
    return search.take(order[scoring:]), search.take(order[:scoring])


def _scoring_samples(search: int) -> int:
    return max(1, round(VALIDATION * search))


def dp_search(
    client: Client,
    space: SearchSpace,
    config: EvolutionConfig,
    optimizer: OptimizerConfig,
    journal: Journal,
) -> tuple[Genome, float, EvolutionResult | None, float]:
    """A client's architecture by noised scores on its search split, charged before each is taken.

    Generations that the journal holds are paid for; the genetic search goes on after them.

    Returns:
        Genome, its noised fitness, the whole record (None after a private selection, which
        covers the winner alone), and the scores' noise in samples.

    Raises:
        BudgetExhausted: if searches that died have spent what this one would need.

    """
    c, noise, parts = client.config, SystemNoise(), _parts(client)
    scoring = planned_scoring(client, done=len(journal.lines))
    if len(client.public):
        train, score_on, plan = client.public, client.data.search, None
    else:
        train, score_on = _divided(client)
        plan = planned_candidates(client, scoring) if client.budget.private else None

    fitness = TrainingFitness(
        train, score_on, client.spec, optimizer, c.seed, client.id, str(client.device)
    )

    def count(genome: Genome) -> float:
        if plan is None:
            networks = fitness.trained(genome)
        else:
            networks = _trained_privately(client, genome, train, plan)
        return accuracy(*networks, score_on) * len(score_on)

    @contextmanager
    def paid() -> Iterator[None]:
        with ExitStack() as charges:
            if len(parts) > 1:
                event = scoring.training_event(plan) if plan else Unprotected()
                of_clip = c.training.clip if plan else None
                charges.enter_context(charge(client, event, "dp-sgd", parts[0], of_clip))
            event = scoring.search_event if scoring.noise else Unprotected()
            charges.enter_context(charge(client, event, "noised scores", parts[-1], 1.0))
            yield

    if scoring.algorithm == "random":
        best, share = select(
            space, count, scoring=scoring, samples=len(score_on), paid=paid, noise=noise
        )
        return best, share, None, scoring.noise
    rng = stream(c.seed, "client", client.id, "search")
    scores = NoisedScores(scoring, len(score_on), count, paid, noise)
    prior = prior_of(client.spec.shape)
    result = evolve(
        space, count, config=config, rng=rng, prior=prior, journal=journal, evaluator=scores
    )
    return result.best, result.fitness, result, scoring.noise


def judge_of(client: Client, noise_before: float, done: int = 0) -> Callable[[Bottom, Head], float]:
    """How a dp search scores a setting: a noised share of right answers, charged before.

    Args:
        client: whose search split it is.
        noise_before: the noise of the search's scores, kept where what is left affords it.
        done: trials that are through, and paid for.

    Raises:
        BudgetExhausted: if what is left affords no trial that says anything.

    """
    search, noise = client.data.search, SystemNoise()
    trials = max(0, planned_trials(client) - done)
    s = noise_before
    spent = _spent(client, "search")
    if client.budget.private and not (s > 0 and _fits(client, [*spent, *(Gaussian(s),) * trials])):
        left = Scoring(
            algorithm="genetic", population=1, generations=0, trials=trials - 1, noise=1.0
        )
        s = calibrate_scores(left, client.budget, spent, _relation(client)).noise
        if s > len(search):
            raise BudgetExhausted(
                f"expected noise below the {len(search)} search samples of client {client.id}, "
                f"got {s:.3g}, all that trials which died have left; raise --epsilon, or start a "
                "new run"
            )

    def judge(bottom: Bottom, head: Head) -> float:
        event = Gaussian(s) if s else Unprotected()
        with charge(client, event, "noised scores", "search", 1.0):
            right = accuracy(bottom, head, search) * len(search)
            return min(1.0, max(0.0, noised_share(right, len(search), s, noise)))

    return judge


def charge(
    client: Client, event: Event, mechanism: str, subset: str, sensitivity: float | None
) -> Receipt:
    """Charge a client's search for something; the samples are touched inside its context."""
    return client.ledger.charge(
        client.id,
        event,
        phase="search",
        mechanism=mechanism,
        recipient="whoever sees the architecture or the settings",
        sensitivity=sensitivity,
        subset=subset,
    )


def _trained_privately(
    client: Client, genome: Genome, samples: Samples, plan: Plan
) -> tuple[Bottom, Head]:
    """A candidate's network after DP-SGD on `samples`, which are charged."""
    t = client.config.training
    generator = torch_generator(
        stream(client.config.seed, "client", client.id, "fitness", str(genome))
    )
    bottom = client.spec.bottom(genome, generator).to(client.device)
    head = client.spec.head(generator).to(client.device)
    optimizer = OptimizerConfig(learning_rate=t.learning_rate, momentum=t.momentum)
    fit_private(
        bottom,
        head,
        samples,
        plan=plan,
        optimizer=optimizer,
        noise=SystemNoise(),
        train_head=client.train_head,
    )
    return bottom, head
