"""Ask two nodes the same, and check what they answer, what they note, and what they charge."""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.hostile_hub.episodes import Attack, Message
from benchmarks.hostile_hub.nodes import AnyNode, Heard, NodeHere, NodeProcess, Owned, running
from benchmarks.hostile_hub.sites import (
    KINDS,
    METHODS,
    NAME,
    PER_RUN,
    Kind,
    Pair,
    honest,
    make_pair,
    make_site,
    state_of,
)
from dprbft.paths import ledger_file
from panas.privacy.ledger.ledger import Ledger

KNOWN = ("DONE", "ABSENT", "REFUSED", "NO_BUDGET", "closed")
"""What may come of a message."""
SECONDS = 60.0
"""In which every message is answered."""
QUICK = 2.0
"""Seconds of processor time of a message that is refused, at most."""
GROWTH, PEAK = 128 << 20, 768 << 20
"""Bytes that a node may grow by after its first messages, and hold more than then at any time."""
SHOWN = 40


@dataclass(frozen=True)
class Failure:
    """Something that must not be, and the message after which it was."""

    kind: str
    number: int
    message: str
    first: str = ""  # of the site without the row
    second: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


@dataclass
class Outcome:
    """What came of an attack on one pair of sites."""

    kind: Kind
    messages: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    granted: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    longest: float = 0.0  # seconds of an answer
    before: int = 0  # bytes of memory after the first messages
    after: int = 0
    peak: int = 0
    charges: int = 0
    spent: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; of many failures the first ones, and how many there are of each kind."""
        counts = Counter(f.kind for f in self.failures)
        return {
            "kind": self.kind,
            "messages": self.messages,
            "codes": dict(sorted(self.codes.items())),
            "granted_runs": len(self.granted),
            "charges": self.charges,
            "spent": round(self.spent, 4),
            "seconds": round(self.seconds, 1),
            "longest_answer": round(self.longest, 2),
            "memory_mb": [round(x / 2**20) for x in (self.before, self.after, self.peak)],
            "failures": dict(sorted(counts.items())),
            "first": [f.to_json() for f in _first(self.failures)],
        }


def _first(failures: list[Failure]) -> list[Failure]:
    """The first of each kind and change, at most `SHOWN`."""
    kept: dict[tuple[str, str, str], Failure] = {}
    for f in failures:
        what = f.message.partition("(")[2]
        kept.setdefault((f.kind, what, f.first[:60] + f.second[:60]), f)
    return list(kept.values())[:SHOWN]


@dataclass
class Watch:
    """Two nodes, and what their ledgers held after the last message."""

    nodes: tuple[AnyNode, AnyNode]
    outcome: Outcome
    seconds: float
    _books: list[bytes] = field(default_factory=lambda: [b"", b""])
    _apart: set[str] = field(default_factory=set)  # runs in which a node was killed

    def ask(self, number: int, message: Message, pool: ThreadPoolExecutor) -> None:
        """Ask both nodes, and check all that can be checked at once."""
        heard = list(pool.map(lambda node: node.heard(message.frame, self.seconds), self.nodes))
        a, b = heard
        self.outcome.messages += 1
        self.outcome.codes[a.code] += 1
        self.outcome.longest = max(self.outcome.longest, *(h.seconds for h in heard))
        if a.code == "DONE" and message.verb == "hello":
            self.outcome.granted.add(message.run)
        for kind in self._wrong(a, b, message):
            self._fail(kind, number, message, heard)
        self._check_books(number, message, heard)
        if any(h.code == "late" for h in heard) or not all(n.alive() for n in self.nodes):
            self._again(message)

    def _wrong(self, a: Heard, b: Heard, message: Message) -> Iterator[str]:
        """The kinds of what is wrong with two answers."""
        if message.run not in self._apart:
            if a.code != b.code:
                yield "code"
            elif a.size != b.size:
                yield "size"
        for h in (a, b):
            if h.code not in KNOWN:
                yield "late" if h.code == "late" else "unknown code"
                return
            if h.trace:
                yield "trace"
                return
        if a.code != "DONE" and max(a.cpu, b.cpu) > QUICK:
            yield "slow refusal"
        if not all(node.alive() for node in self.nodes):
            yield "dead"

    def _check_books(self, number: int, message: Message, heard: list[Heard]) -> None:
        for i, node in enumerate(self.nodes):
            if node.owned.ledger_size == len(self._books[i]):
                continue
            now = node.owned.ledger
            if not now.startswith(self._books[i]):
                self._fail("ledger rewritten", number, message, heard)
            elif heard[i].code not in ("DONE", "late"):
                added = now[len(self._books[i]) :]
                if b'"charge"' in added or b"mechanism" in added:
                    self._fail("charged and not answered", number, message, heard)
            self._books[i] = now

    def _again(self, message: Message) -> None:
        """Go on with new processes; in this run the two may differ from now on."""
        self._apart.add(message.run)
        for node in self.nodes:
            node.kill()
            node.start()
        for node in self.nodes:
            node.wait()

    def _fail(self, kind: str, number: int, message: Message, heard: list[Heard]) -> None:
        self.outcome.failures.append(Failure(kind, number, str(message), *map(str, heard)))


def nodes_of(folder: Path, pair: Pair, *, processes: bool) -> tuple[AnyNode, AnyNode]:
    """Nodes of both sites, in processes of their own or in this one."""
    first, second = map(Owned, pair.sites)
    if not processes:
        return NodeHere(first), NodeHere(second)
    made = [NodeProcess(owned, folder / f"{i}.sock") for i, owned in enumerate((first, second))]
    return made[0], made[1]


def attacked(
    folder: Path,
    kind: Kind,
    messages: int,
    seed: int,
    seconds: float = SECONDS,
    *,
    processes: bool = True,
    methods: Sequence[str] = METHODS,
) -> Outcome:
    """An attack on a pair of sites, which then serve an honest hub of the first method."""
    os.environ["PANAS_STATE"] = str(folder / "state-hub")  # nobody's own
    pair, outcome = make_pair(folder, kind), Outcome(kind)
    make_site(folder / "c" / NAME, kind, 60, more=False)
    recorded = {
        name: honest(folder / "hub" / name, pair, folder / "c" / NAME, name) for name in methods
    }
    nodes = nodes_of(folder, pair, processes=processes)
    watch, begun = Watch(nodes, outcome, seconds), time.monotonic()
    warm = max(20, messages // 10)
    with running(nodes), ThreadPoolExecutor(2 if processes else 1) as pool:
        for number, message in enumerate(Attack(recorded, seed).messages(messages)):
            watch.ask(number, message, pool)
            if number == warm:
                outcome.before = max(node.memory() for node in nodes)
        outcome.after = max(node.memory() for node in nodes)
        outcome.peak = max(node.peak for node in nodes)
    outcome.seconds = time.monotonic() - begun
    _check_memory(outcome)
    for site in pair.sites:
        _check_ledger(site, outcome)
        _check_honest(folder, pair, site, outcome, methods[0])
    return outcome


def _check_memory(outcome: Outcome) -> None:
    grown, most = outcome.after - outcome.before, outcome.peak - outcome.before
    if outcome.before and (grown > GROWTH or most > PEAK):
        text = f"grew by {grown >> 20} MiB, held {most >> 20} MiB more at the peak"
        outcome.failures.append(Failure("memory", outcome.messages, text))


def _check_ledger(site: Path, outcome: Outcome) -> None:
    """What the ledger holds was granted, within the budgets of the run and of the data."""
    ledger = Ledger(ledger_file(site))
    if not ledger.is_open:
        return
    account = ledger.account()
    outcome.charges, outcome.spent = len(account.entries), account.spent()
    if account.spent() > account.budget.epsilon * (1 + 1e-9):
        outcome.failures.append(Failure("budget of the data", outcome.messages, str(site)))
    for run in {e.charge.run for e in account.entries}:
        if run not in outcome.granted:
            outcome.failures.append(Failure("charged by no granted run", 0, run))
        # Within what it asked for at its own delta, and what the owner allows at the owner's.
        asked, owned = account.of_run(run), account.as_owned(run)
        if asked.spent() > asked.budget.epsilon or owned.spent() > PER_RUN * (1 + 1e-6):
            what = f"{run}: {asked.spent():.4f}, {owned.spent():.4f} at the owner's delta"
            outcome.failures.append(Failure("budget of a run", 0, what))


def _check_honest(folder: Path, pair: Pair, site: Path, outcome: Outcome, method: str) -> None:
    """An honest hub is served as before."""
    os.environ["PANAS_STATE"] = str(state_of(site))
    try:
        honest(folder / "hub" / f"after-{site.parent.name}", pair, site, method)
    except Exception as e:
        what = f"{site.parent.name}: {type(e).__name__}: {e}"[:400]
        outcome.failures.append(Failure("honest hub", outcome.messages, what))


def attack(messages: int, seed: int = 0, seconds: float = SECONDS) -> list[Outcome]:
    """Attacks on a pair of each kind, with the messages shared out among them."""
    results = []
    for i, kind in enumerate(KINDS):
        folder = Path(tempfile.mkdtemp(prefix="hostile-"))
        try:
            share = messages // len(KINDS) + (i < messages % len(KINDS))
            results.append(attacked(folder, kind, share, seed + i, seconds))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return results
