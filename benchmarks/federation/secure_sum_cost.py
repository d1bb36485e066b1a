"""The cost of masking: processor milliseconds and bytes of a secure sum, by number of sites.

    python -m benchmarks.secure_sum_cost [--sites 4,10,50,100,1000] [--unsigned] [--json]

One vector a site, of what method `joined` releases of a map of 128 coordinates and 10 classes. Keys
are signed and verified by node keys, unless `--unsigned`, as in a simulation. A site's figures are
means over all sites, and bytes as they are before they are encoded; "server" is one sum. A tenth of
the sites may be missing, as by default. With dropouts so many are: they have shared their secrets,
and then send nothing, which is the server's worst case; "at every step" spreads them over all
steps. Each sum is compared with the plain one.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dprbft.config.sections import FederationSettings
from dprbft.secure_sum.holders import neighbours
from dprbft.secure_sum.identity import new_key, public_of, sign, verify
from dprbft.secure_sum.keys import Signing, read_keys
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.total import total
from panas.privacy.discrete_gaussian import discrete_gaussian

T = TypeVar("T")

SITES = (4, 10, 50)
D, CLASSES = 128, 10
NUMBERS = D * (D + 1) // 2 + CLASSES * D + CLASSES
STEPS = ("keys", "shares", "noise", "mask", "agree", "unmask")
MISSING = ("keys", "shares", "mask", "unmask")  # steps before which a site may drop out
SIGMA = 1 << 24  # steps of a share of the noise


@dataclass
class Clock:
    """Processor milliseconds of every call, by step: others on the machine do not count."""

    calls: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, step: str, work: Callable[..., T], *given: Any) -> T:
        """What the work makes of what is given."""
        began = time.process_time()
        result = work(*given)
        self.calls.setdefault(step, []).append(1e3 * (time.process_time() - began))
        return result

    def means(self) -> dict[str, float]:
        """Milliseconds a call, by step."""
        return {step: round(statistics.fmean(ms), 2) for step, ms in self.calls.items()}


def signings(sites: Iterable[int]) -> dict[int, Signing]:
    """Node keys of all sites, each known to all."""
    private = {site: new_key() for site in sites}
    public = {site: public_of(key) for site, key in private.items()}

    def check(site: int, content: bytes, signature: bytes) -> bool:
        return verify(public[site], content, signature)

    def of(key: bytes) -> Signing:
        return Signing(lambda content: sign(key, content), check)

    return {site: of(key) for site, key in private.items()}


def missing_of(sites: int) -> int:
    """How many of so many sites may be missing by default."""
    return FederationSettings().secure_missing_of(sites)


def dropouts(sites: int, lost: str) -> dict[str, range]:
    """The sites that drop out before each step: "none", all before one step, or "every step"."""
    t = missing_of(sites)
    if lost != "every step":
        return {lost: range(t)} if lost != "none" else {}
    bounds = [t * i // len(MISSING) for i in range(len(MISSING) + 1)]
    return {step: range(*bounds[i : i + 2]) for i, step in enumerate(MISSING)}


def cost(
    sites: int, lost: str = "none", repeats: int = 1, *, signed: bool = True
) -> dict[str, Any]:
    """Milliseconds a step and bytes a site of secure sums.

    Args:
        sites: n.
        lost: the step before which as many drop out as may: "none", "mask", "every step".
        repeats: sums that are averaged.
        signed: whether sites have node keys.
    """
    clock = Clock()
    sums = [summed(clock, sites, dropouts(sites, lost), signed) for _ in range(repeats)]
    steps = clock.means()
    of_site = sum(ms for step, ms in steps.items() if step != "server")
    session = Session(b"x", tuple(range(sites)), missing_of(sites))
    return {
        "sites": sites,
        "lost": lost,
        "missing": missing_of(sites) if lost != "none" else 0,
        "holders": session.graph.degree,
        "opens": session.graph.opens,
        "ms": steps,
        "ms_site": round(of_site, 1),
        "ms_server": round(steps["server"], 1),
        "bytes_plain_release": 4 * NUMBERS,
        **sums[-1],
    }


def summed(clock: Clock, sites: int, gone: dict[str, range], signed: bool) -> dict[str, int]:
    """One sum, compared with the plain one; bytes of the last site."""
    there, rng = list(range(sites)), np.random.default_rng(0)

    def left(step: str) -> list[int]:
        there[:] = [i for i in there if i not in gone.get(step, ())]
        return list(there)

    session = Session(os.urandom(16), tuple(there), missing_of(sites))
    keyrings = signings(session.sites) if signed else {}
    parties = {i: Party.new(session, i, keyrings.get(i)) for i in session.sites}
    keys = {i: clock.timed("keys", parties[i].keys) for i in left("keys")}
    near = neighbours(session, read_keys(session, keys))
    told = {i: {j: keys[j] for j in {i, *near[i]}} for i in keys}
    sealed = {i: clock.timed("shares", parties[i].shares, told[i]) for i in left("shares")}
    received = {i: {j: sealed[j].get(i, b"") for j in near[i] & sealed.keys()} for i in sealed}
    masked, plain = {}, np.zeros(NUMBERS, np.uint64)
    for i in left("mask"):
        x = np.rint(2.0**24 * rng.normal(0, 10, NUMBERS)).astype(np.int64).view(np.uint64)
        x += clock.timed("noise", discrete_gaussian, SIGMA, NUMBERS).view(np.uint64)
        plain += x
        masked[i] = clock.timed("mask", parties[i].mask, x, received[i])
    able = left("unmask")
    agreed = {i: clock.timed("agree", parties[i].agree, masked) for i in able}
    answers = {i: clock.timed("unmask", parties[i].unmask, masked, agreed) for i in able}
    result = clock.timed("server", total, session, keys, sealed, masked, answers)
    if not bool((result == plain).all()):
        raise AssertionError("the secure sum is not the plain sum")
    last = max(able)
    up = [keys[last], *sealed[last].values(), agreed[last], answers[last]]
    down = [*told[last].values(), *received[last].values(), *(agreed.values() if signed else ())]
    return {
        "bytes_up": sum(map(len, up)) + masked[last].nbytes,
        "bytes_up_beside_vector": sum(map(len, up)),
        "bytes_down": sum(map(len, down)) + 4 * len(masked),
        "bytes_vector": masked[last].nbytes,
    }


def costs(
    sites: Iterable[int] = SITES, repeats: int = 3, *, signed: bool = True
) -> list[dict[str, Any]]:
    """All rows: no dropouts, as many as the sum allows, and from 100 sites on at every step.

    Args:
        sites: numbers of sites.
        repeats: sums that are averaged, of fewer than 100 sites.
        signed: whether sites have node keys.
    """
    rows = []
    for n in sites:
        lost = ("none", "mask", "every step") if n >= 100 else ("none", "mask")
        rows += [cost(n, which, repeats if n < 100 else 1, signed=signed) for which in lost]
    return rows


def text(rows: list[dict[str, Any]]) -> str:
    """The table of the documents."""
    lines = [
        "| sites | holders | dropouts | ms a site | of it keys, shares, noise, mask, agree, unmask "
        "| ms server | KB up | of it masks' | KB down |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        steps = ", ".join(f"{r['ms'][s]:.1f}" for s in STEPS)
        lines.append(
            f"| {r['sites']} | {r['holders']} | {r['missing']} | {r['ms_site']:.1f} | {steps} "
            f"| {r['ms_server']:.0f} | {r['bytes_up'] / 1e3:.1f} "
            f"| {r['bytes_up_beside_vector'] / 1e3:.1f} | {r['bytes_down'] / 1e3:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default=",".join(map(str, SITES)))
    parser.add_argument("--unsigned", action="store_true", help="sites without node keys")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = costs(map(int, args.sites.split(",")), signed=not args.unsigned)
    print(json.dumps({"costs": rows}) if args.json else text(rows))


if __name__ == "__main__":
    main()
