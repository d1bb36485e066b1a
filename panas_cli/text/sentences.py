"""What the domain reports, in words: what was found, events of a run, and what it came to."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dprbft.run.events import (
    Event,
    HeadShared,
    RoundEnded,
    SiteKept,
    SiteLeftOut,
    SiteMissed,
    SiteReleased,
    SiteSearched,
    SiteStarted,
    SiteTrained,
    SiteTuned,
)
from dprbft.run.view import RunView
from dprbft.site.joining import SeenSamples
from panas.data.facts import Facts
from panas.search_modes.mode import SearchPrice, mode_named
from panas.training.baselines import Baselines
from panas.training.ladder import Ladder, NoGain, no_gains
from panas_cli.text.printing import counted

STAGES = {
    "start": "the run",
    "join": "joining",
    "search": "the search",
    "tune": "tuning",
    "train": "training",
}
"""What goes on without a site."""


def sentence(event: Event) -> str:
    """An event in words."""
    match event:
        case SiteLeftOut(site, stage, behind):
            why = "has missed search or tuning" if behind else "is not there"
            return (
                f"warning: {site} {why}: {STAGES[stage]} goes on without it; --resume takes it up "
                "again when it is back"
            )
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
        case SiteReleased(site):
            return f"{site}: has answered, its release covered by the ledger"
        case HeadShared(sites):
            return f"the shared head of {counted(sites, 'site')} is with all of them"
        case SiteKept(site, shares, accuracy):
            return f"{site}: accuracy {accuracy:.3f}, {shares_text(shares)}"


CANDIDATES = {
    "public": "public head",
    "shared": "shared head",
    "own": "own head",
    "shrunk": "own head shrunk to the shared one",
    "residual": "shared head with private residual",
    "network": "network",
}
"""What a site that has joined may predict with."""


def shares_text(shares: Mapping[str, float]) -> str:
    """What an average is made of, the largest parts, as validation samples weigh them."""
    parts = sorted(((share, name) for name, share in shares.items()), reverse=True)
    told = (f"{CANDIDATES[name]} {share:.0%}" for share, name in parts if share >= 0.05)
    return "predicts with " + ", ".join(told)


HISTOGRAMS = {
    "histogram": "one noised label histogram",
    "histogram kept": "a noised label histogram, paid already",
    "no histogram": "no histogram: all classes alike",
}
"""What a search on public samples pays for."""


def seen_lines(view: RunView) -> list[str]:
    """What samples of the sites have cost in other ledgers: the budget belongs to the data."""
    lines = []
    for place in view.places:
        if seen := SeenSamples.read(place.home):
            some = "these" if seen.overlap == seen.samples else f"{seen.overlap} of {seen.samples}"
            lines.append(
                f"warning: {place.name}: {some} samples have spent epsilon {seen.epsilon:.2f} in "
                f"{counted(seen.runs, 'earlier run')} (ledger {seen.ledgers[0]}); together "
                f"{seen.together:.2f} with this run; --strict refuses"
            )
    return lines


def price_lines(prices: Mapping[int, SearchPrice], view: RunView) -> list[str]:
    """What searches will have cost: one line, or one a site if they differ."""
    config, mode = view.config, view.config.privacy.search
    texts = {i: _price(p, mode, config.budget(i).epsilon) for i, p in prices.items()}
    if len(set(texts.values())) == 1:
        return [f"search price: {next(iter(texts.values()))}"]
    return [f"search price, {view.places[i].name}: {text}" for i, text in texts.items()]


def _price(price: SearchPrice, mode: str, budget: float) -> str:
    if price.reason == "noise":
        return f"epsilon 0 ({mode} search: genomes are scored on noise)"
    if price.reason == "unbounded":
        return f"epsilon infinity ({mode} search: nothing bounds it)"
    text = f"epsilon {price.epsilon:.2f} of {budget:g}"
    if price.reason in HISTOGRAMS:
        return f"{text}, for {HISTOGRAMS[price.reason]} (search on proxies of public data)"
    return f"{text} ({mode} search: {price.reason})"


def found_lines(
    name: str,
    facts: Facts,
    sites: int,
    sizes: Sequence[int],
    public: int,
    unprotected: int = 0,
    unlabelled: int = 0,
) -> list[str]:
    """What a run has found: `sizes` are the samples of each site, () where nobody counted.

    Of `public` samples, `unprotected` ones are of the data set that the sites share out. Privacy:
    numbers of samples and what is public of the data, and no label or cell.
    """
    found = [counted(sum(sizes), "sample")] if sizes else []
    found += [counted(facts.classes, "class", "classes"), _shape(facts)]
    each = ""
    if sizes:
        same = min(sizes) == max(sizes)
        each = f" of {min(sizes):,}{'' if same else f' to {max(sizes):,}'} samples"
    lines = [f"{name}: {', '.join(found)}; {counted(sites, 'site')}{each}"]
    if unprotected:
        lines.append(
            f"public: {counted(unprotected, 'sample')} of this data set, which have NO protection"
        )
    elif public:
        lines.append(f"public: {counted(public, 'sample')}, apart from those of the sites")
    elif unlabelled:
        lines.append("public: no labels; all labels are learnt under the budget")
    else:
        lines.append("public: no samples; everything is learnt under the budget")
    if unlabelled:
        lines.append(f"public, without labels: {counted(unlabelled, 'sample')}")
    return lines


def _shape(facts: Facts) -> str:
    if facts.columns:
        return f"a table of {counted(len(facts.columns), 'column')}"
    channels, height, width = facts.shape
    colour = {1: "grey ", 3: "colour "}.get(channels, "")
    of = "" if colour else f" with {channels} channels"
    return f"{colour}pictures of {height} x {width}{of}"


def absent_lines(names: Sequence[str]) -> list[str]:
    """Which sites a summary knows nothing of, in a line if there are any."""
    if not names:
        return []
    return [
        f"warning: {', '.join(names)} did not take part, or cannot be read now; --resume takes up "
        "what is back"
    ]


def no_gain_lines(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning a site for which a step that costs privacy brought nothing."""
    lines = []
    for c in clients:
        found = Baselines.from_json(b) if (b := c.get("baselines")) else None
        steps = Ladder.from_json(c["ladder"])
        spent = float(c["epsilon"]["spent"])  # a word where it is infinite
        gains = no_gains(steps, spent, found, kept_public=c["selected_round"] == 0)
        if gains:
            why = "; ".join(_no_gain(g) for g in gains)
            lines.append(f"warning: {c['name']} {why}")
    return lines


def _no_gain(gain: NoGain) -> str:
    spent = f"{gain.epsilon:.1f} of epsilon brought nothing"
    beaten = f"{gain.reached:.3f} against {gain.to_beat:.3f}"
    if gain.kept_public:
        return f"keeps the public network: {spent}"
    if gain.step == "training":
        return f"is no better than its public start ({beaten}): {spent}"
    if gain.step == "joining":
        return f"is no better than alone ({beaten}): joining brought nothing"
    return f"does not beat a {gain.rival} on public samples ({beaten})"


def meaning_lines(summary: Mapping[str, Any]) -> list[str]:
    """What a run's figures mean: whether joining helped, and what its epsilon promises."""
    lines, clients = [], summary["clients"]
    ladder = Ladder.from_json(summary["accuracy"]["ladder"]) if _has_ladder(summary) else None
    if ladder and ladder.joined is not None:
        below = [
            f"{x:.3f} {what}"
            for what, x in (
                ("for the most frequent class", ladder.majority),
                ("from public samples alone", ladder.public),
                ("on each site alone", ladder.alone),
            )
            if x is not None
        ]
        lines.append(f"in short: mean accuracy {ladder.joined:.3f} joined; " + ", ".join(below))
        if ladder.alone is not None:
            public = ladder.public if ladder.public is not None else -math.inf
            gain = ladder.joined - max(ladder.alone, public)
            against = " against public samples alone" if public > ladder.alone else ""
            lines.append(
                f"joining {'helped' if gain > 0 else 'did not help'} ({gain:+.3f}{against})"
            )
    worst = max(clients, key=lambda c: float(c["epsilon"]["spent"]))
    return [*lines, _promise(float(worst["epsilon"]["spent"]), worst["delta"], worst["unit"])]


def _has_ladder(summary: Mapping[str, Any]) -> bool:
    return bool(summary["accuracy"].get("ladder"))


def _promise(epsilon: float, delta: float, unit: str) -> str:
    if math.isinf(epsilon):
        return f"privacy: epsilon is infinite: nothing bounds what was learnt about {unit}"
    if not epsilon:
        return "privacy: nothing that left was computed from private samples"
    what, colon, group = unit.partition(": ")
    any_one = f"{what} ({group})" if colon else what
    factor = math.exp(epsilon)
    times = f"{float(f'{factor:.2g}'):,g}" if factor < 1e6 else f"{factor:.0e}"
    return (
        f"privacy: with or without any {any_one}, whatever left is at most {times} times "
        f"likelier (epsilon {epsilon:.2f}, but for a chance of {delta:g}): {_strength(epsilon)}"
    )


def _strength(epsilon: float) -> str:
    """In the three tiers of Ponomareva et al. 2023 (How to DP-fy ML), section 5.2."""
    if epsilon <= 1:
        return "a strong promise"
    return "a reasonable promise" if epsilon <= 10 else "a weak promise"
