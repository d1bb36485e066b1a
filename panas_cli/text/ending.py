"""The last screen of a run: a line a site, what joining changed, sentences, and warnings.

At most `LINES` lines of `WIDTH` characters. All else is in `panas report`.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dprbft.run.outcome import (
    ALONE,
    BEHIND,
    FEWEST,
    Outcome,
    SiteOutcome,
    outcome,
    wilson,
    with_weak_networks,
)
from panas_cli.text.printing import console, counted, print_text, print_words

LINES = 35
MOST_SITES = 9
"""Sites that the screen has a line for."""
LONGEST = 16
"""Characters of a site's name."""
IN_THE_END = ("joined", "network")
NETWORK = "own network"
KEY = {
    "tests": "samples that accuracies are of",
    "public": "best model of public samples",
    "alone": "each site's own head in the last round",
    "joined": "what the site predicts with",
    NETWORK: "the site's network by itself",
}
"""What columns of the table are."""
OF_METHOD = {"joined": {"alone": "best without other sites, same epsilon"}}
"""The same, where a method has other ones."""
WIDE, FOR_WIDE = 96, ("majority", "95 % interval")
"""Characters from which on a line has these columns, too."""
BAR = 40
"""Characters of an accuracy of 1."""
AUDITED = {
    "leaks": "leak",
    "inconclusive": "unclear",
    "no better than blind": "no leak",
    "masked": "masked",
    "nothing left": "-",
}
"""A verdict in the table; the first that a site has counts."""
UNATTACKED = {
    "masked": "masked messages tell nothing alone",
    "nothing left": "nothing left",
}
"""Verdicts where no attack is possible, and why."""
FAILURES = 0.1
"""Samples of a site that a promise should at most fail for."""
ODDS = 20
"""Odds that a promise should stay below."""

USELESS = 1e6
"""Odds from which on a bound says nothing to anybody."""


def print_ending(run: Path, summary: Mapping[str, Any], audit: Mapping[str, Any] | None) -> None:
    """Print the screen to stdout.

    Args:
        run: the run's folder, for the commands.
        summary: of the run.
        audit: as `audit.json` holds it; None without.
    """
    result, screen = outcome(summary, audit), console()
    print_words(_title(summary, result), style="bold" if screen.is_terminal else None)
    table = _table(result, screen.width)
    screen.print(table)
    columns = [str(column.header) for column in table.columns]
    key = KEY | OF_METHOD.get(summary["method"], {})
    told = [f"{name}: {key[name]}" for name in columns if name in key]
    if result.gain:
        told.append("±: standard error")
    if told:
        print_words(f"{'; '.join(told)}.", style="dim" if screen.is_terminal else None)
        print_text("")
    for line in bars(result, BAR if screen.width >= WIDE else BAR // 2):
        print_text(line)
    print_text("")
    for line in (*sentences(run, summary, result, audit), *next_steps(run)):
        print_words(line)
    for line in warnings(summary, result):
        print_words(line)


def _title(summary: Mapping[str, Any], result: Outcome) -> str:
    sites = counted(len(result.sites), "site")
    spent = "infinity" if math.isinf(result.epsilon) else f"{result.epsilon:.2f}"
    return (
        f"{summary['dataset']}, method {summary['method']}: {sites}, epsilon {spent} at delta "
        f"{result.delta:g}"
    )


def _table(result: Outcome, width: int) -> Table:
    """A line a site, and the means; of many sites those that gained least."""
    shown = list(result.sites)
    if len(shown) > MOST_SITES:
        shown = sorted(shown, key=_gained)[:MOST_SITES]
    names = [name for name in result.means if name not in ("majority", ALONE, *IN_THE_END)]
    public = max(names, key=lambda name: result.means[name], default="")
    rows = [_cells(site, public) for site in shown]
    if hidden := len(result.sites) - len(shown):
        rows.append({"site": f"+ {hidden} more"})
    means = {"majority": "majority", "public": public, "alone": ALONE}
    means |= {"joined": "joined", NETWORK: "network"}
    last = {name: _share(result.means.get(mean)) for name, mean in means.items()}
    columns = [
        name
        for name in rows[0]
        if (width >= WIDE or name not in FOR_WIDE)
        and any(row.get(name, "-") != "-" for row in rows)
    ]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("site", max_width=LONGEST, overflow="ellipsis", no_wrap=True)
    for name in columns[1:]:  # as wide as their cells need
        least = max(len(row.get(name, "")) for row in [*rows, {name: name}])
        justify: Literal["left", "right"] = "left" if name == "audit" else "right"
        table.add_column(name, justify=justify, min_width=least, no_wrap=True)
    for row in rows:
        table.add_row(*(row.get(name, "") for name in columns))
    if len(result.sites) > 1:
        last["site"] = "mean" if result.counts_all else f"mean of {result.counted}"
        table.add_row(*(last.get(name, "") for name in columns), style="bold")
    return table


def _gained(site: SiteOutcome) -> float:
    if site.joined is None:
        return -math.inf
    return site.joined - max(site.baselines.values(), default=0.0)


def _cells(site: SiteOutcome, public: str) -> dict[str, str]:
    known = site.joined is not None and site.tests
    low, high = wilson(site.joined or 0.0, site.tests) if known else (0.0, 0.0)
    return {
        "site": site.name,
        "tests": str(site.tests),
        "majority": _share(site.majority),
        "public": _share(site.baselines.get(public)),
        "alone": _share(site.baselines.get(ALONE)),
        "joined": _share(site.joined),
        "95 % interval": f"{low:.2f} to {high:.2f}" if known else "-",
        NETWORK: _share(site.network),
        "epsilon": "infinity" if math.isinf(site.epsilon) else f"{site.epsilon:.2f}",
        "audit": next((word for v, word in AUDITED.items() if v in site.verdicts), "-"),
    }


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def bars(result: Outcome, length: int = BAR) -> list[str]:
    """The means without joining, and with it, as bars; one of 1 has so many characters."""
    wide = max(map(len, result.steps), default=0)
    lines = [
        f"{name:<{wide}}  {'█' * round(length * value):<{length}}  {value:.3f}"
        for name, value in result.steps.items()
    ]
    if result.gain and lines:
        lines[-1] += f"  {result.gain.text}"
    return lines


def sentences(
    run: Path,
    summary: Mapping[str, Any],
    result: Outcome,
    audit: Mapping[str, Any] | None,
) -> list[str]:
    """Whether it worked, what left, what is promised, and what the audit found.

    Args:
        run: the run's folder, for the commands.
        summary: of the run.
        result: its figures.
        audit: as `audit.json` holds it; None without.
    """
    return [
        worked(summary, result),
        *left(summary, result),
        *promised(result),
        audited(result, audit is not None, run),
    ]


def next_steps(run: Path) -> list[str]:
    """What to do with a run in this folder: commands as they can be called."""
    return [
        f"Next: `panas report {run}` shows all figures.",
        f"`panas predict {run} --site NAME --input FILE` classifies new samples.",
    ]


def worked(summary: Mapping[str, Any], result: Outcome) -> str:
    """Whether joining helped."""
    joined, best, gain = result.means.get("joined"), result.best, result.gain
    if joined is None:
        return f"No site has {FEWEST} test samples or more, so that no accuracy can be told."
    if gain is None or best is None:
        why = "nothing left a site" if not result.sent else "nothing to compare it with"
        return f"Nothing was joined: mean accuracy{_of(result)} is {joined:.3f}, and {why}."
    what = f"mean accuracy{_of(result)} from {best[1]:.3f} ({best[0]}) to {joined:.3f}"
    if not gain.is_clear:
        return f"No clear difference: joining changed {what}, {gain.text}."
    return f"It worked: joining raised {what}." if gain.mean > 0 else f"Joining lowered {what}."


def _of(result: Outcome) -> str:
    """Of which sites a mean is, where it is not of all."""
    return "" if result.counts_all else f" of {result.counted} of {len(result.sites)} sites"


def left(summary: Mapping[str, Any], result: Outcome) -> list[str]:
    """What the sites sent, and who saw it; [] where nothing was sent."""
    if not result.sent:
        return []
    size = f"{summary['communication']['up_bytes'] / 1e3:.1f} kB in all"
    seen = "the server saw only their sum" if result.trust else "the server saw each"
    if any(math.isinf(float(c["epsilon"]["release"])) for c in summary["clients"]):
        return [f"What left was not protected by noise: {size}."]
    if not result.epsilon:
        return [f"{size} left the sites; {seen}."]
    return [f"No sample left its site; noised figures did, {size}; {seen}."]


def promised(result: Outcome) -> list[str]:
    """What the largest epsilon means, and what that rests on."""
    if math.isinf(result.epsilon):
        return ["Nothing is promised: epsilon is infinite, and what left may show any sample."]
    if not result.epsilon:
        return ["Nothing that left was computed from private samples."]
    who = f"any {result.unit.partition(':')[0]}"
    times = odds_text(result.odds)
    seen = "them" if result.sent else "a site's network"
    lines = [f"Whoever sees {seen} is at most {times} times surer that {who} took part."]
    if result.trust:
        while_ = " and ".join(result.trust)
        useless = result.local_odds >= USELESS
        otherwise = "no useful bound holds" if useless else f"{odds_text(result.local_odds)} times"
        lines.append(f"It trusts other sites ({while_}); else {otherwise}.")
    return lines


def odds_text(odds: float) -> str:
    """Odds to two digits, rounded up."""
    if odds >= 1e6:
        exponent = math.floor(math.log10(odds))
        digit = math.ceil(round(odds / 10.0**exponent, 6))
        return f"{digit}e+{exponent:02d}" if digit < 10 else f"1e+{exponent + 1:02d}"
    step = 10.0 ** (math.floor(math.log10(odds)) - 1)
    return f"{math.ceil(round(odds / step, 6)) * step:,.10g}"


def audited(result: Outcome, made: bool, run: Path) -> str:
    """What the audit found.

    Args:
        result: with the verdicts of its sites.
        made: whether there was an audit.
        run: the run's folder, for the command that makes one.
    """
    if not made:
        return f"No audit was made: `panas audit {run}` attacks what left."
    leaking = [s.name for s in result.sites if "leaks" in s.verdicts]
    if leaking:
        few = ", ".join(leaking[:3]) + (", ..." if len(leaking) > 3 else "")
        return f"The audit found a leak at {len(leaking)} of {len(result.sites)} sites: {few}."
    attacked = [s for s in result.sites if not s.verdicts or set(s.verdicts) - set(UNATTACKED)]
    if not attacked:
        return f"The audit had nothing to attack: {' and '.join(_unattacked(result))}."
    unclear, gaps = sum("inconclusive" in s.verdicts for s in result.sites), []
    if unclear:
        where = "every site" if unclear == len(result.sites) else counted(unclear, "site")
        gaps.append(f"at {where} samples are too few to rule one out")
    if idle := len(result.sites) - len(attacked):
        gaps.append(f"at {counted(idle, 'site')} it had nothing to attack")
    return f"The audit found no leak{'; ' if gaps else ''}{', and '.join(gaps)}."


def _unattacked(result: Outcome) -> list[str]:
    verdicts = {verdict for site in result.sites for verdict in site.verdicts}
    return [text for verdict, text in UNATTACKED.items() if verdict in verdicts]


def warnings(summary: Mapping[str, Any], result: Outcome) -> list[str]:
    """What somebody should act on, once, with what to do."""
    lines = []
    if names := summary["absent"]:
        lines.append(f"{_named(names)} did not finish; --resume continues when the data are back")
    if few := [s.name for s in result.sites if s.joined is not None and not s.counted]:
        lines.append(f"{_named(few)}: fewer than {FEWEST} test samples, in no mean; give more data")
    own = [(s, s.network) for s in result.sites if s.counted and s.network is not None]
    if below := [s.name for s, network in own if network < (s.majority or 0.0)]:
        lines.append(
            f"the own network of {_named(below)} is less accurate than the most frequent class; "
            "predict with models/predictor.safetensors, or give more public samples"
        )
    if behind := with_weak_networks(result.sites):
        lines.append(
            f"own networks of {counted(len(behind), 'site')} are {100 * BEHIND:.0f} points or more "
            "below joined; give more public samples (--unlabelled-data), or --preset sound"
        )
    if result.odds > ODDS and math.isfinite(result.epsilon) and round(result.epsilon, 2) >= 3:
        lines.append(f"odds of {odds_text(result.odds)} are high; --epsilon 3 keeps them at 20")
    if result.failures > FAILURES:
        lines.append(
            f"delta times the samples of a site is {result.failures:.2g}; give a --delta far below "
            "1 / samples"
        )
    if summary.get("network") == "stays":
        lines.append("networks were trained without noise: none may leave its site")
    return [f"warning: {line}" for line in lines]


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
