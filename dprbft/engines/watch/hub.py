"""What a hub counts, and the events of its runs: who leads one tells the hub's process of each.

The hub's process outlives a run, so that its counts only grow until it is started again. It writes
each event to `hub.log` besides. All of it the hub has seen: codes, sizes and times of answers; no
content of one. Nothing here imports torch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dprbft.engines.watch.metrics import Family, Metrics
from panas.runtime.errors import BadInput
from panas.runtime.log import Line

SITES = Family("panas_hub_sites", "gauge", "Sites that are registered")
CONNECTED = Family(
    "panas_hub_site_connected", "gauge", "1 if the site is connected, else 0", ("site",)
)
SKEW = Family(
    "panas_hub_clock_skew_seconds",
    "gauge",
    "By how much the site's clock is behind the hub's, with the way of its last request",
    ("site",),
)
BEGUN = Family("panas_hub_rounds_begun_total", "counter", "Rounds that have begun")
ENDED = Family("panas_hub_rounds_ended_total", "counter", "Rounds that have ended")
SECONDS = Family("panas_hub_round_seconds_total", "counter", "Seconds of rounds that have ended")
ABSENT = Family(
    "panas_hub_absent_total", "counter", "Requests that a site has not answered", ("site",)
)
ANSWERS = Family(
    "panas_hub_answers_total",
    "counter",
    "Answers of sites, by what they were asked for and by code",
    ("site", "verb", "code"),
)
BYTES = Family(
    "panas_hub_bytes_total",
    "counter",
    "Bytes of requests to sites (out) and of their answers (in)",
    ("direction", "verb"),
)
REFUSED = Family(
    "panas_hub_refused_total",
    "counter",
    "What was refused: by a site (code of its answer), the hub (answers), or its port",
    ("by", "kind"),
    known=(("hub", "late"), ("hub", "malformed"), ("site", "refused"), ("site", "failed")),
)
FAMILIES = (SITES, CONNECTED, SKEW, BEGUN, ENDED, SECONDS, ABSENT, ANSWERS, BYTES, REFUSED)

Kind = Literal["call", "refused", "round_begun", "round_ended"]
DONE, MISSING = "DONE", "ABSENT"


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """What happened in a run, as its hub sees it."""

    kind: Kind
    run: str
    verb: str = ""
    down: int = 0  # bytes of all requests
    up: int = 0  # bytes of all answers
    codes: Mapping[str, str] = field(default_factory=dict)  # of answers, by site
    site: str = ""  # whose answer was refused
    late: bool = False  # whether because it came late, or twice
    reason: str = ""  # what the answer should have been
    round: int = 0
    seconds: float = 0.0

    def to_bytes(self) -> bytes:
        """As JSON; what is as by default is left out."""
        facts = vars(self) | {"codes": dict(self.codes)}
        return json.dumps({name: value for name, value in facts.items() if value}).encode()

    @staticmethod
    def from_bytes(content: bytes) -> "RunEvent":
        """Read back `to_bytes`; BadInput for anything else."""
        try:
            return RunEvent(**json.loads(content))
        except (ValueError, TypeError) as e:
            raise BadInput("expected an event of a run, got other bytes; send it anew") from e

    def lines(self) -> list[Line]:
        """The event as lines of a log: of a call one, and one for each site that did not do it."""
        about: dict[str, Any] = {"run": self.run}
        if self.kind == "round_begun":
            return [Line("round begun", about | {"round": self.round})]
        if self.kind == "round_ended":
            facts = {"round": self.round, "seconds": round(self.seconds, 3)}
            return [Line("round ended", about | facts)]
        about |= {"verb": self.verb}
        if self.kind == "refused":
            return [Line("answer refused", {"site": self.site, **about, "reason": self.reason}, W)]
        done = sum(code == DONE for code in self.codes.values())
        facts = {"asked": len(self.codes), "done": done}
        facts |= {"bytes_out": self.down, "bytes_in": self.up}
        return [
            Line("call", about | facts),
            *(
                Line("site absent" if code == MISSING else "site refused", about | named, W)
                for site, code in self.codes.items()
                if code != DONE and (named := {"site": site, "code": code})
            ),
        ]


W: Literal["warning"] = "warning"


def count(metrics: Metrics, event: RunEvent) -> None:
    """Add an event to what was counted."""
    if event.kind == "round_begun":
        metrics.add(BEGUN)
    elif event.kind == "round_ended":
        metrics.add(ENDED)
        metrics.add(SECONDS, by=event.seconds)
    elif event.kind == "refused":
        metrics.add(REFUSED, "hub", "late" if event.late else "malformed")
    else:
        metrics.add(BYTES, "out", event.verb, by=event.down)
        metrics.add(BYTES, "in", event.verb, by=event.up)
        for site, code in event.codes.items():
            metrics.add(ANSWERS, site, event.verb, code)
            if code == MISSING:
                metrics.add(ABSENT, site)
            elif code != DONE:
                metrics.add(REFUSED, "site", code.lower())
