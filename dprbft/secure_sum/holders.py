"""Who holds the shares of whose secrets, and who masks for whom, by what sites announced."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from dprbft.secure_sum.keys import Announced, derived
from dprbft.secure_sum.masks import key_stream
from dprbft.secure_sum.session import Session


@lru_cache(maxsize=1 << 13)
def holders(session: Session, site: int, draw: bytes) -> tuple[int, ...]:
    """The sites that hold shares of a site's secrets, ascending, itself among them.

    They are k others, by the order of a key stream of its draw, or all where nothing is drawn.

    Args:
        session: of this sum.
        site: whose secrets they are.
        draw: what the site announced as its draw; empty where everybody holds.
    """
    if not session.graph.sparse:
        return session.sites
    others = [i for i in session.sites if i != site]
    stream = key_stream(derived(draw, session, "holders", site), len(others))
    chosen = np.argsort(stream, kind="stable")[: session.graph.degree]
    return tuple(sorted([site, *(others[i] for i in chosen)]))


def neighbours(session: Session, keys: Mapping[int, Announced]) -> dict[int, set[int]]:
    """The sites that each site masks for: those that it has drawn, and those that have drawn it.

    Args:
        session: of this sum.
        keys: announced, by site; of others nothing is known.
    """
    result: dict[int, set[int]] = {site: set() for site in keys}
    for site, announced in keys.items():
        for holder in holders(session, site, announced.draw):
            if holder in keys and holder != site:
                result[site].add(holder)
                result[holder].add(site)
    return result
