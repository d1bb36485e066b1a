"""What the domain reports, in words: events of a run, and prices of searches."""

from collections.abc import Mapping

from dprbft.config.schema import RunConfig
from dprbft.server.events import (
    ClientSearched,
    ClientStarted,
    ClientTrained,
    ClientTuned,
    Event,
    RoundEnded,
)
from panas.search_modes.mode import SearchPrice, mode_named


def sentence(event: Event) -> str:
    """An event in words."""
    match event:
        case ClientSearched(r):
            of = "" if mode_named(r.mode).reads_samples else " (on noise)"
            return f"client {r.client}: {r.genome}, fitness {r.fitness:.3f}{of}"
        case ClientTuned(r):
            s, noise = r.settings, r.noise_multiplier
            sigma = f"sigma {noise:.3g}" if noise else "least sigma"
            kept = "" if r.trials else "not tuned: "
            return (
                f"client {r.client}: {kept}lr {s.learning_rate:.3g}, {sigma}, C {s.clip:.3g}, "
                f"B {s.batch_size}"
            )
        case ClientStarted(client, validation):
            return f"client {client}: starts at validation accuracy {validation:.3f}"
        case ClientTrained(client, round):
            return f"round {round}: client {client} trained"
        case RoundEnded(round, rounds, accuracy):
            return f"round {round} of {rounds}: mean accuracy {accuracy:.3f}"


HISTOGRAMS = {
    "histogram": "one noised label histogram",
    "histogram kept": "a noised label histogram, paid already",
    "no histogram": "no histogram: all classes alike",
}
"""What a search on public samples pays for."""


def price_lines(prices: Mapping[int, SearchPrice], config: RunConfig) -> list[str]:
    """What searches will have cost: one line, or one a client if they differ."""
    budgets, mode = config.budgets(), config.privacy.search
    texts = {i: _price(p, mode, budgets[i].epsilon) for i, p in prices.items()}
    if len(set(texts.values())) == 1:
        return [f"search price: {next(iter(texts.values()))}"]
    return [f"search price, client {i}: {text}" for i, text in texts.items()]


def _price(price: SearchPrice, mode: str, budget: float) -> str:
    if price.reason == "noise":
        return f"epsilon 0 ({mode} search: genomes are scored on noise)"
    if price.reason == "unbounded":
        return f"epsilon infinity ({mode} search: nothing bounds it)"
    text = f"epsilon {price.epsilon:.2f} of {budget:g}"
    if price.reason in HISTOGRAMS:
        return f"{text}, for {HISTOGRAMS[price.reason]} (search on proxies of public data)"
    return f"{text} ({mode} search: {price.reason})"
