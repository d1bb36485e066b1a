"""A secure sum played through, and looked at as its server and all other sites may look.

What a site sends must be uniform modulo 2^64 as long as one of its secrets is unknown: with all its
masks, without its own mask, which the server takes off in the end, and without its pair masks,
which the other sites know. Fewer shares than open a secret must be uniform, too.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.stats
import torch

from attacks.conformance.finding import Finding
from attacks.conformance.masked import findings_between_masked, findings_of_masked
from attacks.conformance.noise import findings_of
from attacks.replay.sources import as_residual
from dprbft.secure_sum.field import value_at_0
from dprbft.secure_sum.keys import Announced, key_pair
from dprbft.secure_sum.masks import Masked, Vector, pair_mask, self_mask
from dprbft.secure_sum.party import PAIR_KEY, Party
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.shares import split
from dprbft.secure_sum.total import total
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.runtime.errors import BadInput

SITES, MISSING, SIZE = 4, 1, 150
SMALL, LARGE, DRAWS = 2, 1 << 36, 2000  # sigmas of the discrete Gaussian, and draws of each
SPLITS = 60  # of one secret
SAYS = "what others see of it is not uniform, so that it says something of a single site"


@dataclass(frozen=True)
class _Played:
    """What crossed the wire, and the parties."""

    session: Session
    parties: dict[int, Party]
    keys: dict[int, bytes]
    dealt: dict[int, dict[int, bytes]]
    masked: dict[int, Masked]
    answers: dict[int, bytes]


def findings_of_sum() -> list[Finding]:
    """Tests of two sessions over the same vectors, of shares, and of the noise in a sum."""
    vectors = {
        i: np.arange(SIZE, dtype=np.int64).view(np.uint64) + np.uint64(i) for i in range(SITES)
    }
    one, two = (_play(Session(id, tuple(range(SITES)), MISSING), vectors) for id in (b"1", b"2"))
    plain = np.sum(list(vectors.values()), axis=0, dtype=np.uint64)
    opened = total(one.session, one.keys, one.dealt, one.masked, one.answers)
    found = [_certain("sum", "all sites", not np.array_equal(opened, plain), "its sum is another")]
    own, pairs = zip(*(_masks(one, site) for site in range(SITES)), strict=True)
    sent, again = (np.concatenate(list(p.masked.values())) for p in (one, two))
    found += _uniform("vectors with all masks", sent)
    found += _uniform("vectors without their own masks", sent - np.concatenate(own))
    found += _uniform("vectors without their pair masks", sent - np.concatenate(pairs))
    found += _uniform("vectors beside those of another session", sent - again)
    found += findings_between_masked({f"site {i}": m for i, m in one.masked.items()})
    found += [*_of_refusals(one, vectors), *_of_shares(), *_of_discrete_noise()]
    return found


def _play(session: Session, vectors: dict[int, Vector]) -> _Played:
    parties = {i: Party.new(session, i) for i in session.sites}
    keys = {i: p.keys() for i, p in parties.items()}
    dealt = {i: p.shares(keys) for i, p in parties.items()}
    masked = {
        i: p.mask(vectors[i], {j: dealt[j][i] for j in parties if j != i})
        for i, p in parties.items()
    }
    answers = {i: p.unmask(masked) for i, p in parties.items()}
    return _Played(session, parties, keys, dealt, masked, answers)


def _masks(played: _Played, site: int) -> tuple[Masked, Masked]:
    """A site's own mask and the sum of its pair masks, from its secrets."""
    session, size = played.session, SIZE + 1
    pair, _, own = (bytes.fromhex(s) for s in json.loads(played.parties[site].to_bytes())["seeds"])
    key, total = key_pair(pair, session, PAIR_KEY, site), np.zeros(size, np.uint64)
    for peer, content in played.keys.items():
        if peer != site:
            public = Announced.from_bytes(content, peer, session).pair
            total += pair_mask(key, session, site, (peer, public), size)
    return self_mask(own, session, site, size), total


def _uniform(part: str, numbers: Masked) -> Iterator[Finding]:
    for f in findings_of_masked(numbers):
        yield Finding(f.test, f"{part}, {f.part}", f.p, SAYS)


def _certain(test: str, part: str, found: bool, says: str) -> Finding:
    return Finding(test, part, 0.0 if found else 1.0, says)


def _of_refusals(played: _Played, vectors: dict[int, Vector]) -> Iterator[Finding]:
    """Whether a site refuses what would open its vector alone."""
    party, others = played.parties[0], {j: played.dealt[j][0] for j in range(1, SITES)}
    asked: dict[str, Callable[[], object]] = {
        "another list of survivors": lambda: party.unmask(range(SITES - 1)),
        "another vector": lambda: party.mask(vectors[1], others),
        "too few survivors": lambda: _play(played.session, vectors).parties[0].unmask([0, 1]),
    }
    for what, ask in asked.items():
        try:
            ask()
            answered = True
        except BadInput:
            answered = False
        yield _certain("refusals", what, answered, "it answers what opens a single vector")


def _of_shares() -> Iterator[Finding]:
    secret, opens, holders = bytes(range(16)), 3, tuple(range(SITES))
    splits = [split(secret, opens, holders) for _ in range(SPLITS)]
    few = [value_at_0((1, 2), [s[0], s[1]]) for s in splits]
    right = all(value_at_0((1, 2, 4), [s[0], s[1], s[3]]) == secret for s in splits)
    yield _certain("shares", "enough of them", not right, "its shares open another secret")
    yield _certain("shares", "too few", secret in few, "fewer shares open a secret than should")
    content = b"".join(s[holder] for holder in holders for s in splits)
    yield from _uniform("shares of a secret", np.frombuffer(content, np.uint64))
    yield from _uniform("what too few shares say", np.frombuffer(b"".join(few), np.uint64))


def _of_discrete_noise() -> Iterator[Finding]:
    large = discrete_gaussian(LARGE, DRAWS)
    yield from findings_of(as_residual("discrete", torch.from_numpy(large / LARGE)))
    y = discrete_gaussian(SMALL, DRAWS)
    at = np.arange(-4 * SMALL, 4 * SMALL + 1)
    law = np.exp(-((np.arange(-40, 41) / SMALL) ** 2) / 2)
    chances = np.exp(-((at / SMALL) ** 2) / 2) / law.sum()
    counts = np.array([(y == k).sum() for k in at])
    wide = chances * DRAWS >= 8  # chi-squares of fewer are none
    rest = DRAWS - counts[wide].sum(), DRAWS * (1 - chances[wide].sum())
    seen, due = np.append(counts[wide], rest[0]), np.append(DRAWS * chances[wide], rest[1])
    p = float(scipy.stats.chisquare(seen, due).pvalue)
    yield Finding("shape", "discrete Gaussian", p, "its law is another")
