"""The privacy card, in words and as JSON: what charges came to, and what that rests on."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from dprbft.methods.joined.budget import largest_run
from dprbft.site.directory import SiteSettings
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    PostProcessing,
    SampledGaussian,
    Unprotected,
    event_to_json,
)
from panas.privacy.ledger.account import Account, number, totals
from panas.privacy.ledger.charge import Entry
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.kind import kind_named, kind_names
from panas.runtime.state import state_folder
from panas_cli.text.printing import figure, print_table

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
    ("count", "whoever sees rates and divisors that follow from it"): "a noised number of training "
    "samples, by which batches, rates and divisors are planned",
    ("moments", "server"): "noised sums of representations, of which the server makes one head",
    ("dp-sgd", "whoever sees the network, which learns from it"): "a linear residual over the "
    "shared head",
}
"""What is paid for, by mechanism and who sees it."""
COMPOSED = (
    "with what is spent that composes to the budget at most, since the epsilon of several charges "
    "is less than their sum"
)
"""Why what is spent and what is left come to more than the budget."""
WIDTH = 80


def card_of(account: Account, group: int) -> dict[str, Any]:
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
            "epsilon": number(account.price(e.event for e in es)),
            "event": event_to_json(es[-1].event),
            "covered": not any(isinstance(e.event, Unprotected) for e in es),
            **_trusted(account, es),
        }
        for es in _groups(account)
    ]
    if group > 1:
        # At most: a user's k samples may lie in different parts, which then add.
        events, delta = [e.event for e in account.entries], account.budget.delta
        most = epsilon(events, delta, relation=account.relation, group=group)
        card |= {"group": group, "group_epsilon": number(most)}
    return card


def _trusted(account: Account, entries: list[Entry]) -> dict[str, Any]:
    """What charges rest on, and what they cost where that fails; {} where they rest on nothing."""
    if not any(e.charge.trust for e in entries):
        return {}
    return {
        "trust": [e.charge.trust.to_json() for e in entries if e.charge.trust],
        "epsilon_local": number(account.price(e.local.event for e in entries)),
    }


def _groups(account: Account) -> Iterator[list[Entry]]:
    for phase in ("search", "training", "release"):
        entries = [e for e in account.entries if e.charge.phase == phase]
        keys = [(e.charge.subset, e.charge.mechanism, e.charge.recipient) for e in entries]
        for key in dict.fromkeys(keys):
            yield [e for e, own in zip(entries, keys, strict=True) if own == key]


def card_lines(whose: str, account: Account, row: dict[str, Any]) -> Iterator[str]:
    """The card of an account as lines.

    Args:
        whose: what the first line begins with, as a site's name.
        account: of the ledger.
        row: `card_of` the account.
    """
    neighbours = "added or removed" if account.relation == ADD_OR_REMOVE else "replaced"
    yield wrapped(
        f"{whose}: epsilon = {figure(row['spent'])} of {figure(row['budget'])} "
        f"at delta = {row['delta']:g}, for {row['unit']} {neighbours}",
        2,
    )
    if "group" in row:
        yield wrapped(
            f"  for a user who holds {row['group']} samples: epsilon at most "
            f"{figure(row['group_epsilon'])}",
            4,
        )
    yield from trust_lines(account, 2)
    if len(account.leaves) > 1:
        parts: dict[str, list[str]] = {}
        for leaf, x in row["subsets"].items():
            if account.entries_on(leaf):
                parts.setdefault(figure(x), []).append(leaf)
        told = "; ".join(f"{x} on {_names(leaves)}" for x, leaves in parts.items())
        if sum(map(len, parts.values())) > 1:
            yield wrapped(f"  disjoint parts, of which the worst counts: {told}", 4)
    cards: dict[tuple[str, ...], list[tuple[list[Entry], dict[str, Any]]]] = {}
    for es, facts in zip(_groups(account), row["mechanisms"], strict=True):
        key = (facts["phase"], facts["mechanism"], facts["recipient"])
        cards.setdefault(key, []).append((es, facts))
    for (phase, mechanism, recipient), result in cards.items():
        where = _names([facts["subset"] for _, facts in result])
        times = sum(facts["times"] for _, facts in result)
        yield wrapped(f"  {phase} on {where}: {mechanism} x {times}, to {recipient}", 4)
        # Of disjoint parts the dearest is shown.
        dearest = max(result, key=lambda f: float(f[1]["epsilon"]))
        each = "each at most " if len(result) > 1 else ""
        yield wrapped(f"    {each}{_price(*dearest)}", 6)
        if "trust" in dearest[1]:
            yield wrapped(f"    {_of_the_sum(*dearest)}", 6)
        if purpose := PURPOSES.get((mechanism, recipient)):
            yield wrapped(f"    for {purpose}", 6)
    if row["reserved"]:
        yield wrapped(f"  {row['reserved']} reserved, not finished: counted as spent", 4)
    times = [e.time for e in account.entries]
    if times:
        first, last = (
            datetime.fromtimestamp(t).isoformat(" ", "minutes") for t in (min(times), max(times))
        )
        yield f"  charged from {first} to {last}"


def trust_lines(account: Account, indent: int) -> list[str]:
    """What epsilon rests on, and what it is where that fails; [] where it rests on nothing."""
    if not account.trusts:
        return []
    local = figure(number(account.local.spent()))
    rest = f"; against all other sites together: epsilon = {local}"
    return [
        wrapped(f"{' ' * indent}as long as {trust}{rest}", indent + 2)
        for trust in dict.fromkeys(trust.assumption for trust in account.trusts)
    ]


def state_lines(ledger: Ledger) -> list[str]:
    """Where a ledger lacks charges or once did, and since when that would be noticed."""
    lines = list[str]()
    for note in ledger.notes:
        when = datetime.fromtimestamp(note.time).isoformat(" ", "minutes")
        if note.kind == "restored":
            lines.append(f"an older copy was put back; {when} it was charged what it lacked")
        else:
            lines.append(
                f"went on in {note.folder} on {when}, where nothing was known of it: an older copy "
                "from before would not have been noticed"
            )
    if ledger.is_behind:
        lines.append(
            "an older copy, as of a backup: it lacks charges, and nothing can be spent; panas site "
            f"accept {ledger.path.parent} --restored"
        )
    elif ledger.is_unknown:
        lines.append(
            f"nothing is known of it in {state_folder()} (another machine?): an older copy would "
            "not be noticed before its next charge"
        )
    return lines


def largest_request(site: SiteSettings, account: Account) -> float:
    """The epsilon that another run may ask for, at the owner's delta."""
    most = site.epsilon_per_run
    return largest_run(account, math.inf if most is None else most)


def budget_line(site: SiteSettings, account: Account) -> str:
    """What a site's runs have spent of its budget, and what another may ask for."""
    spent, left = account.spent(), largest_request(site, account)
    line = (
        f"epsilon {figure(site.epsilon)} at delta {site.delta:g} for all runs: "
        f"{figure(spent)} spent, a run may ask for {figure(left)}"
    )
    return f"{line}; {COMPOSED}" if spent and spent + left > site.epsilon + 1e-3 else line


def hub_lines(site: SiteSettings, account: Account) -> list[str]:
    """What each hub's runs have spent of their part, for hubs that have one."""
    parts = [site.allotment("" if f.is_own else f"{n}:") for n, f in site.federation.items()]
    owned = [(part.hub, part.of(account)) for part in parts if part is not None]
    return [
        f"{hub}: epsilon {figure(own.budget.epsilon)} for its runs, {figure(own.spent())} spent, a "
        f"run may ask for {figure(min(own.left(), largest_request(site, account)))}"
        for hub, own in owned
    ]


def run_rows(account: Account) -> list[dict[str, Any]]:
    """What each run of a site asked for and spent, as JSON."""
    return [
        {"name": name, "share": number(own.budget.epsilon), "spent": number(own.spent())}
        for name, own in account.of_shares().items()
    ]


def print_runs(rows: Sequence[Mapping[str, Any]]) -> None:
    """`run_rows` as a table, if there are any."""
    if rows:
        cells = [(r["name"], *(figure(float(r[k])) for k in ("share", "spent"))) for r in rows]
        print_table(("run", "asked for", "spent"), cells)


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


def wrapped(text: str, indent: int) -> str:
    """The text in lines of a screen, the later ones indented."""
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
