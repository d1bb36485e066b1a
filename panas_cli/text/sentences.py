"""What the domain reports, in words: events of a run, and prices of searches."""

from collections.abc import Mapping

from dprbft.config.schema import RunConfig
from dprbft.run.events import (
    Event,
    RoundEnded,
    SiteMissed,
    SiteSearched,
    SiteStarted,
    SiteTrained,
    SiteTuned,
)
from panas.search_modes.mode import SearchPrice, mode_named


def sentence(event: Event) -> str:
    """An event in words."""
    match event:
        case SiteSearched(site, r):
            of = "" if mode_named(r.mode).reads_samples else " (on noise)"
            return f"{site}: {r.genome}, fitness {r.fitness:.3f}{of}"
        case SiteTuned(site, r):
            s, noise = r.settings, r.noise_multiplier
            sigma = f"sigma {noise:.3g}" if noise else "least sigma"
            kept = "" if r.trials else "not tuned: "
            return (
                f"{site}: {kept}lr {s.learning_rate:.3g}, {sigma}, C {s.clip:.3g}, B {s.batch_size}"
            )
        case SiteStarted(site, validation):
            return f"{site}: starts at validation accuracy {validation:.3f}"
        case SiteTrained(site, round):
            return f"round {round}: {site} trained"
        case SiteMissed(site, round):
            return f"round {round}: {site} is not there; the round goes on without it"
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
