"""Who takes part in one secure sum: a public fact that all sites and the server agree on."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dprbft.secure_sum.graph import Graph, graph_of
from panas.runtime.errors import BadInput

FEWEST_SITES = 3
MOST_SITES = 4096
HIGHEST_SITE = 1 << 31
MOST_ID_BYTES = 256


def most_missing(sites: int) -> int:
    """The largest t below a third of the sites."""
    return (sites - 1) // 3


def worth_summing(needed: Mapping[int, float], least: int, missing: int) -> tuple[int, ...]:
    """The sites whose sum has the least noise for its size, ascending.

    A sum has the largest noise of its sites: one with little budget left would cost all others
    theirs. It is left out, pays nothing for the sum, and gets its head as all do. The sum of the
    others bears as many missing as that of all: few sites that ask for little noise cannot put many
    out. Nobody, if there are too few for what may be missing.

    Args:
        needed: noise multiplier that each site's budget asks for, by its number.
        least: fewest sites of a sum.
        missing: t, the most that are left out, and that may be gone.
    """
    order = sorted(needed, key=lambda site: (needed[site], site))
    most = len(order)
    results = [
        (needed[order[n - 1]] / math.sqrt(n * (n - missing)), -n)
        for n in range(max(least, most - missing), most + 1)
        if missing <= most_missing(n)
    ]
    return tuple(sorted(order[: -min(results)[1]])) if results else ()


@dataclass(frozen=True)
class Session:
    """One secure sum over these sites, of which at most `missing` may drop out or collude.

    | symbol | name |
    |---|---|
    | n | the number of `sites` |
    | t | `missing`, below n / 3 |
    | n - t | `threshold`: so many sites must go on |
    | k, T | `graph`: how many sites hold shares of a secret, and how many of them open it |

    With t below a third, two different lists of survivors cannot both gather n - t answers, even
    where t sites answer both. An id is used once: a second sum over the same data needs a charge of
    its own.
    """

    id: bytes
    sites: tuple[int, ...]
    missing: int

    def __post_init__(self) -> None:
        n, numbers = len(self.sites), list(self.sites)
        if not 1 <= len(self.id) <= MOST_ID_BYTES:
            raise BadInput(
                f"expected an id of 1 to {MOST_ID_BYTES} bytes for a secure sum, got "
                f"{len(self.id)}; give another"
            )
        if not FEWEST_SITES <= n <= MOST_SITES:
            raise BadInput(
                f"expected {FEWEST_SITES} to {MOST_SITES} sites in a secure sum, got {n}; "
                "set privacy.trust to server, or add sites"
            )
        if numbers != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < HIGHEST_SITE:
            raise BadInput("expected ascending site numbers, got others; sort them")
        if not 0 <= self.missing <= most_missing(n):
            raise BadInput(
                f"expected at most {most_missing(n)} of {n} sites missing, below a third, got "
                f"{self.missing}; lower federation.secure_missing"
            )

    @property
    def threshold(self) -> int:
        """n - t: fewer sites than that learn nothing, and no sum is made of fewer."""
        return len(self.sites) - self.missing

    @cached_property
    def context(self) -> bytes:
        """32 bytes that bind every derived key and every signature to this session."""
        about: dict[str, Any] = {"id": self.id.hex(), "sites": self.sites, "missing": self.missing}
        if self.graph.sparse:
            about |= {"degree": self.graph.degree, "opens": self.graph.opens}
        return hashlib.sha256(b"secure sum 1 " + json.dumps(about).encode()).digest()

    @cached_property
    def graph(self) -> Graph:
        """Who holds shares of a site's secrets, and how many of them open one."""
        return graph_of(len(self.sites), self.missing)

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self.sites)

    def check_site(self, site: int) -> None:
        """BadInput for a site that does not take part."""
        if site not in self._numbers:
            raise BadInput(
                f"expected one of the {len(self.sites)} sites of the secure sum, got site {site}"
            )

    def check_enough(self, sites: int, what: str) -> None:
        """BadInput if fewer than n - t sites are there at this step."""
        if sites < self.threshold:
            raise BadInput(
                f"expected {what} of at least {self.threshold} of {len(self.sites)} sites, got "
                f"{sites}; the secure sum ends here and opens nothing, start a new run"
            )

    def check_holders(self, sites: int, what: str) -> None:
        """BadInput if fewer than T holders of a secret are there at this step."""
        if sites < self.graph.opens:
            held = self.graph.degree + 1
            raise BadInput(
                f"expected {what} of at least {self.graph.opens} of {held} sites, got {sites}; the "
                "secure sum ends here and opens nothing, start a new run"
            )
