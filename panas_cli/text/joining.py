"""What a run came to, in words: what sites predict with, what joining brought, and the last lines.

A summary's site has `shares` where it averages several predictors, as sites do that have joined
before they searched; sites of methods of rounds have none. The last lines name absent sites and
steps without a gain, and say what the figures mean.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dprbft.methods.joined.residual import JoiningPrice
from dprbft.methods.joined.tuning import FEWEST
from dprbft.site.results.records import ByRule, TuningRecord
from panas.training.baselines import Baselines
from panas.training.ladder import Ladder, NoGain, no_gains
from panas_cli.text.printing import counted

CANDIDATES = {
    "public": "public head",
    "shared": "shared head",
    "own": "own head",
    "shrunk": "own head shrunk to the shared one",
    "residual": "head with residual",
    "forest": "forest of public samples",
    "logistic": "logistic regression of public samples",
    "network": "network",
}
"""What a site that has joined may predict with."""
LEAST = 0.05
"""Share from which on a candidate is named."""
POINT = 0.01
"""The accuracy that a site must gain or lose to be counted."""
HALF = POINT / 2
"""The least mean gain, or loss, that is called one; it must be above its standard error, too."""


def has_joined(clients: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a summary's sites average predictors."""
    return any(c.get("shares") for c in clients)


def shares_text(shares: Mapping[str, float]) -> str:
    """What an average is made of, the largest parts, as validation samples weigh them."""
    parts = sorted(((share, name) for name, share in shares.items()), reverse=True)
    told = [(CANDIDATES[name], share) for share, name in parts if share >= LEAST]
    rest = 1 - sum(share for _, share in told)
    told += [("others", rest)] if rest >= LEAST / 10 else []
    return "predicts with " + ", ".join(f"{name} {share:.0%}" for name, share in told)


def released_text(sent: bool, noise_multiplier: float | None, masked: bool = False) -> str:
    """What a site has sent.

    Args:
        sent: whether it has sent its release.
        noise_multiplier: of the release; None or 0: without noise.
        masked: whether it went into a secure sum.
    """
    if not sent:
        return "sends no release (late, or not worth its cost)"
    if masked:
        return "has sent its one release under a mask: the sum over all sites alone will be seen"
    noise = f"noise multiplier {noise_multiplier:.3g}" if noise_multiplier else "without noise"
    return f"has sent its one release ({noise})"


BY_RULE: dict[ByRule, str] = {
    "no noise": "nothing is spent on training",
    "given noise": "the noise is given",
    "few public samples": f"fewer than {FEWEST} labelled public samples to rehearse on",
    "no trials": "no trials are asked for",
    "other size": "public samples cannot stand for a site of its size",
    "none better": "rehearsals on public samples found none clearly better",
}
"""Why the settings of a residual are not tuned."""
NOTHING = (
    "rehearsals on public samples: private training has no gain here, and nothing is spent on it"
)


def tuned_text(record: TuningRecord) -> str:
    """DP-SGD settings, and where they are from."""
    if record.nothing:
        return NOTHING
    s, noise = record.settings, record.noise_multiplier
    least = "the least noise that the budget allows"
    results = [
        f"learning rate {s.learning_rate:.3g}",
        f"noise multiplier {noise:.3g}" if noise else least,
        f"clip {s.clip:.3g}",
        f"batch {s.batch_size}",
    ]
    if record.by_rule == "no noise":
        results = [f"learning rate {s.learning_rate:.3g}", f"batch {s.batch_size}"]
    why = "" if record.trials else "not tuned: "
    if record.by_rule:
        why = f"settings by rule ({BY_RULE[record.by_rule]}): "
    return why + ", ".join(results)


def joining_price_line(
    prices: Sequence[JoiningPrice], budget: Sequence[float], assumption: str = ""
) -> list[str]:
    """What histogram, release and DP-SGD will have cost, in a line; [] where no site can pay.

    Args:
        prices: of the sites that can pay, in epsilon.
        budget: epsilon of each site.
        assumption: what the price of a release rests on; "" where it holds against the server.
    """
    if not prices:
        return []
    parts = [
        f"{span_text([p.histogram for p in prices])} for a noised label histogram",
        f"{span_text([p.release for p in prices])} for one release"
        if any(p.release for p in prices)
        else "nothing for a release, which by rule would not pay",
    ]
    if any(p.residual for p in prices):
        parts.append(f"up to {span_text([p.residual for p in prices])} for DP-SGD of a residual")
    together = span_text([p.together for p in prices])
    rests = assumption and any(p.release for p in prices)
    return [
        f"price: epsilon {together} of {span_text(budget, 'g')} a site"
        f"{f', as long as {assumption}' if rests else ''}: {', '.join(parts)} "
        "(each by itself); the search costs nothing"
    ]


def span_text(values: Sequence[float], digits: str = ".2f") -> str:
    """The least and the most, or one number; a dash for none."""
    if not values:
        return "-"
    low, high = format(min(values), digits), format(max(values), digits)
    return low if low == high else f"{low} to {high}"


def kept_lines(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each site predicts with, and why."""
    return [_kept(c) for c in clients if c.get("shares")]


def _kept(site: Mapping[str, Any]) -> str:
    n = site["samples"]["validation"]
    why = (
        f"weighed by its {counted(n, 'validation sample')}"
        if n
        else "with no validation samples to weigh by"
    )
    return f"{site['name']} {shares_text(site['shares'])}, {why}"


def gain_line(ladder: Ladder, clients: Sequence[Mapping[str, Any]]) -> str:
    """What joining brought over what each site does alone, its standard error, and to how many."""
    assert ladder.joined is not None
    assert ladder.alone is not None
    gains = [
        round(steps.joined - steps.alone, 9)
        for c in clients
        if (steps := Ladder(**c["ladder"])).joined is not None and steps.alone is not None
    ]
    by = float(f"{ladder.joined - ladder.alone:.3f}")
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    clear = abs(by) >= max(HALF, error)
    helped = "made no clear difference" if not clear else "helped" if by > 0 else "did not help"
    mean = f"{by:+.3f}" + (f" +- {error:.3f}" if len(gains) > 1 else "")
    gained, lost = sum(g > POINT for g in gains), sum(g < -POINT for g in gains)
    text = (
        f"joining {helped} ({mean} over each site alone): of {counted(len(gains), 'site')}, "
        f"{gained} gained more than a point and {lost} lost more than one"
    )
    if ladder.public is not None and ladder.public >= ladder.joined:
        how = "better" if ladder.public - ladder.joined >= HALF else "as well"
        text += f"; public samples alone do {how} ({ladder.public:.3f})"
    return text


def not_joined_line(ladder: Ladder) -> str:
    """The same where no site has released anything."""
    assert ladder.joined is not None
    assert ladder.alone is not None
    gain = f"{ladder.joined - ladder.alone:+.3f} over each site alone"
    return f"nothing was joined: no site has sent a release ({gain}, which is no gain of joining)"


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
    # How many of a site's samples the promise may fail for, at worst: n times delta, where a
    # mechanism that publishes samples by lot passes for private.
    failures = max(c["delta"] * sum((c.get("samples") or {}).values()) for c in clients)
    factor = math.exp(epsilon)
    times = f"{float(f'{factor:.2g}'):,g}" if factor < 1e6 else f"{factor:.0e}"
    return (
        f"privacy: with or without any {any_one}, whatever left is at most {times} times "
        f"likelier (epsilon {epsilon:.2f}, but for a chance of {delta:g}): "
        f"{_strength(epsilon, failures)}{_trusted(clients)}"
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


def _strength(epsilon: float, failures: float) -> str:
    """In the three tiers of Ponomareva et al. 2023 (How to DP-fy ML), section 5.2, which take a
    delta far below 1/n for granted."""
    if failures > FAILURES["reasonable"]:
        return f"a weak promise, since delta times the number of samples is {failures:.2g}"
    if epsilon <= 1 and failures <= FAILURES["strong"]:
        return "a strong promise"
    return "a reasonable promise" if epsilon <= 10 else "a weak promise"
