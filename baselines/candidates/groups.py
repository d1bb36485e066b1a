"""Sites partitioned into groups of about equal data, each with the labels of all.

| symbol | name |
|---|---|
| d_j | `sizes`: samples of a group |
| r | `most`: largest d_j over smallest |
| v | class frequencies; two of them differ by their Manhattan distance |

Source: DecNAS, section 4.2: min over partitions of the mean distance between the frequencies of a
group and of all sites, subject to max d_j <= r min d_j. Its greedy rule gives the first partition.
Additions: it is tried with a tight balance too, and of up to `MOST_BETTERED` sites moves and swaps
better both, first in balance, then in distance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

BALANCE = 1.1  # r
MOST_PASSES, MOST_BETTERED = 20, 60
AIMS = (0.7, 0.0)  # parts of r - 1 that the greedy rule allows itself: it lands near, not within
EXACTLY = 1e-12  # what is less is rounding
EMPTY = 1e9  # a group with nobody is worse than any imbalance


@dataclass(frozen=True)
class SiteFacts:
    """What a server knows of a site's samples."""

    samples: int  # privacy units to train on; a public fact
    histogram: tuple[float, ...]  # label counts as they left the site, noised or not


def frequencies(histogram: Sequence[float]) -> Float[np.ndarray, "c"]:
    """Class frequencies of noised counts: negative ones are 0; all alike if nothing is left."""
    counts = np.maximum(np.asarray(histogram, dtype=np.float64), 0.0)
    total = counts.sum()
    return counts / total if total > 0 else np.full(len(counts), 1 / max(1, len(counts)))


def partition(sites: Sequence[SiteFacts], groups: int, most: float = BALANCE) -> list[list[int]]:
    """Positions of sites by group; as many groups as asked for, at most one a site.

    Balanced within `most` where moves and swaps of sites reach that; else as near as they come.
    """
    count = max(1, min(groups, len(sites)))
    samples = np.array([max(1, site.samples) for site in sites], dtype=np.int64)
    labels = np.stack([n * frequencies(s.histogram) for n, s in zip(samples, sites, strict=True)])
    found = []
    for aim in AIMS:
        placed = _greedy(samples, labels, count, 1 + aim * (most - 1))
        if len(sites) <= MOST_BETTERED:
            _better(samples, labels, placed, count, most)
        found.append((_score(samples, labels, placed, count, most), placed))
    placed = min(found, key=lambda pair: pair[0])[1]
    return [[int(i) for i in np.flatnonzero(placed == j)] for j in range(count)]


def imbalance(sites: Sequence[SiteFacts], groups: Sequence[Sequence[int]]) -> float:
    """Samples of the largest group over those of the smallest."""
    sizes = [sum(sites[i].samples for i in group) for group in groups]
    return max(sizes) / max(1, min(sizes))


def label_distance(sites: Sequence[SiteFacts], groups: Sequence[Sequence[int]]) -> float:
    """Mean Manhattan distance between the class frequencies of a group and of all sites."""
    labels = np.stack([s.samples * frequencies(s.histogram) for s in sites])
    placed = np.empty(len(sites), dtype=np.int64)
    for j, group in enumerate(groups):
        placed[list(group)] = j
    return _distance(labels, placed, len(groups))


def _greedy(
    samples: Int[np.ndarray, "n"], labels: Float[np.ndarray, "n c"], count: int, most: float
) -> Int[np.ndarray, "n"]:
    """The largest site first, to the group that keeps the balance and ends nearest to all."""
    fair = samples.sum() / count * 2 * most / (1 + most)  # groups from fair / r to fair are within
    placed, sizes = np.full(len(samples), -1), np.zeros(count)
    sums = np.zeros((count, labels.shape[1]))
    whole, left = labels.sum(0) / labels.sum(), samples.sum()
    for i in np.argsort(-samples, kind="stable"):
        left -= samples[i]
        lacking = np.maximum(0.0, fair / most - sizes)
        spared = np.minimum(lacking, samples[i])  # what the site would fill of each group's lack
        fits = (sizes + samples[i] <= fair) & (lacking.sum() - spared <= left)
        allowed = np.flatnonzero(fits).tolist() or [int(sizes.argmin())]
        distances = []
        for j in allowed:
            after = sums.copy()
            after[j] += labels[i]
            distances.append(_apart(after, whole))
        j = allowed[int(np.argmin(distances))]
        placed[i], sizes[j], sums[j] = j, sizes[j] + samples[i], sums[j] + labels[i]
    return placed


def _better(
    samples: Int[np.ndarray, "n"],
    labels: Float[np.ndarray, "n c"],
    placed: Int[np.ndarray, "n"],
    count: int,
    most: float,
) -> None:
    """Move and swap sites, in place, while that betters the score."""
    score = _score(samples, labels, placed, count, most)
    for _ in range(MOST_PASSES):
        begun = score
        for changed in _neighbours(placed, count):
            new = _score(samples, labels, changed, count, most)
            if new < _just_below(score):
                placed[:], score = changed, new
        if score == begun:
            break


def _neighbours(placed: Int[np.ndarray, "n"], count: int) -> Iterator[Int[np.ndarray, "n"]]:
    """Partitions one move or one swap away from the one that `placed` holds at the time."""
    for i in range(len(placed)):
        for j in range(count):
            if placed[i] != j:
                moved = placed.copy()
                moved[i] = j
                yield moved
        for k in range(i):
            if placed[i] != placed[k]:
                swapped = placed.copy()
                swapped[[i, k]] = swapped[[k, i]]
                yield swapped


def _score(
    samples: Int[np.ndarray, "n"],
    labels: Float[np.ndarray, "n c"],
    placed: Int[np.ndarray, "n"],
    count: int,
    most: float,
) -> tuple[float, float]:
    """How far it is beyond the balance, then how far its labels are from all."""
    sizes = np.bincount(placed, weights=samples, minlength=count)
    empty = int((sizes == 0).sum())
    beyond = EMPTY * empty if empty else max(0.0, float(sizes.max() / sizes.min()) - most)
    return beyond, _distance(labels, placed, count)


def _distance(labels: Float[np.ndarray, "n c"], placed: Int[np.ndarray, "n"], count: int) -> float:
    sums = np.zeros((count, labels.shape[1]))
    np.add.at(sums, placed, labels)
    return _apart(sums, labels.sum(0) / labels.sum())


def _apart(sums: Float[np.ndarray, "k c"], whole: Float[np.ndarray, "c"]) -> float:
    """Mean distance of groups from all; of a group with nobody it is 1."""
    shares = sums / np.maximum(sums.sum(1, keepdims=True), EXACTLY)
    return float(np.abs(shares - whole).sum(1).mean())


def _just_below(score: tuple[float, float]) -> tuple[float, float]:
    beyond, distance = score
    return beyond, distance - EXACTLY
