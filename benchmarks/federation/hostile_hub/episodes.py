"""The order of an attack: hellos of new runs, walks through the verbs, bytes that are no request.

Everything is drawn from one seed, but the numbers of requests; what the nodes answer changes
nothing.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from benchmarks.hostile_hub.drafts import Draft
from benchmarks.hostile_hub.mutations import (
    change,
    column,
    damaged,
    epsilon,
    form,
    method,
    one_setting,
    seed,
)
from dprbft.engines.frames import Request

SLOW = ("train", "search", "tune")
"""Verbs that take seconds where they are granted."""
MILD = (epsilon, method, seed, one_setting)
"""Changes after which a run is often granted."""


@dataclass(frozen=True)
class Message:
    """One frame, and what it is, for whoever reads of it."""

    frame: bytes
    run: str
    verb: str
    what: str  # the changes, or "honest"

    def __str__(self) -> str:
        return f"{self.verb} of {self.run} ({self.what})"


@dataclass
class Attack:
    """Draws messages from requests of honest runs, by method."""

    recorded: Mapping[str, Sequence[Request]]
    seed: int
    walks: float = 0.02  # share of episodes that go through a whole run, training included
    _rng: random.Random = field(init=False)
    _runs: list[str] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def messages(self, count: int) -> Iterator[Message]:
        """So many of them."""
        kinds: tuple[tuple[float, Callable[[], Iterator[Message]]], ...] = (
            (0.5, self._door),
            (0.28, self._walk),
            (0.1, self._junk),
            (0.1, self._others),
            (self.walks, self._whole),
            (self.walks, self._oracle),
        )
        weights, episodes = zip(*kinds, strict=True)
        sent = 0
        while sent < count:
            for message in self._rng.choices(episodes, weights)[0]():
                if sent < count:
                    sent += 1
                    yield message

    def _of(self, wanted: Sequence[str] = ()) -> tuple[str, list[Draft]]:
        """The requests of a method in a new run."""
        name = self._rng.choice(list(self.recorded))
        self._made += 1
        run = f"run-{self._made}"
        self._runs.append(run)
        drafts = [renamed(Draft.of(r), run) for r in self.recorded[name]]
        return run, [d for d in drafts if not wanted or d.header["verb"] in wanted]

    def _door(self) -> Iterator[Message]:
        """A changed hello; then, at times, what a hub would do if it was granted."""
        run, drafts = self._of()
        hello = drafts[0]
        what = [change(hello, self._rng) for _ in range(self._rng.choice((1, 1, 1, 2, 3)))]
        yield self._message(hello, run, "+".join(what))
        if self._rng.random() < 0.3:
            first = [d for d in drafts if d.header["verb"] in ("ready", "round")]
            for draft in first[:2]:
                yield self._message(draft, run, "honest")
        if self._rng.random() < 0.2:
            leave = replace(hello, header=hello.header | {"verb": "leave"}, files={})
            yield self._message(leave, run, "leave")

    def _walk(self) -> Iterator[Message]:
        """A hello that may be granted, and verbs in any order, changed or not."""
        run, drafts = self._of()
        hello, others = drafts[0], [d for d in drafts[1:] if d.header["verb"] != "hello"]
        what = "honest"
        if self._rng.random() < 0.6:
            mild = self._rng.choice(MILD)
            mild(hello, self._rng)
            what = mild.__name__
        yield self._message(hello, run, what)
        for _ in range(self._rng.randrange(2, 9)):
            draft = deepcopy(self._rng.choice(others))
            if draft.header["verb"] in SLOW and self._rng.random() < 0.9:
                continue
            what = "honest"
            if self._rng.random() < 0.5:
                what = change(draft, self._rng)
            message = self._message(draft, run, what)
            yield message
            if self._rng.random() < 0.2:
                yield message  # again, with the same number

    def _whole(self) -> Iterator[Message]:
        """All requests of a run in their order, one of them changed."""
        run, drafts = self._of()
        if self._rng.random() < 0.5:
            drafts = [d for i, d in enumerate(drafts) if not i or d.header["verb"] != "hello"]
        changed = self._rng.randrange(len(drafts) + 1)
        for i, draft in enumerate(drafts):
            what = change(draft, self._rng) if i == changed else "honest"
            yield self._message(draft, run, what)

    def _oracle(self) -> Iterator[Message]:
        """Facts that single one value out, and then all requests of the run: what fails on it?"""
        run, drafts = self._of()
        named = self._rng.choice((column, column, form))
        named(drafts[0], self._rng)
        drafts = [d for i, d in enumerate(drafts) if not i or d.header["verb"] != "hello"]
        for i, draft in enumerate(drafts):
            yield self._message(draft, run, "honest" if i else named.__name__)

    def _junk(self) -> Iterator[Message]:
        """Bytes that are nearly a request."""
        run, drafts = self._of()
        self._runs.pop()
        frame = self._rng.choice(drafts).to_bytes()
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            frame = damaged(frame, self._rng)
        yield Message(frame, run, "", "bytes")

    def _others(self) -> Iterator[Message]:
        """A request to a run of before, of whatever method."""
        if not self._runs:
            return
        run = self._rng.choice(self._runs)
        requests = self._rng.choice(list(self.recorded.values()))
        draft = renamed(Draft.of(self._rng.choice(requests)), run)
        if draft.header["verb"] in SLOW and self._rng.random() < 0.8:
            return
        what = change(draft, self._rng) if self._rng.random() < 0.6 else "another method's"
        yield self._message(draft, run, what)

    def _message(self, draft: Draft, run: str, what: str) -> Message:
        return Message(draft.to_bytes(), run, str(draft.header["verb"])[:20], what)


def renamed(draft: Draft, run: str) -> Draft:
    """A request to a run of another name."""
    draft.header["run"] = run
    if draft.hello is not None:
        draft.hello["run"] = run
    return draft
