"""What a site answers when the sum is to be unmasked: its shares of the secrets that open it."""

from collections.abc import Mapping
from dataclasses import dataclass

from dprbft.secure_sum.keys import SEED_BYTES
from panas.runtime.errors import BadInput

RECORD_BYTES = 1 + 4 + SEED_BYTES
SELF, PAIR = 0, 1


@dataclass(frozen=True)
class UnmaskAnswer:
    """Shares by the site whose secret they are of: the self seed of each survivor, and the seed of
    the pair masks of each site that dropped out. No site is in both."""

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
        found = UnmaskAnswer(*shares)
        if found.to_bytes() != content or shares[SELF].keys() & shares[PAIR].keys():
            raise BadInput(
                f"expected shares from site {site} in their one form, got {len(content)} bytes of "
                "another; ask the site again"
            )
        return found
