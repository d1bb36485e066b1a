"""How much each registered site may send now: what the hub asked of it, and what that allows.

The hub's relay says with every message how many bytes its answer has at most (Flower carries that
as the message's group). A site first announces a reply, by the numbers of its parts, and then sends
these. So a site that was asked nothing, or has announced nothing, may send `SMALL` bodies alone.

Nothing here knows Flower: messages, replies and parts are their names.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

SMALL = 1 << 16
"""Bytes of a request that is no part of a reply, at most."""
ENVELOPE = 1 << 12
"""Bytes around an answer's frame, at most: what Flower adds to it."""
PARTS = 4
"""Parts of a reply, at most: message, records, and the one record with the frame."""
REMEMBERED = 1_000
"""Refused messages that are remembered."""


@dataclass
class Reply:
    """One that was asked for."""

    node: int
    cap: int  # bytes of its frame, at most
    until: float  # on the wall clock
    root: str = ""  # its own name, once it is announced
    parts: frozenset[str] = frozenset()


@dataclass
class Replies:
    """What all nodes were asked; by the name of the message that asks."""

    asked: dict[str, Reply] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # most bytes, by message
    _cut: dict[str, frozenset[str]] = field(default_factory=dict)  # parts, by message

    def ask(self, message: str, node: int, cap: int, until: float) -> None:
        """A node is asked, and may answer until then."""
        now = time.time()
        self.asked = {name: each for name, each in self.asked.items() if each.until > now}
        self.asked[message] = Reply(node, max(cap, 0), until)

    def announce(self, message: str, node: int, root: str, parts: Collection[str]) -> bool:
        """A node says what its reply consists of; whether that may be one."""
        reply = self.asked.get(message)
        if reply is None or reply.node != node:
            return True  # Flower refuses it: it grants nothing here
        if len(parts) > PARTS or reply.root not in ("", root):
            self._refuse(message)
            return False
        reply.root, reply.parts = root, frozenset(parts)
        return True

    def most(self, node: int) -> int:
        """Bytes of one request of a node, at most."""
        caps = [each.cap for _, each in self._open(node)]
        return max(caps) + SMALL + ENVELOPE if caps else SMALL

    def refuse(self, node: int) -> None:
        """A node sends more than it may: none of its replies that are under way counts."""
        for message, _ in list(self._open(node)):
            self._refuse(message)

    def is_cut(self, part: str) -> bool:
        """Whether a part belongs to a reply that was refused, and will never be whole."""
        return any(part in parts for parts in self._cut.values())

    def received(self, root: str) -> None:
        """The hub has a reply: nothing more of it may come."""
        self.asked = {name: each for name, each in self.asked.items() if each.root != root}

    def _open(self, node: int) -> Iterator[tuple[str, Reply]]:
        now = time.time()
        for message, each in self.asked.items():
            if each.node == node and each.root and each.until > now:
                yield message, each

    def _refuse(self, message: str) -> None:
        reply = self.asked.pop(message)
        self.refused[message], self._cut[message] = reply.cap, reply.parts
        for old in list(self.refused)[:-REMEMBERED]:
            del self.refused[old], self._cut[old]
