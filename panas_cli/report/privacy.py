"""What epsilon means, and the privacy card of a site.

A card answers what the differential-privacy deployments registry asks for, and the checklist of
NIST SP 800-226: unit, neighbours, mechanisms, parameters, composition, trust, what is not covered.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dprbft.run.outcome import Outcome
from panas.privacy.accounting.events import ADD_OR_REMOVE, Unprotected
from panas.privacy.ledger.account import Account
from panas_cli.report.charts.rows import Row, dots, gauge
from panas_cli.report.deployments import DEPLOYMENTS, Deployment
from panas_cli.report.facts import SiteFacts
from panas_cli.report.table import Figure, Table, epsilon_text, odds_words
from panas_cli.text.printing import counted
from panas_cli.text.privacy_card import PURPOSES, UNPROTECTED, card_of

STEPS = (0.5, 1.0, 2.0, 2.99, 4.0, 8.0)
"""Epsilons whose odds are shown; 2.99 is the last of two digits below 20."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a run's epsilon means."""

    lines: tuple[str, ...]
    odds: Table
    compared: Figure
    deployments: Table


def meaning(result: Outcome) -> Meaning:
    """What the largest epsilon of a run's sites means, at its delta."""
    return Meaning(
        lines=tuple(_lines(result)),
        odds=_odds(result),
        compared=_compared(result),
        deployments=_deployments(),
    )


def _lines(result: Outcome) -> Iterator[str]:
    unit, delta = result.unit.partition(":")[0], f"{result.delta:g}"
    if math.isinf(result.epsilon):
        yield (
            f"Epsilon is infinite: nothing bounds what can be learnt of {unit}. The privacy cards "
            "name what left without noise."
        )
    else:
        yield (
            f"The largest epsilon of a site is {result.epsilon:.2f} at delta {delta}. With or "
            f"without {unit}, whatever left is at most {odds_words(result.epsilon)} times likelier."
        )
    yield (
        "Odds stay below 20 up to epsilon 2.99. Ask for it with --epsilon 2.99 or less, at the "
        "same delta."
    )
    yield (
        f"Delta is the chance that the bound fails, for each protected unit: {delta}. It should be "
        "far below 1 divided by the number of a site's samples."
    )


def _odds(result: Outcome) -> Table:
    spent = result.epsilon
    steps = {f"{e:g}": e for e in STEPS}
    if math.isfinite(spent) and spent > 0:
        steps[f"{spent:.2f} (this run)"] = spent
    rows = [
        (name, f"{odds_words(e)} to 1", _percent(1 / (1 + math.exp(-e))))
        for name, e in sorted(steps.items(), key=lambda item: item[1])
    ]
    return Table(
        caption="Odds by epsilon, and what becomes of a suspicion of 50 % that a sample took part",
        columns=("epsilon", "odds at most", "suspicion at most"),
        rows=tuple(rows),
    )


def _percent(value: float) -> str:
    """A share below 1 in percent, never rounded to all."""
    digits = 1 if value < 0.999 else 2 if value < 0.9999 else 5
    return f"{100 * value:.{digits}f} %"


def _compared(result: Outcome) -> Figure:
    rows = [
        Row(
            name=d.who,
            value=math.sqrt(math.prod(d.epsilons)),
            told=_range(d),
            look="two",
            mark="diamond",
            span=d.epsilons,
        )
        for d in DEPLOYMENTS
    ]
    rows.insert(
        0, Row(name="odds of 20", value=math.log(20), told="2.99", look="bad", mark="cross")
    )
    told = epsilon_text(result.epsilon)
    value = result.epsilon or None
    rows.insert(0, Row(name="this run", value=value, told=told, look="one", strong=True))
    return Figure(
        picture=dots("Epsilon of this run beside deployments", rows, (0.5, 20.0), log=True),
        caption="Epsilon of this run and of published deployments; a line spans several releases",
    )


def _range(d: Deployment) -> str:
    low, high = d.epsilons
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _deployments() -> Table:
    rows = []
    for d in sorted(DEPLOYMENTS, key=lambda d: d.epsilons):
        link = Markup('<a href="{}" rel="noreferrer">{}</a>').format(d.address, d.source)
        odds = " to ".join(odds_words(e) for e in dict.fromkeys(d.epsilons))
        rows.append((d.who, d.what, d.unit, link, _range(d), d.delta, odds))
    return Table(
        caption="Published deployments. Units differ: compare no epsilon without them",
        columns=("who", "what", "unit", "source", "epsilon", "delta", "odds"),
        rows=tuple(rows),
        left=4,
        prose=True,
    )


@dataclass(frozen=True, kw_only=True)
class Card:
    """A site's privacy card."""

    gauge: Figure
    fields: Table
    mechanisms: Table


EVENTS = {
    "gaussian": "Gaussian mechanism",
    "sampled-gaussian": "DP-SGD: Gaussian mechanism on Poisson samples",
    "randomized-response": "randomised response",
    "noisy-rows": "Gaussian mechanism on rows, randomised response on labels",
    "post-processing": "computed from public samples and from what was charged",
    "unprotected": "none: not protected",
}
"""Kinds of the ledger's events in the field's words."""


def card(site: SiteFacts, account: Account) -> Card:
    """The card of a site, of what its ledger holds of this run."""
    row = card_of(account, 1)
    spent, budget = float(row["spent"]), float(row["budget"])
    return Card(
        gauge=Figure(
            picture=gauge(spent, budget),
            caption=f"Epsilon that the run has spent of its budget, at delta {row['delta']:g}",
        ),
        fields=Table(
            caption="Fields of the deployments registry (R) and of NIST SP 800-226 (N)",
            about=site.name,
            columns=("field", "answer"),
            rows=tuple(_fields(site, account, row)),
            left=2,
            prose=True,
        ),
        mechanisms=_mechanisms(site.name, row),
    )


def _fields(site: SiteFacts, account: Account, row: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    kinds = dict.fromkeys(EVENTS[m["event"]["kind"]] for m in row["mechanisms"])
    changed = "added or removed" if account.relation == ADD_OR_REMOVE else "replaced"
    spent, budget = epsilon_text(float(row["spent"])), epsilon_text(float(row["budget"]))
    yield "Curator (R)", f"the owner of {site.name}"
    yield "Released (R)", _released(site)
    yield "Unit of privacy (R, N)", account.unit
    yield "Neighbouring data sets (R, N)", f"differ in {account.unit}, {changed}"
    yield "Definition (R, N)", "approximate differential privacy (epsilon, delta)"
    yield "Parameters (R, N)", f"epsilon {spent} of {budget}, delta {row['delta']:g}"
    yield "Mechanisms (R, N)", "; ".join(kinds) or "none"
    yield "Composition (R, N)", "privacy loss distributions, over all charges of the ledger"
    yield "Post-processing (R)", "what is computed from released sums costs nothing more"
    yield "Trust (R, N)", _trust(account)
    yield "Randomness (N)", "noise from the operating system's entropy, in 64-bit floats"
    yield "Tested (N)", _tested(site)
    yield "Not covered (R, N)", Markup('<a href="#not-covered">the list for all sites</a>')


def _released(site: SiteFacts) -> str:
    if not site.sent:
        return "no message with a release"
    size = sum(size for _, size in site.sent)
    return f"{counted(len(site.sent), 'message')}, {size:,} bytes"


def _trust(account: Account) -> str:
    if any(isinstance(entry.event, Unprotected) for entry in account.entries):
        return "in whoever sees what left without noise: no bound holds against them"
    if not account.trusts:
        return "in nobody: noise is added at the site, before a message leaves"
    holds = " and ".join(t.assumption for t in account.trusts)
    local = epsilon_text(account.local.spent())
    return f"secure sum: holds while {holds}; else epsilon is {local}"


def _tested(site: SiteFacts) -> str:
    if site.audit is None:
        return "no audit"
    network = f"; its network: {site.audit.network.verdict}" if site.audit.network else ""
    return f"audit of what it sent: {site.audit.verdict}{network}"


def _mechanisms(name: str, row: dict[str, Any]) -> Table:
    rows = []
    for m in row["mechanisms"]:
        event = m["event"]
        noise = event.get("noise_multiplier")
        purpose = PURPOSES.get((m["mechanism"], m["recipient"]), "")
        if not m["covered"]:
            purpose = UNPROTECTED.get(m["mechanism"], "nothing bounds what it tells")
        what = f"{m['mechanism']} x {m['times']}" if m["times"] > 1 else m["mechanism"]
        where = what if m["subset"] == "train" else f"{what}, on {m['subset']}"
        steps = f", {event['steps']} steps at rate {event['rate']:.3g}" if "steps" in event else ""
        told = "-" if noise is None else f"{noise:.4g}{steps}"
        price = epsilon_text(float(m["epsilon"]))
        rows.append((where, m["recipient"], purpose or "-", told, price))
    return Table(
        caption="What was charged. Epsilons do not add up: composition is tighter",
        about=name,
        columns=("mechanism", "seen by", "for", "noise multiplier", "epsilon"),
        rows=tuple(rows),
        left=3,
        prose=True,
    )
