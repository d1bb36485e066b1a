"""Splits of one site's samples, and draws that follow a label histogram.

Every sample falls into exactly one of search, train, validation and test. `hashed_split` is for
private samples: where one goes depends on no other. `split` is stratified: a class has the same
share of every part, up to one sample. Source: DPFNAS, section IV (search 500 train / 100 validation
/ 100 test samples, disjoint from the training data). What a site's search looks at, and so what it
costs, is `SearchData`.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64, Real, UInt64
from torch import Tensor

from panas.data.files.raw import TEST, TRAIN, VALIDATION, check_whole
from panas.data.samples import Labels, Samples, content_hashes
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Splits:
    """Sorted indices of one site's samples; disjoint, and together all of them."""

    search: Int64[np.ndarray, "a"]
    train: Int64[np.ndarray, "b"]
    validation: Int64[np.ndarray, "c"]
    test: Int64[np.ndarray, "d"]


def split(
    y: Labels, *, search: float, validation: float, test: float, rng: np.random.Generator
) -> Splits:
    """Split n samples by class; what the three fractions leave is for training.

    `train` holds at least one sample if n >= 1; from n = 4 on, `validation` and `test` do too where
    their share is above 0.

    Args:
        y: classes (n,), whole numbers of 0 or more.
        search: share of n for the architecture search, in [0, 1).
        validation: share that chooses a round and a head, in [0, 1).
        test: share for the report, in [0, 1); all three add up to less than 1.
        rng: draws the samples of each part within a class.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> parts = split(np.arange(20) % 2, search=0.2, validation=0.1, test=0.2, rng=rng)
    >>> len(parts.search), len(parts.train), len(parts.validation), len(parts.test)
    (4, 10, 2, 4)
    """
    fractions = _fractions(search, validation, test)
    labels = np.asarray(y)
    n = len(labels)
    sizes = np.round(fractions * n).astype(int)
    if n >= 4:
        sizes[1:] = np.where(fractions[1:] > 0, np.maximum(sizes[1:], 1), 0)
    while sizes.sum() > max(n - 1, 0):
        sizes[sizes.argmax()] -= 1
    left, parts = np.arange(n), []
    for size in sizes:
        at = stratified(labels[left], int(size), rng)
        parts.append(left[at])
        left = np.delete(left, at)
    return Splits(search=parts[0], train=left, validation=parts[1], test=parts[2])


def _fractions(search: float, validation: float, test: float) -> Float64[np.ndarray, "3"]:
    fractions = np.array([search, validation, test], dtype=float)
    if not (np.all(fractions >= 0) and fractions.sum() < 1):  # also refuses NaN
        raise BadInput(
            "expected search, validation and test fractions in [0, 1) with a sum below 1, "
            f"got {search}, {validation} and {test}; leave a share for training"
        )
    return fractions


def hashed_split(
    samples: Samples, *, search: float, validation: float, test: float, key: bytes
) -> Splits:
    """Split n samples by a keyed hash of each one's content and class, or of its group.

    Equal samples, and those of a group, go together. Where the data have an official part for
    validation or test, its samples do so, and no others, however few these are. An empty validation
    or test part whose fraction is above 0 takes one unit from training, the first in an order by
    hash.

    Args:
        samples: n of them; where they have groups, a group is a unit, else a sample.
        search: chance of each unit to fall into this part, in [0, 1), as the next two.
        validation: likewise; without effect where the data have such a part.
        test: likewise; all three add up to less than 1.
        key: at most 64 bytes; secret where nobody shall know who is in which part.

    Privacy: one unit more in the set is at most one unit more in `search` or in `train`; it moves
    no other one out of them or from one to the other. `key`, of at most 64 bytes, is to be secret
    where nobody shall know who is in which part.
    """
    shares = _fractions(search, validation, test)
    unit = content_hashes(samples, key) if samples.groups is None else _group_hashes(samples, key)
    rank = unit / 2.0**64
    official = np.full(len(samples), TRAIN) if samples.part is None else samples.part.numpy()
    named = samples.official
    if not np.isin(official, (TRAIN, *named)).all():
        raise BadInput("expected samples of official parts that are named, got others; name them")
    cuts = np.cumsum([0.0 if i in named else share for i, share in enumerate(shares)])
    part = np.searchsorted(cuts, rank, side="right")  # 0 search, 1 validation, 2 test, 3 train
    part = np.where(official == TRAIN, part, official)
    if named and samples.groups is not None:
        check_whole(samples.groups.numpy(), official, "the data")
    for target in (VALIDATION, TEST):
        left = np.flatnonzero(part == 3)
        if shares[target] and not np.any(part == target) and len(left):
            first = left[rank[left].argmin() if target == VALIDATION else rank[left].argmax()]
            # One sample alone, also of several equal ones: a unit that moves must be one unit.
            part[first if samples.groups is None else unit == unit[first]] = target
    at = [np.flatnonzero(part == p) for p in range(4)]
    return Splits(search=at[0], train=at[3], validation=at[1], test=at[2])


def _group_hashes(samples: Samples, key: bytes) -> UInt64[np.ndarray, "n"]:
    assert samples.groups is not None
    groups, of = np.unique(samples.groups.numpy(), return_inverse=True)
    texts = [hashlib.blake2b(g.tobytes(), digest_size=8, key=key).digest() for g in groups]
    return np.frombuffer(b"".join(texts), ">u8").astype(np.uint64)[of]


def stratified(y: Labels, size: int, rng: np.random.Generator) -> Int64[np.ndarray, "m"]:
    """Sorted positions of samples without replacement, each class within one of its share.

    Args:
        y: classes (n,), whole numbers of 0 or more.
        size: m, how many positions, 0 to n.
        rng: draws within a class, and which classes get what rounding leaves.
    """
    labels = np.asarray(y)
    if not 0 <= size <= len(labels):
        raise BadInput(f"expected a draw of 0 to {len(labels)} samples, got {size}")
    values, counts = np.unique(labels, return_counts=True)
    chosen = [
        rng.permutation(np.flatnonzero(labels == value))[:share]
        for value, share in zip(values, apportion(counts, size, rng), strict=True)
    ]
    return np.sort(np.concatenate([*chosen, np.empty(0, np.int64)]))


def resample_to(
    y: Labels,
    histogram: Real[np.ndarray, "classes"] | Real[Tensor, "classes"],
    size: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, "m"]:
    """Draw samples with replacement so that their class frequencies follow a histogram.

    The weight of a class without samples is spread over the present ones, in proportion; weights
    that leave nothing are replaced by equal ones. The result is shuffled; each class's count is
    within one of its exact share.

    Args:
        y: classes (n,) of the samples to draw from, n >= 1.
        histogram: weight of each class, any scale; negative ones, as noise leaves them, count as 0.
        size: m, how many positions to return; it may exceed n.
        rng: draws the samples and shuffles them.

    Privacy: public samples and a noised histogram cost nothing more than the noised histogram did.

    >>> import numpy as np
    >>> y = np.array([0, 0, 1])
    >>> at = resample_to(y, np.array([1.0, 3.0]), 8, np.random.default_rng(0))
    >>> np.bincount(y[at]).tolist()
    [2, 6]
    """
    labels, weights = np.asarray(y), np.asarray(histogram, dtype=float)
    if size < 0 or (size > 0 and not len(labels)):
        raise BadInput(f"expected samples to draw from, got {len(labels)} for {size} draws")
    if len(labels) and labels.max() >= len(weights):
        raise BadInput(f"expected a weight for class {labels.max()}, got {len(weights)} weights")
    if not np.isfinite(weights).all():
        raise BadInput("expected finite class weights, got NaN or infinity; check the histogram")
    if size == 0:
        return np.empty(0, np.int64)
    present = np.unique(labels)
    weights = np.clip(weights[present], 0, None)
    if not weights.any():
        weights = np.ones(len(present))
    drawn = [
        rng.choice(np.flatnonzero(labels == value), share)
        for value, share in zip(present, apportion(weights, size, rng), strict=True)
    ]
    return rng.permutation(np.concatenate(drawn))


def apportion(
    weights: Real[np.ndarray, "k"], size: int, rng: np.random.Generator
) -> Int64[np.ndarray, "k"]:
    """Share a number out in proportion to weights by largest remainder, ties at random.

    Each count is within one of its share; a weight that is a count is not exceeded if `size` is at
    most their sum.

    Args:
        weights: of each of k parts, 0 or more, any scale.
        size: sum of the counts, 0 or more.
        rng: breaks ties.
    """
    if not len(weights):
        return np.zeros(0, np.int64)
    # First to a largest weight of 1: sums of huge weights would overflow, of tiny ones vanish.
    scaled = weights / max(float(weights.max()), np.finfo(float).tiny)
    exact = scaled * (size / max(scaled.sum(), np.finfo(float).tiny))
    counts = np.floor(exact + 1e-9).astype(np.int64)
    order = np.lexsort((rng.random(len(weights)), counts - exact))
    counts[order[: size - counts.sum()]] += 1
    return counts


@dataclass(frozen=True)
class SearchData:
    """What a search looks at; the parts are disjoint in their origin."""

    warm: Samples  # what a network has seen before private training
    train: Samples  # stands for the private samples
    validation: Samples


def proxy_data(
    public: Samples, histogram: Float[Tensor, "classes"], *, samples: int, rng: np.random.Generator
) -> SearchData:
    """At least one public sample, resampled to a site's class frequencies and number of samples.

    Args:
        public: n >= 1, with labels.
        histogram: the site's noised label counts; negative ones count as 0.
        samples: number of the site's training samples, which counts as public.
        rng: draws the samples.

    Privacy: the outcome depends on private data through the site's noised label histogram alone;
    `samples`, the number of its training samples, counts as public.
    """
    if not len(public):
        raise BadInput(
            "expected public samples to search on, got none; give data.public_data, or raise "
            "data.public_fraction"
        )
    s = split(public.y, search=0.4, validation=0.3, test=0.0, rng=rng)
    warm, train, validation = (public.take(part) for part in (s.search, s.train, s.validation))

    def alike(part: Samples, size: int) -> Samples:
        source = part if len(part) else public
        return source.take(resample_to(source.y, histogram, size, rng))

    return SearchData(warm, alike(train, samples), alike(validation, max(200, len(validation))))


def private_data(search: Samples, public: Samples, rng: np.random.Generator) -> SearchData:
    """The paper's way: five sevenths of the private search split train, one seventh validates.

    The last seventh is the paper's test part of the search, which nothing may choose by.

    Args:
        search: the site's private search split.
        public: what a warm start would see; it may be empty.
        rng: divides the split.

    Privacy: none; charge `Unprotected()` for the search split first.
    """
    s = split(search.y, search=0.0, validation=1 / 7, test=1 / 7, rng=rng)
    return SearchData(public, search.take(s.train), search.take(s.validation))
