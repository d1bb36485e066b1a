"""What a site answers when the sum is to be unmasked: its shares of the secrets that open it."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dprbft.secure_sum.keys import SEED_BYTES
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.shares import share_tag, tag_of
from panas.runtime.errors import BadInput

RECORD_BYTES = 1 + 4 + SEED_BYTES
SELF, PAIR = 0, 1


@dataclass(frozen=True)
class UnmaskAnswer:
    """Shares by the site whose secret they are of: the self seed of each survivor, and the seed of
    the pair masks of each site that dropped out. No site is in both; one whose share was wrong when
    it arrived is in neither."""

    of_self: Mapping[int, bytes]
    of_pair: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        """21 bytes a site, ascending within each kind."""
        return b"".join(
            bytes([kind]) + site.to_bytes(4, "big") + shares[site]
            for kind, shares in ((SELF, self.of_self), (PAIR, self.of_pair))
            for site in sorted(shares)
        )

    @staticmethod
    def from_bytes(content: bytes, site: int) -> "UnmaskAnswer":
        """What `to_bytes` made at `site`; BadInput if it is not in its one form."""
        shares: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        for start in range(0, len(content), RECORD_BYTES):
            record = content[start : start + RECORD_BYTES]
            shares[record[0] & 1][int.from_bytes(record[1:5], "big")] = record[5:]
        answer = UnmaskAnswer(*shares)
        if answer.to_bytes() != content or shares[SELF].keys() & shares[PAIR].keys():
            raise BadInput(
                f"expected shares from site {site} in their one form, got {len(content)} bytes of "
                "another; ask the site again"
            )
        return answer


Dealt = Mapping[int, Mapping[int, bytes]]
"""What sites have dealt, by who dealt it and to whom; each site's own is its tags alone."""


def read_answer(
    session: Session, content: bytes, site: int, dealt: Dealt, survivors: Collection[int]
) -> UnmaskAnswer:
    """A site's answer, of right shares alone; BadInput if one is not what was dealt to the site.

    Args:
        session: of this sum.
        content: untrusted bytes of the site's message.
        site: whose answer it is.
        dealt: what was dealt to the site.
        survivors: sites whose masked vectors came.
    """
    answer = UnmaskAnswer.from_bytes(content, site)
    lost = dealt.keys() - set(survivors)
    if not (answer.of_self.keys() <= set(survivors) and answer.of_pair.keys() <= lost):
        raise BadInput(
            f"expected site {site} to answer for the sites of the sum and those that dropped out, "
            "got others; ask the site again"
        )
    for kind, shares in ((SELF, answer.of_self), (PAIR, answer.of_pair)):
        for owner, share in shares.items():
            right = tag_of(dealt[owner][site], kind) if site in dealt[owner] else b""
            if share_tag(share, session, (owner, site), kind) != right:
                raise BadInput(
                    f"expected from site {site} the share that site {owner} has dealt to it, got "
                    "another; ask the site again"
                )
    return answer


def short_of_shares(
    session: Session, answers: Mapping[int, UnmaskAnswer], dealt: Dealt
) -> list[int]:
    """The sites whose secret these answers do not open.

    Args:
        session: of this sum.
        answers: by site, checked.
        dealt: what sites have dealt; the secrets of all of these must be opened.
    """
    opened = Counter(site for a in answers.values() for site in (*a.of_self, *a.of_pair))
    return [site for site in sorted(dealt) if opened[site] < session.graph.opens]
