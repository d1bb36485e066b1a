"""What the domain reports, in words: what was found, and events of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dprbft.run.events import (
    Event,
    HeadShared,
    OtherVersion,
    RoundEnded,
    SiteDone,
    SiteKept,
    SiteLeftOut,
    SiteMissed,
    SiteReleased,
    SiteSearched,
    SiteStarted,
    SiteTrained,
    SiteTuned,
    Why,
)
from dprbft.run.view import RunView
from dprbft.site.results.seen import SeenSamples
from panas.data.encoder import EncoderFacts
from panas.data.facts import Facts
from panas.search_modes.mode import SearchPrice, mode_named
from panas_cli.text.joining import released_text, shares_text, tuned_text
from panas_cli.text.printing import counted

STAGES = {
    "start": "the run",
    "join": "joining",
    "search": "the search",
    "tune": "tuning",
    "train": "training",
}
"""What goes on without a site."""
WHY: Mapping[Why, str] = {
    "absent": "is not there, or does not answer (its node.log says why)",
    "behind": "has missed search or tuning",
    "refused": "refused (its reason is in node.log at the site)",
    "budget": "cannot pay for it (its reason is in node.log at the site)",
    "failed": "failed (node.log at the site, or what its node wrote, says where)",
    "version": "has another wire version",
    "reply": "sent what is no release (server/refused.jsonl says what was expected)",
}
"""Why a site has no part in something."""
MISSED = "the round goes on without it"


def sentence(event: Event) -> str:
    """An event in words."""
    match event:
        case OtherVersion(site, line):
            return f"warning: {site}: {line}"
        case SiteLeftOut(site, stage, why):
            return (
                f"warning: {site} {WHY[why]}: {STAGES[stage]} goes on without it; --resume takes "
                "it up again when it is back"
            )
        case SiteSearched(site, r):
            of = "" if mode_named(r.mode).reads_samples else " (on noise)"
            return f"{site}: {r.genome}, fitness {r.fitness:.3f}{of}"
        case SiteTuned(site, r):
            return f"{site}: {tuned_text(r)}"
        case SiteDone(site, stage):
            return f"{site}: {STAGES[stage]} is done"
        case SiteStarted(site, validation):
            at = (
                "is ready"
                if validation is None
                else f"starts at validation accuracy {validation:.3f}"
            )
            return f"{site}: {at}"
        case SiteTrained(site, round):
            return f"round {round}: {site} trained"
        case SiteMissed(site, round, why):
            return f"round {round}: {site} {WHY[why]}; {MISSED}"
        case RoundEnded(round, rounds, accuracy):
            mean = "done" if accuracy is None else f"mean accuracy {accuracy:.3f}"
            return f"round {round} of {rounds}: {mean}"
        case SiteReleased(site, sent, m, masked):
            return f"{site}: {released_text(sent, m, masked)}"
        case HeadShared(sites):
            return f"the shared head of {counted(sites, 'site')} is with all of them"
        case SiteKept(site, shares, accuracy):
            return f"{site}: accuracy {accuracy:.3f}, {shares_text(shares)}"


HISTOGRAMS = {
    "histogram": "one noised label histogram",
    "histogram kept": "a noised label histogram, paid already",
    "no histogram": "no histogram: all classes alike",
}
"""What a search on public samples pays for."""


def seen_lines(view: RunView) -> list[str]:
    """What samples of the sites have cost in other ledgers: the budget belongs to the data."""
    lines = []
    for paths in view.sites:
        if seen := SeenSamples.read(paths.home):
            lines.append(f"warning: {paths.name}: {seen_text(seen)}; --strict refuses")
    return lines


def seen_text(seen: SeenSamples) -> str:
    """What some of a site's samples have cost in other ledgers.

    Runs are counted where one ledger knows them all: others may know the same run.
    """
    some = "these" if seen.overlap == seen.samples else f"{seen.overlap} of {seen.samples}"
    runs = f"{counted(seen.runs, 'earlier run')} (ledger {seen.ledgers[0]})"
    if len(seen.ledgers) > 1:
        runs = f"earlier runs of {len(seen.ledgers)} ledgers (one is {seen.ledgers[0]})"
    return (
        f"{some} samples have spent up to epsilon {seen.epsilon:.2f} in {runs}; together up to "
        f"{seen.together:.2f} with this run"
    )


def price_lines(prices: Mapping[int, SearchPrice], view: RunView) -> list[str]:
    """What searches will have cost: one line, or one a site if they differ."""
    config, mode = view.config, view.config.privacy.search
    texts = {i: _price(p, mode, config.budget(i).epsilon) for i, p in prices.items()}
    if len(set(texts.values())) == 1:
        return [f"search price: {next(iter(texts.values()))}"]
    return [f"search price, {view.sites[i].name}: {text}" for i, text in texts.items()]


def _price(price: SearchPrice, mode: str, budget: float) -> str:
    if price.reason == "noise":
        return f"epsilon 0 ({mode} search: genomes are scored on noise)"
    if price.reason == "unbounded":
        return f"epsilon infinity ({mode} search: nothing bounds it)"
    text = f"epsilon {price.epsilon:.2f} of {budget:g}"
    if price.reason in HISTOGRAMS:
        return f"{text}, for {HISTOGRAMS[price.reason]} (search on proxies of public data)"
    return f"{text} ({mode} search: {price.reason})"


@dataclass(frozen=True, kw_only=True)
class PublicSamples:
    """Numbers of a run's public samples."""

    labelled: int
    unprotected: bool = False  # whether they are of the data set that the sites share out
    unlabelled: int = 0


def data_lines(
    name: str, facts: Facts, sites: int, sizes: Sequence[int], public: PublicSamples
) -> list[str]:
    """What the data of a run are, in lines.

    Args:
        name: of the data set.
        facts: shape, classes and columns.
        sites: how many there are.
        sizes: samples of each site; () where nobody counted.
        public: numbers of public samples.

    Privacy: numbers of samples and what is public of the data, and no label or cell.
    """
    result = [counted(sum(sizes), "sample")] if sizes else []
    result += [counted(facts.classes, "class", "classes"), _shape(facts)]
    each = ""
    if sizes:
        same = min(sizes) == max(sizes)
        each = f" of {min(sizes):,}{'' if same else f' to {max(sizes):,}'} samples"
    lines = [f"{name}: {', '.join(result)}; {counted(sites, 'site')}{each}"]
    lines += [f"encoder: {encoder_text(facts.encoder)}"] if facts.encoder else []
    labelled = counted(public.labelled, "sample")
    if public.labelled and public.unprotected:
        lines.append(f"public: {labelled} of this data set, which have NO protection")
    elif public.labelled:
        lines.append(f"public: {labelled}, apart from those of the sites")
    elif public.unlabelled:
        lines.append("public: no labels; classes are learnt from the sites' samples alone")
    else:
        lines.append("public: no samples; everything is learnt from the sites' samples")
    if public.unlabelled:
        lines.append(f"public, without labels: {counted(public.unlabelled, 'sample')}")
    return lines


def encoder_text(encoder: EncoderFacts) -> str:
    """An encoder, the pictures that it reads, and what it makes of them."""
    channels, height, width = encoder.shape
    colour = "grey" if channels == 1 else "colour"
    means, deviations = (", ".join(f"{v:.3g}" for v in t) for t in (encoder.mean, encoder.std))
    return (
        f"{encoder.name} (SHA-256 {encoder.digest}...); {colour} pictures of {height} x {width}, "
        f"mean {means}, deviation {deviations}; {counted(encoder.outputs, 'number')} each"
    )


def _shape(facts: Facts) -> str:
    if facts.vectors:
        return f"vectors of {counted(facts.shape[2], 'number')}"
    if facts.columns:
        return f"a table of {counted(len(facts.columns), 'column')}"
    channels, height, width = facts.shape
    colour = {1: "grey ", 3: "colour "}.get(channels, "")
    of = "" if colour else f" with {channels} channels"
    return f"{colour}pictures of {height} x {width}{of}"
