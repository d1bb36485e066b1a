"""Lines of a run that joins: what sites send, tune and predict with, and what joining costs.

A summary's site has `shares` where it averages several predictors, as sites do that have joined
before they searched; sites of methods of rounds have none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dprbft.methods.joined.residual import JoiningPrice
from dprbft.methods.joined.tuning import FEWEST
from dprbft.site.results.records import ByRule, TuningRecord
from panas_cli.text.printing import counted

CANDIDATES = {
    "public": "public head",
    "shared": "shared head",
    "own": "own head",
    "shrunk": "own and shared head",
    "residual": "corrected head",
    "forest": "public forest",
    "logistic": "public regression",
    "network": "network",
}
"""What a site that has joined may predict with."""
EMBEDDED = "Forests and regressions look at the encoder's embeddings"
LEAST, MOST_SHARES = 0.05, 2
"""Share from which on a candidate is named, and how many are."""


def has_joined(clients: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a summary's sites average predictors."""
    return any(c.get("shares") for c in clients)


def shares_text(shares: Mapping[str, float]) -> str:
    """What an average is made of, the largest parts, as validation samples weigh them."""
    parts = sorted(((share, name) for name, share in shares.items()), reverse=True)
    told = [(CANDIDATES[name], share) for share, name in parts if share >= LEAST][:MOST_SHARES]
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
        return "has sent its one release, masked: only the sum over all sites will be seen"
    noise = f"noise multiplier {noise_multiplier:.3g}" if noise_multiplier else "without noise"
    return f"has sent its one release ({noise})"


BY_RULE: dict[ByRule, str] = {
    "no noise": "no noise",
    "given noise": "given noise",
    "few public samples": f"fewer than {FEWEST} public samples",
    "no trials": "no trials",
    "other size": "public samples are too many or few for its size",
    "none better": "no trial is clearly better",
}
"""Why the settings of a residual are not tuned."""
NOTHING = "private training has no gain in trials on public samples; nothing is spent on it"


def tuned_text(record: TuningRecord) -> str:
    """DP-SGD settings, and where they are from."""
    if record.nothing:
        return NOTHING
    s, noise = record.settings, record.noise_multiplier
    results = [
        f"learning rate {s.learning_rate:.3g}",
        *([f"noise multiplier {noise:.3g}"] if noise else []),
        f"clip {s.clip:.3g}",
        f"batch {s.batch_size}",
    ]
    if record.by_rule == "no noise":
        results = [f"learning rate {s.learning_rate:.3g}", f"batch {s.batch_size}"]
    why = "" if record.trials else "not tuned: "
    if record.by_rule:
        why = f"by rule ({BY_RULE[record.by_rule]}): "
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
        f"{f', as long as {assumption}' if rests else ''}",
        f"  of it {', '.join(parts)} (each by itself); the search costs nothing",
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
