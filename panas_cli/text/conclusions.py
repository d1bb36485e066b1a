"""The last lines of a run: absent sites, steps without a gain, and what the figures mean."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from panas.training.baselines import Baselines
from panas.training.ladder import Ladder, NoGain, no_gains
from panas_cli.text.joining import gain_line, has_joined, not_joined_line

FAILURES = {"strong": 1e-2, "reasonable": 1e-1}
"""n times delta, above which no promise is called so."""


def absent_lines(names: Sequence[str]) -> list[str]:
    """A line that names the sites which are missing in a summary, if there are any."""
    if not names:
        return []
    has = "has" if len(names) == 1 else "have"
    return [
        f"warning: {', '.join(names)} {has} not trained, or cannot be read now; --resume takes up "
        "what is back"
    ]


def no_gain_lines(summary: Mapping[str, Any]) -> list[str]:
    """A warning for each site where a step that costs privacy had no gain."""
    lines, joined = list[str](), not _nothing_joined(summary)
    for c in summary["clients"]:
        baselines = Baselines.from_json(b) if (b := c.get("baselines")) else None
        steps = Ladder(**c["ladder"])
        spent = float(c["epsilon"]["spent"])  # a word where it is infinite
        gains = no_gains(steps, spent, baselines, kept_public=c["selected_round"] == 0)
        gains = tuple(g for g in gains if joined or g.step != "joining")
        if gains:
            why = "; ".join(_no_gain(g) for g in gains)
            lines.append(f"warning: {c['name']} {why}")
    return lines


def _no_gain(gain: NoGain) -> str:
    what = f"{gain.epsilon:.1f} of epsilon" if math.isfinite(gain.epsilon) else "infinite epsilon"
    spent = f"no gain for {what}"
    beaten = f"{gain.reached:.3f} against {gain.to_beat:.3f}"
    if gain.kept_public:
        return f"keeps the public network: {spent}"
    if gain.step == "training":
        return f"is no better than its public start ({beaten}): {spent}"
    if gain.step == "joining":
        return f"is no better than alone ({beaten}): no gain from joining"
    return f"does not beat a {gain.rival} on public samples ({beaten})"


def meaning_lines(summary: Mapping[str, Any]) -> list[str]:
    """What a run's figures mean: whether joining helped, and what its epsilon promises."""
    lines, clients = [], summary["clients"]
    ladder = Ladder(**x) if (x := summary["accuracy"].get("ladder")) else None
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
        rest = "; " + ", ".join(below) if below else ""
        lines.append(f"in short: mean accuracy {ladder.joined:.3f} joined{rest}")
        if ladder.alone is not None and _nothing_joined(summary):
            lines.append(not_joined_line(ladder))
        elif ladder.alone is not None:
            lines.append((gain_line if has_joined(clients) else _of_rounds)(ladder, clients))
    return [*lines, _promise(clients), *_stays(summary)]


def _nothing_joined(summary: Mapping[str, Any]) -> bool:
    """Whether sites that join in one round have sent nothing."""
    return has_joined(summary["clients"]) and not summary["communication"]["up_bytes"]


def _stays(summary: Mapping[str, Any]) -> list[str]:
    """What a promise about what left does not cover, where networks learn without noise."""
    if summary.get("network") != "stays":
        return []
    return [
        "networks stay: residuals and networks were trained without noise (privacy.network = "
        "stays); nothing bounds what they tell of single samples, so none may leave its site"
    ]


def _of_rounds(ladder: Ladder, clients: Sequence[Mapping[str, Any]]) -> str:
    assert ladder.joined is not None
    assert ladder.alone is not None
    public = ladder.public if ladder.public is not None else -math.inf
    gain = f"{ladder.joined - max(ladder.alone, public):+.3f}"
    against = " against public samples alone" if public > ladder.alone else ""
    return f"joining {'helped' if float(gain) > 0 else 'did not help'} ({gain}{against})"


def _promise(clients: Sequence[Mapping[str, Any]]) -> str:
    """What the worst epsilon promises, in words, and what that rests on."""
    worst = max(clients, key=lambda c: float(c["epsilon"]["spent"]))
    epsilon, delta, unit = float(worst["epsilon"]["spent"]), worst["delta"], worst["unit"]
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
        f"likelier (epsilon {epsilon:.2f}, but for a chance of {delta:g}): "
        f"{_strength(epsilon, _failures(clients))}{_trusted(clients)}"
    )


def _trusted(clients: Sequence[Mapping[str, Any]]) -> str:
    """What a promise rests on, and epsilon where that fails; "" where it rests on nothing."""
    rests = dict.fromkeys(t["assumption"] for c in clients for t in c.get("trust", ()))
    if not rests:
        return ""
    local = max(float(c.get("spent_local", c["epsilon"]["spent"])) for c in clients)
    return (
        f", as long as {' and '.join(rests)}; against all other sites together: "
        f"epsilon = {local:.2f}"
    )


def _failures(clients: Sequence[Mapping[str, Any]]) -> float:
    """How many of a site's samples the promise may fail for, at worst: n times delta, where a
    mechanism that publishes samples by lot passes for private."""
    return max(c["delta"] * sum((c.get("samples") or {}).values()) for c in clients)


def _strength(epsilon: float, failures: float) -> str:
    """In the three tiers of Ponomareva et al. 2023 (How to DP-fy ML), section 5.2, which take a
    delta far below 1/n for granted."""
    if failures > FAILURES["reasonable"]:
        return f"a weak promise, since delta times the number of samples is {failures:.2g}"
    if epsilon <= 1 and failures <= FAILURES["strong"]:
        return "a strong promise"
    return "a reasonable promise" if epsilon <= 10 else "a weak promise"
