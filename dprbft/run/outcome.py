"""What a run came to: accuracies beside their baselines, the gain of joining, odds, and verdicts.

All figures follow from `summary.json` and `audit.json`. Notation: of K sites that are counted, site
i has n_i test samples, on which p_i of those with joining are right, and q_i of those of the
strongest baseline.

| figure | formula |
|---|---|
| interval of an accuracy | Wilson's score interval at 95 % |
| gain | mean of p_i - q_i over sites |
| error of the gain | the larger of stdev(p_i - q_i) / sqrt(K) (over sites) and |
| | sqrt(sum_i v_i / n_i) / K (over test samples) |
| v_i | of pairs: b_i / n_i - (p_i - q_i)^2, where exactly one is right on b_i samples; |
| | where b_i is not known: p_i (1 - p_i) + q_i (1 - q_i), which is more |
| odds | e^epsilon |

A gain is clear from two errors on. The strongest baseline is the one of the best mean accuracy
among those that a site has without joining, with no more privacy loss: trained alone under its own
budget, or on public samples.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from panas.training.baselines import Baselines

FEWEST = 5
"""Test samples below which a site is in no mean."""
ERRORS = 2.0
"""Standard errors from which on a gain is clear."""
Z = 1.959964
"""Of an interval at 95 %."""
BEHIND = 0.03
"""By how much a network may be less accurate than what its site predicts with."""
ALONE = "each site alone"
PUBLIC = {
    "random forest": "a forest of public samples",
    "logistic regression": "a regression of public samples",
}
START = "a head of public samples"


@dataclass(frozen=True, kw_only=True)
class SiteOutcome:
    """One site's figures; accuracies are of its own test samples, None where not measured."""

    name: str
    tests: int
    majority: float | None
    baselines: Mapping[str, float]  # without joining, at no more privacy loss
    joined: float | None  # what the site predicts with in the end
    network: float | None  # its own searched network, by itself
    differ: int | None = None  # test samples on which exactly one of alone and joined is right
    epsilon: float
    budget: float
    verdicts: tuple[str, ...] = ()  # of the audit, on what it sent and on its network

    @property
    def counted(self) -> bool:
        """Whether it has enough test samples to be in a mean."""
        return self.tests >= FEWEST and self.joined is not None


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What joining changed, in accuracy."""

    over: str  # the strongest baseline
    mean: float
    error: float
    sites: int
    up: int  # sites that gained more than a point
    down: int  # sites that lost more than one

    @property
    def is_clear(self) -> bool:
        """Whether it is beyond two standard errors."""
        return abs(self.mean) > ERRORS * self.error

    @property
    def text(self) -> str:
        """The gain and its error, in points."""
        return f"{100 * self.mean:+.1f} ± {100 * self.error:.1f} points"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The figures of a run, on one machine."""

    sites: tuple[SiteOutcome, ...]
    means: Mapping[str, float]  # over counted sites: each baseline, majority, joined, network
    sent: bool  # whether anything left a site
    gain: Gain | None  # None where nothing was sent, or nothing measured
    epsilon: float  # the largest that a site has spent
    delta: float
    failures: float  # the most samples of a site that the promise may fail for, on average
    unit: str
    trust: tuple[str, ...]  # what the promise rests on; () where on nothing
    local: float  # epsilon where that fails

    @property
    def counted(self) -> int:
        """Of how many sites the means are."""
        return sum(site.counted for site in self.sites)

    @property
    def counts_all(self) -> bool:
        """Whether the means are of all sites."""
        return self.counted == len(self.sites)

    @property
    def best(self) -> tuple[str, float] | None:
        """The strongest baseline, and its mean accuracy."""
        known = {name: self.means[name] for name in _baselines(self.sites) if name in self.means}
        return max(known.items(), key=lambda item: item[1]) if known else None

    @property
    def steps(self) -> dict[str, float]:
        """Mean accuracies without joining, and last with it; {} where fewer than two are known."""
        steps = {"most frequent class": self.means.get("majority")}
        if self.best:
            steps[self.best[0]] = self.best[1]
        steps["joined" if self.sent else "in the end"] = self.means.get("joined")
        known = {name: value for name, value in steps.items() if value is not None}
        return known if len(known) > 1 else {}

    @property
    def odds(self) -> float:
        """By what factor whatever left can change anyone's odds that a sample took part."""
        return odds(self.epsilon)

    @property
    def local_odds(self) -> float:
        """The same where what the promise rests on fails."""
        return odds(self.local)


def outcome(summary: Mapping[str, Any], audit: Mapping[str, Any] | None = None) -> Outcome:
    """The figures of a run's summary, and of its audit if there is one.

    Args:
        summary: as `dprbft.run.summary.summarise` returns it, of sites on this machine.
        audit: as `audit.json` holds it.
    """
    verdicts = _verdicts(audit)
    sites = tuple(_site(c, verdicts.get(c["name"], ())) for c in summary["clients"])
    worst = max(summary["clients"], key=lambda c: float(c["epsilon"]["spent"]))
    sent = bool(summary["communication"]["up_bytes"])
    means = _means([s for s in sites if s.counted])
    trust = dict.fromkeys(t["assumption"] for c in summary["clients"] for t in c.get("trust", ()))
    result = Outcome(
        sites=sites,
        means=means,
        sent=sent,
        gain=None,
        epsilon=float(worst["epsilon"]["spent"]),
        delta=worst["delta"],
        failures=max(
            c["delta"] * sum((c.get("samples") or {}).values()) for c in summary["clients"]
        ),
        unit=worst["unit"],
        trust=tuple(trust),
        local=max(float(c.get("spent_local", c["epsilon"]["spent"])) for c in summary["clients"]),
    )
    if not sent or result.best is None:
        return result
    return _with(result, _gain(result.sites, result.best[0]))


def odds(epsilon: float) -> float:
    """e^epsilon, as far as a float goes."""
    return math.exp(min(epsilon, 700))


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's score interval, at 95 %, of a share of n >= 1 samples."""
    z2 = Z * Z / n
    middle = (share + z2 / 2) / (1 + z2)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return max(0.0, middle - half), min(1.0, middle + half)


def _with(result: Outcome, gain: Gain | None) -> Outcome:
    return Outcome(**{**vars(result), "gain": gain})


def _verdicts(audit: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    results = {}
    for c in (audit or {}).get("clients", ()):
        network = c.get("network")
        results[c["name"]] = (c["verdict"], *([network["verdict"]] if network else []))
    return results


def _site(c: Mapping[str, Any], verdicts: tuple[str, ...]) -> SiteOutcome:
    steps, baselines = c["ladder"], {}
    if steps["alone"] is not None:
        baselines[ALONE] = steps["alone"]
    if steps["public"] is not None:
        baselines[START] = steps["public"]
    record = Baselines.from_json(c["baselines"]) if c.get("baselines") else None
    for rival in record.rivals if record else ():
        if rival.reads == "public":
            name = PUBLIC[rival.model]
            if rival.sees == "embeddings":
                name = name.replace("samples", "embeddings")
            baselines[name] = rival.accuracy
    return SiteOutcome(
        name=c["name"],
        tests=(c.get("samples") or {}).get("test", 0),
        majority=steps["majority"],
        baselines=baselines,
        joined=steps["joined"],
        network=c["accuracy"].get("network"),
        differ=c["accuracy"].get("differ"),
        epsilon=float(c["epsilon"]["spent"]),
        budget=float(c["epsilon"]["budget"]),
        verdicts=verdicts,
    )


def _baselines(sites: Sequence[SiteOutcome]) -> list[str]:
    """The baselines that all counted sites have."""
    counted = [s for s in sites if s.counted]
    names = dict.fromkeys(name for s in counted for name in s.baselines)
    return [name for name in names if all(name in s.baselines for s in counted)]


def _means(counted: Sequence[SiteOutcome]) -> dict[str, float]:
    columns: dict[str, list[float | None]] = {
        "majority": [s.majority for s in counted],
        **{name: [s.baselines[name] for s in counted] for name in _baselines(counted)},
        "joined": [s.joined for s in counted],
        "network": [s.network for s in counted],
    }
    known = {name: [v for v in values if v is not None] for name, values in columns.items()}
    return {
        name: statistics.fmean(values)
        for name, values in known.items()
        if values and len(values) == len(counted)
    }


def with_weak_networks(sites: Sequence[SiteOutcome]) -> list[SiteOutcome]:
    """Sites whose network is `BEHIND` or more below what they predict with; none unless the mean
    over sites is, beyond what `ERRORS` errors of test samples explain."""
    known = [
        (s, s.joined, s.network)
        for s in sites
        if s.counted and s.joined is not None and s.network is not None
    ]
    drawn = sum((p * (1 - p) + q * (1 - q)) / s.tests for s, p, q in known)
    below = sum(joined - network for _, joined, network in known)
    if below - ERRORS * math.sqrt(drawn) <= BEHIND * len(known):
        return []
    return [s for s, joined, network in known if network <= joined - BEHIND]


def _gain(sites: Sequence[SiteOutcome], over: str) -> Gain:
    counted = [(s, s.joined) for s in sites if s.counted and s.joined is not None]
    gains = [round(joined - s.baselines[over], 9) for s, joined in counted]
    k = len(gains)
    over_sites = statistics.stdev(gains) / math.sqrt(k) if k > 1 else 0.0
    drawn = sum(_variance(s, joined, over) / s.tests for s, joined in counted)
    return Gain(
        over=over,
        mean=statistics.fmean(gains),
        error=max(over_sites, math.sqrt(drawn) / k),
        sites=k,
        up=sum(g > 0.01 for g in gains),
        down=sum(g < -0.01 for g in gains),
    )


def _variance(site: SiteOutcome, joined: float, over: str) -> float:
    """Of a test sample's gain: 1, 0 or -1."""
    other = site.baselines[over]
    if over == ALONE and site.differ is not None:
        return max(0.0, site.differ / site.tests - (joined - other) ** 2)
    return joined * (1 - joined) + other * (1 - other)
