"""What the hub's process has seen since it was started: `hub.log`, and the counts of /metrics."""

from collections.abc import Callable
from pathlib import Path

from dprbft.engines.flower.door.nodes import Nodes
from dprbft.engines.flower.door.sockets import Hall
from dprbft.engines.watch.hub import (
    ABSENT,
    CONNECTED,
    FAMILIES,
    REFUSED,
    SITES,
    SKEW,
    RunEvent,
    count,
)
from dprbft.engines.watch.metrics import Metrics
from panas.runtime.log import Line, append

ONLINE = "online"


class Watching:
    """Hears of runs, and looks at the port when it is asked.

    Args:
        log: where events are written; None: nowhere.
        nodes: of sites.
        hall: counts what the port refuses.
        tell: hears a line that could not be written.
    """

    def __init__(
        self, log: Path | None, nodes: Nodes, hall: Hall, tell: Callable[[str], None]
    ) -> None:
        self._log, self._nodes, self._hall, self._tell = log, nodes, hall, tell
        self._metrics = Metrics(FAMILIES)

    def heard(self, event: RunEvent) -> None:
        """Count what happened in a run, and write it down."""
        count(self._metrics, event)
        for line in event.lines():
            self.write(line)

    def write(self, line: Line) -> None:
        """A line in the log; what cannot be written stops nothing."""
        if self._log is not None:
            try:
                append(self._log, line)
            except OSError as e:
                self._tell(f"{self._log.name} could not be written ({e.strerror or e})")

    def port(self, line: str) -> None:
        """A line about what the port has refused."""
        self._tell(line)
        self.write(Line("port", {"text": line}, "warning"))

    def text(self) -> str:
        """What /metrics answers."""
        metrics, states = self._metrics, self._nodes.states()
        metrics.put(SITES, value=len(states))
        metrics.drop(CONNECTED, SKEW)  # of sites that were removed, too
        for site, state in states.items():
            metrics.put(CONNECTED, site, value=float(state == ONLINE))
            metrics.begin(ABSENT, site)
        for site, seconds in self._nodes.skews().items():
            metrics.put(SKEW, site, value=seconds)
        for why, n in dict(self._hall.closed).items():
            metrics.put(REFUSED, "port", why, value=n)
        return metrics.text()
