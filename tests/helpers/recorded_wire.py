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

    def releases(self) -> dict[tuple[int, int], list[bytes]]:
        """What crossed in answer to `round`, by (site, call of that site)."""
        contents: dict[int, list[bytes]] = {}
        for verb, site, reply in self.up:
            if verb is Verb.ROUND:
                contents.setdefault(site, []).append(reply.release)
        return {
            (site, k): [content] for site, all in contents.items() for k, content in enumerate(all)
        }
