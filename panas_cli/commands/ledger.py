"""`panas ledger`: the privacy card of every client of a run, or of one site by run."""

import textwrap
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from dprbft.paths import (
    SitePlace,
    ledger_file,
    model_file,
    places_of,
    predictor_file,
    settings_file,
    sites_file,
)
from dprbft.site.directory import read_site
from dprbft.site.site import check_book
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    PostProcessing,
    SampledGaussian,
    Unprotected,
    event_to_json,
)
from panas.privacy.ledger.account import Account, totals
from panas.privacy.ledger.charge import Entry
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.exclusions import EXCLUSIONS
from panas.privacy.release.kind import kind_named, kind_names
from panas.runtime.errors import BadInput
from panas.training.linear.predictor import read_predictor
from panas_cli.text.printing import figure, json_number, print_json, print_text

UNPROTECTED = {
    "search on private samples": "architecture and settings were chosen by looking at private "
    "samples; whoever sees them learns from those samples, without bound",
    "sgd": "the network was trained without noise; its weights can remember single samples",
    "label-histogram": "the exact label counts decided the public sample that was searched on; in "
    "method joined the server has them",
}

PURPOSES = {
    ("label-histogram", "server"): "class frequencies, by which the server balances the shared "
    "head; they are the site's prior, and its search follows them at no further cost",
    ("moments", "server"): "noised sums of representations, of which the server makes one head",
    ("dp-sgd", "whoever sees the network, which learns from it"): "a linear residual over the "
    "shared head",
}
"""What is paid for, by mechanism and who sees it."""
STAYS = "stays"
WIDTH = 80
LEDGER = "ledger.jsonl"


def ledger(folder: Path, group: int, json: bool, moved: bool) -> None:
    """Show what every client, or one site, has spent, on what, and what is not covered."""
    if group < 1:
        raise BadInput(f"expected a --group of 1 or more, got {group}; give how many samples")
    if moved:
        own = Ledger(folder / LEDGER)
        for book in [own] if _is_site(folder) else [book for _, book in _books(folder)]:
            book.moved()
    record, lines = (_of_site if _is_site(folder) else _of_run)(folder, group)
    if json:
        print_json(record | {"not_covered": list(EXCLUSIONS)})
        return
    for line in (*lines, "not covered:"):
        print_text(line)
    for what in EXCLUSIONS:
        print_text(_wrapped(f"- {what}", 2))
    print_text("(note a ledger's hash elsewhere: it tells it from one put in its place)")


def _is_site(folder: Path) -> bool:
    """Whether a folder is a site's: it has a ledger and no run's settings."""
    # A deleted ledger leaves its head, and is named by the reader.
    files = (LEDGER, "ledger.head")
    return not (folder / "config.toml").exists() and any((folder / f).is_file() for f in files)


def _books(run: Path) -> list[tuple[SitePlace, Ledger]]:
    """The ledgers of a run's sites that have one; a deleted one leaves its head."""
    if not sites_file(run).exists():
        raise BadInput(f"expected a run directory with a ledger at {run}, found none")
    paths = {place: ledger_file(place.folder) for place in places_of(run)}
    here = [p for p, path in paths.items() if path.exists() or path.with_suffix(".head").exists()]
    return [(place, check_book(place)) for place in here]


def _of_run(run: Path, group: int) -> tuple[dict[str, Any], list[str]]:
    """The cards of all clients of a run, as JSON and as lines."""
    rows, lines = [], list[str]()
    for place, book in _books(run):
        account = book.account().of_run(place.run)
        row = _card(account, group) | _file(book)
        rows.append({"client": place.index, "name": place.name} | row)
        lines += [*_text(place.name, account, row), *_stays(place), *_told(row), ""]
    return {"run": str(run), "clients": rows}, lines


def _of_site(site: Path, group: int) -> tuple[dict[str, Any], list[str]]:
    """The card of a site over all its runs, as JSON and as lines."""
    book = Ledger(site / LEDGER)
    account = book.account()
    row = _card(account, group) | _file(book)
    known = settings_file(site).is_file()
    name = read_site(site).name if known else site.resolve().name
    lines = list(_text(f"site {name}", account, row))
    runs = {name: account.of_run(name) for name in account.runs}
    for name, own in runs.items():
        asked = f" of {figure(own.budget.epsilon)} that it asked for" if name else ""
        whose = f"run {name}" if name else "outside of runs"
        lines.append(_wrapped(f"  {whose}: epsilon = {figure(own.spent())}{asked}", 4))
    left = account.left()
    lines.append(
        f"  left for a new run: epsilon = {figure(left)} at delta = {account.budget.delta:g}"
    )
    record = {"site": str(site)} | row | {"left": json_number(left)}
    record["runs"] = [{"run": name} | _card(own, group) for name, own in runs.items()]
    return record, [*lines, *_told(row), ""]


def _stays(place: SitePlace) -> Iterator[str]:
    """What of a site that has joined is covered by nothing."""
    if (file := predictor_file(place.home)).exists():
        yield _wrapped(
            f"  {file.parent.name}/{file.name} stays with the site: validation samples, which "
            "nothing covers, weigh what is in it",
            4,
        )
        if read_predictor(file).notes["network"] == STAYS:
            yield _wrapped(
                f"  {file.parent.name}/{model_file(place.home).name} stays, too: residual and "
                "network trained without noise (privacy.network = stays)",
                4,
            )


def _file(book: Ledger) -> dict[str, Any]:
    """The state of a ledger's file."""
    count, digest = book.head()
    places = [place.folder for place in book.places()]
    return {
        "chain": {"lines": count, "hash": digest},
        "places": places,
        "copy": book.is_copy,
    }


def _told(row: dict[str, Any]) -> Iterator[str]:
    yield f"  ledger: {row['chain']['lines']} lines, whole; its last line has hash"
    yield f"    {row['chain']['hash']}"
    if len(row["places"]) > 1:
        yield _wrapped(f"  begun in {row['places'][0]}", 4)
        for folder in row["places"][1:]:
            yield _wrapped(f"  said to be moved to {folder}", 4)
    if row["copy"]:
        text = f"  a copy, or moved without a word, from {row['places'][-1]}: nothing can be spent"
        yield _wrapped(text, 4)


def _card(account: Account, group: int) -> dict[str, Any]:
    """What the card says: totals, each mechanism, and epsilon for a group."""
    card = totals(account)
    card["mechanisms"] = [
        {
            "subset": es[0].charge.subset,
            "phase": es[0].charge.phase,
            "mechanism": es[0].charge.mechanism,
            "recipient": es[0].charge.recipient,
            "times": len(es),
            "reserved": sum(not e.finished for e in es),
            "sensitivity": sorted({x for e in es if (x := e.charge.sensitivity) is not None})
            or None,  # where nothing bounds it
            "epsilon": json_number(account.price(e.event for e in es)),
            "event": event_to_json(es[-1].event),
            "covered": not any(isinstance(e.event, Unprotected) for e in es),
            **_trusted(account, es),
        }
        for es in _groups(account)
    ]
    if group > 1:
        card |= {"group": group, "group_epsilon": json_number(_for_group(account, group))}
    return card


def _trusted(account: Account, entries: list[Entry]) -> dict[str, Any]:
    """What charges rest on, and what they cost where that fails; {} where they rest on nothing."""
    if not any(e.charge.trust for e in entries):
        return {}
    return {
        "trust": [e.charge.trust.to_json() for e in entries if e.charge.trust],
        "epsilon_local": json_number(account.price(e.local.event for e in entries)),
    }


def _for_group(account: Account, group: int) -> float:
    """At most what a user with k samples has; they may lie in different parts, which then add."""
    events = [e.event for e in account.entries]
    return epsilon(events, account.budget.delta, relation=account.relation, group=group)


def _groups(account: Account) -> Iterator[list[Entry]]:
    """Charges of the same mechanism on the same subset, in order of phase."""
    for phase in ("search", "training", "release"):
        entries = [e for e in account.entries if e.charge.phase == phase]
        keys = [(e.charge.subset, e.charge.mechanism, e.charge.recipient) for e in entries]
        for key in dict.fromkeys(keys):
            yield [e for e, own in zip(entries, keys, strict=True) if own == key]


def _text(whose: str, account: Account, row: dict[str, Any]) -> Iterator[str]:
    neighbours = "added or removed" if account.relation == ADD_OR_REMOVE else "replaced"
    yield _wrapped(
        f"{whose}: epsilon = {figure(row['spent'])} of {figure(row['budget'])} "
        f"at delta = {row['delta']:g}, for {row['unit']} {neighbours}",
        2,
    )
    if "group" in row:
        yield _wrapped(
            f"  for a user who holds {row['group']} samples: epsilon at most "
            f"{figure(row['group_epsilon'])}",
            4,
        )
    for trust in account.trusts:
        yield _wrapped(
            f"  as long as {trust.assumption}; against all other sites together: epsilon = "
            f"{figure(row['spent_local'])}",
            4,
        )
    if len(account.leaves) > 1:
        parts: dict[str, list[str]] = {}
        for leaf, x in row["subsets"].items():
            if account.entries_on(leaf):
                parts.setdefault(figure(x), []).append(leaf)
        told = "; ".join(f"{x} on {_names(leaves)}" for x, leaves in parts.items())
        if sum(map(len, parts.values())) > 1:
            yield _wrapped(f"  disjoint parts, of which the worst counts: {told}", 4)
    cards: dict[tuple[str, ...], list[tuple[list[Entry], dict[str, Any]]]] = {}
    for es, facts in zip(_groups(account), row["mechanisms"], strict=True):
        key = (facts["phase"], facts["mechanism"], facts["recipient"])
        cards.setdefault(key, []).append((es, facts))
    for (phase, mechanism, recipient), found in cards.items():
        where = _names([facts["subset"] for _, facts in found])
        times = sum(facts["times"] for _, facts in found)
        yield _wrapped(f"  {phase} on {where}: {mechanism} x {times}, to {recipient}", 4)
        # Of disjoint parts the dearest is shown.
        dearest = max(found, key=lambda f: float(f[1]["epsilon"]))
        each = "each at most " if len(found) > 1 else ""
        yield _wrapped(f"    {each}{_price(*dearest)}", 6)
        if "trust" in dearest[1]:
            yield _wrapped(f"    {_of_the_sum(*dearest)}", 6)
        if purpose := PURPOSES.get((mechanism, recipient)):
            yield _wrapped(f"    for {purpose}", 6)
    if row["reserved"]:
        yield _wrapped(f"  {row['reserved']} reserved, not finished: counted as spent", 4)
    times = [e.time for e in account.entries]
    if times:
        first, last = (
            datetime.fromtimestamp(t).isoformat(" ", "minutes") for t in (min(times), max(times))
        )
        yield f"  charged from {first} to {last}"


def _price(entries: list[Entry], facts: dict[str, Any]) -> str:
    if not facts["covered"]:
        name = entries[0].charge.mechanism
        why = UNPROTECTED.get(name, "nothing bounds what it tells")
        if name in kind_names():
            why = kind_named(name).BARE
        return f"epsilon = infinity, NOT COVERED: {why}"
    if all(isinstance(e.event, PostProcessing) for e in entries):
        return "epsilon = 0: read public samples and what was charged already, nothing else"
    parts = [f"epsilon = {figure(facts['epsilon'])}", _noise(entries)]
    if facts["sensitivity"]:
        parts.append("sensitivity " + ", ".join(f"{x:.4g}" for x in facts["sensitivity"]))
    return "; ".join(parts)


def _of_the_sum(entries: list[Entry], facts: dict[str, Any]) -> str:
    """What the price of a release is of which only the sum over sites is seen."""
    known = [e.charge.trust for e in entries if e.charge.trust]
    noise = ", ".join(f"{m:.4g}" for m in sorted({t.local for t in known}))
    return (
        f"of the sum over {known[-1].sites} sites, which alone is seen; its own share of the noise "
        f"has noise multiplier {noise}: epsilon = {figure(facts['epsilon_local'])} against all "
        "other sites together"
    )


def _names(subsets: list[str]) -> str:
    if len(subsets) <= 3:
        return ", ".join(subsets)
    return f"{subsets[0]} to {subsets[-1]} ({len(subsets)} parts)"


def _noise(entries: list[Entry]) -> str:
    events = [e.event for e in entries]
    sigmas = sorted({s for e in events if (s := getattr(e, "noise_multiplier", None)) is not None})
    parts = []
    if sigmas:
        parts.append("noise multiplier " + ", ".join(f"{s:.4g}" for s in sigmas))
    sampled = [e for e in events if isinstance(e, SampledGaussian)]
    if sampled:
        steps = sum(e.steps for e in sampled)
        parts.append(f"{steps} steps at q = {sampled[0].rate:.3g}")
    flips = sorted({f for e in events if (f := getattr(e, "flip", None)) is not None})
    if flips:
        parts.append("labels flipped with probability " + ", ".join(f"{f:.3g}" for f in flips))
    return ", ".join(parts)


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
