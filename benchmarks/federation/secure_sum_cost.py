"""The cost of masking: processor milliseconds and bytes of a secure sum, by number of sites.

One vector a site, of what method `joined` releases of a map of 128 coordinates and 10 classes. Keys
are signed and verified by node keys. A site's figures are means over all sites; "server" is one
sum. With dropouts, the most that the sum allows have shared their secrets and then send nothing,
which is the server's worst case.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dprbft.secure_sum.identity import new_key, public_of, sign, verify
from dprbft.secure_sum.keys import Signing
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session, most_missing
from dprbft.secure_sum.total import total
from panas.privacy.discrete_gaussian import discrete_gaussian

T = TypeVar("T")

SITES = (4, 10, 50)
D, CLASSES = 128, 10
NUMBERS = D * (D + 1) // 2 + CLASSES * D + CLASSES
STEPS = ("keys", "shares", "noise", "mask", "agree", "unmask")
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


def cost(sites: int, missing: int, repeats: int = 1) -> dict[str, Any]:
    """Milliseconds a step and bytes a site of secure sums with so many dropouts."""
    clock, rng = Clock(), np.random.default_rng(0)
    for _ in range(repeats):
        session = Session(os.urandom(16), tuple(range(sites)), most_missing(sites))
        keyrings = signings(session.sites)
        parties = {i: Party.new(session, i, keyrings[i]) for i in session.sites}
        keys = {i: clock.timed("keys", p.keys) for i, p in parties.items()}
        sealed = {i: clock.timed("shares", p.shares, keys) for i, p in parties.items()}
        masked, plain = {}, np.zeros(NUMBERS, np.uint64)
        for i in session.sites[missing:]:
            x = np.rint(2.0**24 * rng.normal(0, 10, NUMBERS)).astype(np.int64).view(np.uint64)
            x += clock.timed("noise", discrete_gaussian, SIGMA, NUMBERS).view(np.uint64)
            plain += x
            masked[i] = clock.timed("mask", parties[i].mask, x, _received(sealed, i))
        agreed = {i: clock.timed("agree", parties[i].agree, masked) for i in masked}
        answers = {i: clock.timed("unmask", parties[i].unmask, masked, agreed) for i in masked}
        result = clock.timed("server", total, session, keys, sealed, masked, answers)
        assert bool((result == plain).all())
    last = max(masked)
    up = [len(keys[last]), sum(map(len, sealed[last].values())), len(agreed[last])]
    up += [len(answers[last])]
    down = [sum(map(len, m.values())) for m in (keys, _received(sealed, last), agreed)]
    steps = clock.means()
    of_site = sum(ms for step, ms in steps.items() if step != "server")
    return {
        "sites": sites,
        "missing": missing,
        "ms": steps,
        "ms_site": round(of_site, 1),
        "ms_server": round(steps["server"], 1),
        "bytes_up": sum(up) + masked[last].nbytes,
        "bytes_up_beside_vector": sum(up),
        "bytes_down": sum(down),
        "bytes_vector": masked[last].nbytes,
        "bytes_plain_release": 4 * NUMBERS,
    }


def _received(sealed: dict[int, dict[int, bytes]], site: int) -> dict[int, bytes]:
    return {i: sent[site] for i, sent in sealed.items() if i != site}


def costs(sites: Iterable[int] = SITES, repeats: int = 3) -> list[dict[str, Any]]:
    """All rows: no dropouts, and as many as the sum allows."""
    return [cost(n, missing, repeats) for n in sites for missing in sorted({0, most_missing(n)})]


def text(rows: list[dict[str, Any]]) -> str:
    """The table of the documents."""
    lines = [
        "| sites | dropouts | ms a site | of it keys, shares, noise, mask, agree, unmask "
        "| ms server | KB up | of it masks' | KB down |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        steps = ", ".join(f"{r['ms'][s]:.1f}" for s in STEPS)
        lines.append(
            f"| {r['sites']} | {r['missing']} | {r['ms_site']:.1f} | {steps} "
            f"| {r['ms_server']:.0f} | {r['bytes_up'] / 1e3:.1f} "
            f"| {r['bytes_up_beside_vector'] / 1e3:.1f} | {r['bytes_down'] / 1e3:.1f} |"
        )
    return "\n".join(lines)
