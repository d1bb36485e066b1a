"""What a hub's carrier has brought to its sites and back, in bytes: `traffic.json`, by verb."""

from dataclasses import dataclass, field
from pathlib import Path

from dprbft.messages import Verb
from dprbft.paths import traffic_file
from panas.runtime.store import read_json, write_json

GREETINGS = (Verb.HELLO, Verb.LEAVE)
"""Verbs after which nothing may be left of a run that its sites have refused."""


@dataclass
class Traffic:
    """Adds up the frames of one run, with all that is around a message, over all its processes."""

    server: Path  # the server's folder
    _waiting: dict[Verb, tuple[int, int]] = field(default_factory=dict)

    def note(self, verb: Verb, down: int, up: int) -> None:
        """Count a call; greetings are written with what comes after them."""
        before = self._waiting.get(verb, (0, 0))
        self._waiting[verb] = before[0] + down, before[1] + up
        if verb in GREETINGS:
            return
        result = carried(self.server)
        for each, (more_down, more_up) in self._waiting.items():
            down, up = result.get(each.value, (0, 0))
            result[each.value] = down + more_down, up + more_up
        record = {v: {"down_bytes": d, "up_bytes": u} for v, (d, u) in result.items()}
        write_json(traffic_file(self.server), {"carried": record})
        self._waiting.clear()


def carried(server: Path) -> dict[str, tuple[int, int]]:
    """Bytes down and up by verb, as far as noted."""
    path = traffic_file(server)
    record = read_json(path)["carried"] if path.exists() else {}
    return {verb: (int(r["down_bytes"]), int(r["up_bytes"])) for verb, r in record.items()}
