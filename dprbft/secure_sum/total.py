"""The server's part: from masked vectors and the sites' answers to the sum, and nothing but it.

The sum of the masked vectors holds the self masks of all survivors, and those pair masks whose
other site dropped out. Right shares of enough holders open exactly these; wrong ones are told by
their tags, and left out with the answer that they came in.

Source: Bonawitz et al. 2017, figure 4, round 4.
"""

from collections.abc import Mapping

import numpy as np

from dprbft.secure_sum.answer import Dealt, UnmaskAnswer, read_answer
from dprbft.secure_sum.holders import holders, neighbours
from dprbft.secure_sum.keys import Announced, commitment, key_pair, public_bytes, read_keys
from dprbft.secure_sum.masks import (
    CHECK_NUMBERS,
    Masked,
    Vector,
    fits_check,
    pair_mask,
    self_mask,
)
from dprbft.secure_sum.party import PAIR_KEY
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.shares import combine
from panas.runtime.errors import BadInput

MOST_STEPS = 1 << 50
"""A site's number, noise included, is at most this many steps from 0, and 4096 sites' sum 2^62."""


def check_range(total: Vector, sites: int) -> None:
    """BadInput for a sum that so many sites cannot have come to."""
    steps = np.ascontiguousarray(total).view(np.int64)
    bound = sites * MOST_STEPS
    if not bool(np.all((steps >= -bound) & (steps <= bound))):
        raise BadInput(
            f"expected a sum that {sites} sites can come to, got one out of range: a masked vector "
            "was changed, or is of another session; start a new run"
        )


def total(
    session: Session,
    keys: Mapping[int, bytes],
    dealt: Dealt,
    masked: Mapping[int, Masked],
    answers: Mapping[int, bytes],
) -> Vector:
    """The sum of the sites' vectors, modulo 2^64.

    BadInput if too few sites are there at any step, with fewer than n - t right answers, a secret
    does not fit what its site announced, or the sum is not what unmasked vectors can come to, as
    where a masked vector was changed.

    Args:
        session: of this sum, with n and t.
        keys: announced, by site.
        dealt: by `Party.shares` of each site.
        masked: vectors of one length, by site; these are summed.
        answers: of `Party.unmask(masked)`, by site.
    """
    known = read_keys(session, keys)
    session.check_enough(len(known), "keys")
    summed = _sum(session, known, masked)
    read, missing = _right(session, dealt, masked, answers), sorted(dealt.keys() - masked.keys())
    for site in masked:
        of_self = {a: r.of_self[site] for a, r in read.items() if site in r.of_self}
        seed = _opened(session, known, site, of_self)
        if commitment(seed, session, site) != known[site].commitment:
            raise _unfit(site)
        summed -= self_mask(seed, session, site, len(summed))
    near = neighbours(session, known) if missing else {}
    for site in missing:
        of_pair = {a: r.of_pair[site] for a, r in read.items() if site in r.of_pair}
        seed = _opened(session, known, site, of_pair)
        key = key_pair(seed, session, PAIR_KEY, site)
        if public_bytes(key) != known[site].pair:
            raise _unfit(site)
        # What the peer added is the negative of what the site would have.
        for peer in near[site] & masked.keys():
            summed += pair_mask(key, session, site, (peer, known[peer].pair), len(summed))
    if not fits_check(summed, session):
        raise BadInput(
            "expected a sum that fits its check number, got another: a masked vector was changed, "
            "or is of another session; start a new run"
        )
    result = summed[:-CHECK_NUMBERS]
    check_range(result, len(masked))
    return result


def _opened(
    session: Session, known: Mapping[int, Announced], site: int, shares: Mapping[int, bytes]
) -> bytes:
    session.check_holders(len(shares), f"right shares of site {site}")
    return combine(shares, session.graph.opens, holders(session, site, known[site].draw))


def _sum(session: Session, known: Mapping[int, Announced], masked: Mapping[int, Masked]) -> Masked:
    session.check_enough(len(masked), "masked vectors")
    if not masked.keys() <= known.keys():
        raise BadInput("expected masked vectors of sites that announced keys, got others")
    shapes = {(v.shape, v.dtype.str) for v in masked.values()}
    first = next(iter(masked.values()))
    if len(shapes) > 1 or first.dtype != np.uint64 or first.ndim != 1 or len(first) < 2:
        raise BadInput(f"expected masked vectors of one length, uint64, got {sorted(shapes)}")
    summed = np.zeros_like(first)
    for vector in masked.values():
        summed += vector
    return summed


def _right(
    session: Session, dealt: Dealt, masked: Mapping[int, Masked], answers: Mapping[int, bytes]
) -> dict[int, UnmaskAnswer]:
    """The answers whose shares are right; the first error of the others if they are too few."""
    session.check_enough(len(answers), "answers to the unmasking")
    if not answers.keys() <= masked.keys() <= dealt.keys():
        raise BadInput("expected answers of sites whose masked vectors arrived, got others")
    right, wrong = dict[int, UnmaskAnswer](), dict[int, BadInput]()
    for site in sorted(answers):
        try:
            right[site] = read_answer(session, answers[site], site, dealt, masked)
        except BadInput as e:
            wrong[site] = e
    if len(right) < session.threshold:
        raise wrong[min(wrong)]
    return right


def _unfit(site: int) -> BadInput:
    return BadInput(
        f"expected shares that open what site {site} announced, got others: it dealt other ones; "
        "the secure sum ends here, start a new run"
    )
