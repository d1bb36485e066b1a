"""What a node counts, of all its hubs together. The rule: nothing that they have not seen, but for
the owner's budget.

A hub sees what it asked for, the code of each answer, its size and when it came. So these are
counted, and who reads them learns no more than the hubs. Left out is what follows from private rows
and is charged to no ledger: the seconds of a computation, the reason of a refusal, where something
failed. They are in `node.log`, which the site's owner alone can read. The budget follows from the
ledger; it is shown where `metrics_budget` of site.toml says so.
"""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from dprbft.engines.node.daemon import Served
from dprbft.engines.watch.metrics import Family, Metrics
from dprbft.messages import Code, Verb
from dprbft.methods.joined.budget import largest_run
from dprbft.paths import ledger_file
from dprbft.site.directory import SiteSettings, read_site, site_account

ANSWERS = Family(
    "panas_node_answers_total",
    "counter",
    "Answers to hubs, by what they asked for and by code; REFUSED also counts what was no request",
    ("verb", "code"),
)
BYTES = Family(
    "panas_node_bytes_total",
    "counter",
    "Bytes of requests and of answers",
    ("direction",),
    known=(("in",), ("out",)),
)
LAST = Family(
    "panas_node_last_request_timestamp_seconds", "gauge", "When a hub last asked for something"
)
BUDGET = Family("panas_node_budget_epsilon", "gauge", "Epsilon of all runs together")
SPENT = Family("panas_node_budget_spent_epsilon", "gauge", "Epsilon of all charges, composed")
LEFT = Family(
    "panas_node_budget_left_epsilon",
    "gauge",
    "The most that another run may request, of a hub without a part of its own; with what is spent "
    "it composes to the budget",
)
FAMILIES = (ANSWERS, BYTES, LAST, BUDGET, SPENT, LEFT)
OTHER = "other"


@dataclass(frozen=True)
class Budget:
    """What a ledger says, at the owner's delta."""

    whole: float
    spent: float
    left: float


class NodeMetrics:
    """Counts the requests of one site, of whichever hub.

    Args:
        folder: the site's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._metrics = folder, Metrics(FAMILIES)
        self._known: tuple[object, Budget] | None = None  # for a state of ledger and settings

    def count(self, served: Served) -> None:
        """Count a request."""
        verb = served.verb if served.verb in list(Verb) else OTHER
        code = served.code if served.code in Code.__members__ else OTHER
        self._metrics.add(ANSWERS, verb, code)
        self._metrics.add(BYTES, "in", by=served.received)
        self._metrics.add(BYTES, "out", by=served.sent)
        self._metrics.put(LAST, value=math.floor(time.time()))

    def text(self) -> str:
        """All of it, with the budget if site.toml now allows that."""
        site, metrics = read_site(self._folder), self._metrics
        if not site.metrics_budget:
            metrics.drop(BUDGET, SPENT, LEFT)
            return metrics.text()
        budget = self._budget(site)
        metrics.put(BUDGET, value=budget.whole)
        metrics.put(SPENT, value=budget.spent)
        metrics.put(LEFT, value=budget.left)
        return metrics.text()

    def _budget(self, site: SiteSettings) -> Budget:
        """What the ledger says; composed anew only once it has changed."""
        path = ledger_file(self._folder)
        seen = os.stat(path) if path.exists() else None  # noqa: PTH116
        stamp = (site, seen and (seen.st_size, seen.st_mtime_ns))
        if self._known is None or self._known[0] != stamp:
            account, most = site_account(self._folder, site), site.epsilon_per_run
            left = largest_run(account, math.inf if most is None else most)
            self._known = stamp, Budget(site.epsilon, account.spent(), left)
        return self._known[1]
