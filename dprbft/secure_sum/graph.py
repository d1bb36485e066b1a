"""Whom a site shares its secrets with: everybody, or from 100 sites on k sites that it draws.

Each site draws its k holders by coins of its own, once it knows who takes part. So neither the
server nor other sites choose who holds a site's secrets, and no seed can be tried out beforehand.
Two sites mask for each other where one has drawn the other.

| symbol | name |
|---|---|
| n, t | sites, and how many may be missing or help the server |
| k | `degree`: holders a site draws; n - 1 where everybody holds |
| T | `opens`: shares that open a secret, of its k holders and the site itself |
| S | sites, s of them, whose masks cancel among themselves: their sum would be seen apart |

Sites that help the server are chosen before the draws; the server chooses who is missing after
them. Then the bounds below hold:

- A secret is exposed where T of its holders help the server: a hypergeometric tail, for n sites.
- S can be seen apart only if each of its sites has m = 2 T - 2 - k holders or more in S or among
  the helpers. For its vector is masked for T - 1 holders at least, else it sends nothing, and its
  seed is opened by as many: m are in both, less those that help. All but t have signed the list of
  survivors: these have no holder outside of S, the helpers, and the t that are not on the list. The
  union bound is over all S, all that have not signed, and all that are not on the list. It is over
  S of half of the sites at most: of a larger S the rest is apart, too. A site signs no list with
  fewer than T of its holders, so that the rest cannot be cut off by leaving its holders out.
- The sum is stuck where k - T + 1 holders of a site are missing: the same tail.

The first two together stay below 2^-40, the last below 2^-20; k is the smallest with such a T, and
T the largest of these. Where a third of the sites is too few for that, everybody holds, any n - t
open, and nothing is left to chance.

Source: Bell et al. 2020, section 4 (draws by each site itself), and their bounds of k and T.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from scipy.special import gammaln, logsumexp

FEWEST_SPARSE = 100
"""Sites from which on a site draws its holders."""
SECURITY, CERTAINTY = 40.0, 20.0
"""Bits: minus log2 of the chance that more is seen, and that a sum is stuck."""


@dataclass(frozen=True)
class Graph:
    """How many sites hold shares of a site's secrets, and how many of them open one."""

    degree: int  # k
    opens: int  # T
    sparse: bool  # whether holders are drawn


@lru_cache(maxsize=64)
def graph_of(sites: int, missing: int) -> Graph:
    """The smallest graph that n sites can rely on where t of them may be missing or help.

    Args:
        sites: n.
        missing: t, below n / 3.
    """
    low, high = 2, sites // 3
    if sites < FEWEST_SPARSE or not _opens(sites, missing, high):
        return Graph(sites - 1, sites - missing, False)
    while low < high:  # `high` is enough
        middle = (low + high) // 2
        low, high = (low, middle) if _opens(sites, missing, middle) else (middle + 1, high)
    return Graph(high, _opens(sites, missing, high), True)


def _opens(n: int, t: int, k: int) -> int:
    """The largest T of k holders that is certain enough; 0 where it is not secure."""
    opens = _certain(n, t, k)
    if opens < 2 or exposed_bits(n, t, k, opens) < SECURITY + 1:
        return 0
    return opens if apart_bits(n, t, k, opens) >= SECURITY + 1 else 0


def _certain(n: int, t: int, k: int) -> int:
    """The largest T that missing sites leave enough holders for; below 2 if there is none."""
    low, high = 1, k
    while low < high:
        middle = (low + high + 1) // 2
        enough = stuck_bits(n, t, k, middle) >= CERTAINTY
        low, high = (middle, high) if enough else (low, middle - 1)
    return low


def exposed_bits(sites: int, helpers: int, degree: int, opens: int) -> float:
    """Minus log2 of the chance that T of the holders of some site help the server.

    Args:
        sites: n.
        helpers: t of them.
        degree: k holders of a site.
        opens: T.
    """
    return -_bits(log(sites) + _tail(sites - 1, np.array([helpers]), degree, opens)[0])


def stuck_bits(sites: int, missing: int, degree: int, opens: int) -> float:
    """Minus log2 of the chance that the secret of some site cannot be opened.

    Args:
        sites: n.
        missing: t of them.
        degree: k holders of a site.
        opens: T.
    """
    tail = _tail(sites - 1, np.array([missing]), degree, degree - opens + 1)[0]
    return -_bits(log(sites) + tail)


def apart_bits(sites: int, helpers: int, degree: int, opens: int) -> float:
    """Minus log2 of a bound of the chance that the sum of some S can be seen apart.

    Args:
        sites: n.
        helpers: t; as many are off the list of survivors, and as many have not signed it.
        degree: k holders of a site.
        opens: T.
    """
    n, t, k = sites, helpers, degree
    s = np.arange(1, (n - t) // 2 + 1)
    quiet = np.minimum(s, t)
    both = _tail(n - 1, np.minimum(s - 1 + t, n - 1), k, 2 * opens - 2 - k)
    chance = np.multiply(quiet, both, out=np.zeros(len(s)), where=quiet > 0)
    inside = _choose(np.minimum(s - 1 + 2 * t, n - 1), k) - _choose(n - 1, k)
    signed = s > quiet
    rest = (s - quiet)[signed] * inside[signed]  # of those who signed
    chance[signed] += _choose(n, t) + rest
    return -_bits(logsumexp(_choose(n - t, s) + _choose(s, quiet) + chance))


def _tail(population: int, marked: np.ndarray, drawn: int, least: int) -> np.ndarray:
    """Log of the chance of so many marked ones or more, drawn without replacement."""
    hits = np.arange(max(least, 0), drawn + 1)
    if not len(hits):
        return np.full(len(marked), -np.inf)
    of_marked = _choose(marked[:, None], hits)
    each = of_marked + _choose(population - marked[:, None], drawn - hits)
    return np.minimum(logsumexp(each, axis=1) - _choose(population, drawn), 0.0)


def _choose(n: np.ndarray | int, k: np.ndarray | int) -> np.ndarray:
    """Log of the number of subsets of k of n; minus infinity where there is none."""
    n, k = np.broadcast_arrays(np.asarray(n, float), np.asarray(k, float))
    some = (k >= 0) & (k <= n)
    low = np.where(some, k, 0)
    return np.where(some, gammaln(n + 1) - gammaln(low + 1) - gammaln(n - low + 1), -np.inf)


def _bits(value: float) -> float:
    return float(value) / log(2)
