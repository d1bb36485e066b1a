"""An engine that keeps every byte that crosses, in both directions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dprbft.engines.protocol import Engine
from dprbft.messages import Reply, Verb


@dataclass
class RecordedWire:
    """Passes messages on to another engine, and notes them."""

    engine: Engine
    down: list[tuple[Verb, int, bytes]] = field(default_factory=list)
    up: list[tuple[Verb, int, Reply]] = field(default_factory=list)

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """As `Engine.call`."""
        self.down += [(verb, site, content) for site, content in messages.items()]
        for site, reply in self.engine.call(verb, messages):
            self.up.append((verb, site, reply))
            yield site, reply
