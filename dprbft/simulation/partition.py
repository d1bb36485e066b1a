"""How a data set is spread over sites: iid, Dirichlet, class subsets, or natural groups.

| symbol | name |
|---|---|
| K | `clients` |
| alpha | `alpha`, concentration of the Dirichlet distribution: large ~ iid, small ~ few classes |

Sources: Dirichlet label skew: Hsu, Qi and Brown 2019 (per class over sites, as in FedGH's and
PerFedRLNAS's comparisons); class subsets with shares from U(0.4, 0.6): FedGH, section 5.1.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int64, Shaped

from panas.data.samples import Labels
from panas.runtime.errors import BadInput

Kind = Literal["iid", "dirichlet", "classes", "natural"]

REDRAWS = 1000
"""How often a Dirichlet draw that starves a site is repeated before samples are moved."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """How the samples are shared out.

    Kinds: "iid" (equal shares at random), "dirichlet" (label skew), "classes" (each site owns
    some; a class that nobody owns is left out), "natural" (a site a group, in sorted order).
    """

    kind: str
    clients: int  # K, 1 to n
    alpha: float = 0.5  # above 0; "dirichlet" only
    classes_per_client: int = 2  # that a site owns, 1 to C; "classes" only
    minimum: int = 10  # fewest samples of a site, at least 1; "dirichlet" only


def partition(
    y: Labels,
    how: Partition,
    rng: np.random.Generator,
    groups: Shaped[np.ndarray, "g"] | None = None,
) -> list[Int64[np.ndarray, "_"]]:
    """Give each site its samples: K disjoint, sorted, non-empty index arrays.

    Args:
        y: classes (n,) of the samples.
        how: the scheme, and K, its number of sites.
        rng: draws who gets what.
        groups: of the samples, for "natural" alone.
    """
    labels, clients = np.asarray(y), how.clients
    if clients < 1 or clients > len(labels):
        raise BadInput(
            f"expected 1 to {len(labels)} sites for {len(labels)} samples, got {clients}; "
            "use fewer sites or more samples"
        )
    match how.kind:
        case "iid":
            parts = np.array_split(rng.permutation(len(labels)), clients)
        case "dirichlet":
            parts = _dirichlet(labels, clients, rng, how.alpha, how.minimum)
        case "classes":
            parts = _classes(labels, clients, rng, how.classes_per_client)
        case "natural":
            parts = _natural(len(labels), clients, groups)
        case _:
            known = ", ".join(get_args(Kind))
            raise BadInput(f"expected a partition of kind {known}, got {how.kind!r}")
    for site, part in enumerate(parts):
        if not len(part):
            raise BadInput(
                f"expected samples for each of the {clients} sites, got none for site "
                f"{site}; use fewer sites or more samples"
            )
    return [np.sort(part).astype(np.int64) for part in parts]


def partition_whole(
    y: Labels,
    units: Shaped[np.ndarray, "n"],
    how: Partition,
    rng: np.random.Generator,
) -> list[Int64[np.ndarray, "_"]]:
    """`partition` of privacy units, say patients: all samples of one go to the same site.

    A unit counts as one sample, of the class of its first.

    Args:
        y: classes (n,) of the samples.
        units: the unit of each sample.
        how: the scheme, and K, its number of sites.
        rng: draws who gets what.
    """
    _, first, unit = np.unique(units, return_index=True, return_inverse=True)
    parts = partition(np.asarray(y)[first], how, rng)
    return [np.flatnonzero(np.isin(unit, part)).astype(np.int64) for part in parts]


def _dirichlet(
    y: np.ndarray, clients: int, rng: np.random.Generator, alpha: float, minimum: int
) -> list[np.ndarray]:
    """Per class, proportions over the sites from Dir(alpha); at least `minimum` each."""
    if not 0 < alpha < np.inf:
        raise BadInput(f"expected a Dirichlet alpha above 0, got {alpha}; 0.1 to 100 is usual")
    if minimum < 1 or len(y) < clients * minimum:
        raise BadInput(
            f"expected at least {clients} sites x {max(minimum, 1)} samples, got {len(y)} "
            f"samples and a minimum of {minimum}; use fewer sites or another minimum"
        )
    values, sizes = np.unique(y, return_counts=True)
    for _ in range(REDRAWS):
        shares = rng.dirichlet(np.full(clients, alpha), size=len(values))
        counts = _counts(shares, sizes)
        if counts.sum(axis=0).min() >= minimum:
            break
    total = counts.sum(axis=0)
    while total.min() < minimum:  # the mean is at least the minimum, so the largest can give
        small, large = total.argmin(), total.argmax()
        c = counts[:, large].argmax()
        counts[c, [large, small]] += [-1, 1]
        total[[large, small]] += [-1, 1]
    return _deal(y, values, counts, rng)


def _classes(
    y: np.ndarray, clients: int, rng: np.random.Generator, classes_per_client: int
) -> list[np.ndarray]:
    """Classes in a shuffled cycle over the sites; an owner's share of a class ~ U(0.4, 0.6)."""
    values, sizes = np.unique(y, return_counts=True)
    C, k = len(values), classes_per_client
    if not 1 <= k <= C:
        raise BadInput(f"expected 1 to {C} classes per site for {C} classes, got {k}")
    owned = rng.permutation(C)[(np.arange(clients)[:, None] * k + np.arange(k)) % C]
    owns = np.stack([(owned == c).any(axis=1) for c in range(C)])
    shares = np.where(owns, rng.uniform(0.4, 0.6, owns.shape), 0)
    total = shares.sum(axis=1, keepdims=True)
    return _deal(y, values, _counts(shares / np.where(total > 0, total, 1), sizes), rng)


def _natural(n: int, clients: int, groups: np.ndarray | None) -> list[np.ndarray]:
    """One site a group."""
    if groups is None or len(groups) != n:
        got = "none" if groups is None else len(groups)
        raise BadInput(f"expected a group for each of the {n} samples, got {got}; give groups")
    values, group = np.unique(groups, return_inverse=True)
    if len(values) != clients:
        raise BadInput(
            f"expected a site for each of the {len(values)} names in the site column, got "
            f"{clients} sites; set federation.clients to {len(values)}"
        )
    return [np.flatnonzero(group == g) for g in range(clients)]


def _counts(shares: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whole numbers (C, K) whose rows sum to `sizes` (C,), or 0 where nobody has a share."""
    cuts = np.round(np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
    return np.diff(cuts, axis=1, prepend=0)


def _deal(
    y: np.ndarray, values: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Deal each class's shuffled samples by `counts` (C, K); those beyond the counts stay out."""
    hands: list[list[np.ndarray]] = [[] for _ in range(counts.shape[1])]
    for value, share in zip(values, counts, strict=True):
        cards = rng.permutation(np.flatnonzero(y == value))
        for hand, part in zip(hands, np.split(cards, np.cumsum(share)), strict=False):
            hand.append(part)
    return [np.concatenate(hand) for hand in hands]
