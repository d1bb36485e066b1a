"""A secure sum at the server: of each site it has a masked vector, and it learns their sum alone.

| step | verb | what the server keeps |
|---|---|---|
| who takes part, under which noise | ready, keys | keys |
| their shares, passed on | share | `opened.json`: plan, keys and encrypted shares |
| the masked vectors | round | `masked-NNNN.safetensors`, each as it comes |
| whose sum is opened | - | `survivors.json`, before anybody is asked to open it |
| the sum | unmask | `unmask-NNNN.bin`, and `sum.safetensors` |

Up to t sites may be missing, in all steps together; with more nothing is opened, and the same sum
goes on when they are back. Until `opened.json` is there, nothing of the data has left a site, and a
server that begins again makes a new plan. From `survivors.json` on the list of sites stays: another
would open another sum of the same vectors.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from dprbft.config.schema import RunConfig
from dprbft.engines.protocol import Engine, SiteRefusal
from dprbft.messages import Broadcast, Code, Verb, digest_of
from dprbft.secure_sum.answer import UnmaskAnswer, read_answer, short_of_shares
from dprbft.secure_sum.holders import holders
from dprbft.secure_sum.keys import Announced, read_keys
from dprbft.secure_sum.messages import MaskedRelease, Offer, Parts, SumPlan, Survivors
from dprbft.secure_sum.release import ROUND, from_total, masked_size, noise_of
from dprbft.secure_sum.session import worth_summing
from dprbft.secure_sum.shares import DEALT_BYTES, TAGS_BYTES
from dprbft.secure_sum.total import total
from dprbft.server.calls import expected, send_answers
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.events import (
    Listener,
    RoundBegun,
    RoundEnded,
    SiteAbsent,
    SiteReady,
    SiteTrained,
)
from dprbft.server.records import RoundRecord
from dprbft.server.sum_checkpoint import SUM, Opened, SumFiles
from panas.privacy.release.estimate import Moments
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, write_bytes, write_tensors
from panas.training.linear.ridge import pooled

T = TypeVar("T")
SumAnswer = Callable[[Moments, int], Broadcast]
"""A method's server half: the sum of a round's moments, and the round, to the next broadcast."""
MISSING = (Code.ABSENT, Code.FAILED)
"""What a site answers that is counted as missing; any other refusal stops the sum."""


@dataclass(frozen=True, kw_only=True)
class SumServer:
    """The server of a run whose sites trust it with their sum alone."""

    files: ServerFiles
    config: RunConfig
    sites: frozenset[int]  # that are there
    engine: Engine
    answer: SumAnswer
    first: Broadcast  # the head before the round
    listener: Listener

    @cached_property
    def _kept(self) -> SumFiles:
        return SumFiles(self.files.folder)

    def train(self) -> None:
        """Make the one round, from where it was left.

        SiteRefusal if a site refuses, or none is there; BadInput if too few are: nothing is opened,
        and the sum can go on.
        """
        began = time.perf_counter()
        if self.files.latest() is None:
            self.files.begin(self.first)
        self.files.repair()
        if self.files.latest():
            return
        self.listener(RoundBegun(ROUND))
        if not self.files.answered(ROUND):
            everyone, (result, present) = range(self.config.federation.clients), self._sum()
            absent = [site for site in everyone if site not in present]
            self.files.put_answer(self.answer(result, ROUND), absent)
        self._finish(began)

    def _finish(self, began: float) -> None:
        """Tell the sites the answer, and note the round."""
        absent = self.files.absent(ROUND)
        present = [i for i in range(self.config.federation.clients) if i not in absent]
        content = self.files.broadcast(ROUND).to_bytes()
        send_answers(self.engine, self.listener, dict.fromkeys(present, content), ROUND, MISSING)
        up, down, digests = self._traffic()
        self.files.end(
            RoundRecord(
                round=ROUND,
                seconds=time.perf_counter() - began,
                up_bytes=up,
                down_bytes=down + len(content) * self.config.federation.clients,
                sites=tuple(present),
                absent=tuple(absent),
                releases={},
                masked=digests,
                broadcast=digest_of(content),
            )
        )
        self.listener(RoundEnded(ROUND, 1, tuple(present)))

    def _sum(self) -> tuple[Moments, frozenset[int]]:
        opened, width, classes = self._kept.opened(), self.files.width, self.files.classes
        if opened is None:
            present, plan = self._plan()
            if plan is None:  # joining would not pay: nobody sends anything
                return pooled((), classes, width), present
            opened = self._open(plan, present)
            self._kept.open(opened)
        survivors = self._kept.survivors() or self._receive(opened)
        result = self._unmask(opened, survivors)
        noise = noise_of(opened.plan, width, classes)
        moments = from_total(result, classes, noise, len(survivors))
        tensors = {"A": moments.A, "B": moments.B}
        assert moments.counts is not None
        about = {"sites": str(list(survivors)), "variance": str(moments.variance)}
        write_tensors(self._kept.folder / SUM, tensors | {"counts": moments.counts}, about)
        return moments, frozenset(opened.present) - self._kept.absent()

    def _plan(self) -> tuple[frozenset[int], SumPlan | None]:
        """Who is there, and the plan of those that offer to send; None if nobody does."""
        f, content = self.config.federation, self.files.broadcast(ROUND - 1).to_bytes()
        asked = dict.fromkeys(sorted(self.sites), content)
        offers = self._ask(Verb.READY, asked, lambda site, reply: Offer.from_bytes(reply))
        if not offers:
            raise SiteRefusal(min(self.sites), Code.ABSENT)
        for site in offers:
            self.listener(SiteReady(site))
        needed = {site: o.noise_multiplier for site, o in offers.items() if o.sends}
        if not needed:
            return frozenset(offers), None
        t = f.secure_missing_of(len(needed))
        senders = worth_summing(needed, f.secure_minimum, t)
        if not senders:
            raise BadInput(
                f"expected at least {max(f.secure_minimum, 3 * t + 1)} sites for a secure sum that "
                f"bears {t} missing, got {len(needed)} that send; bring the others back and go on "
                "with --resume, or begin anew with privacy.trust=server: nothing was charged"
            )
        for site in needed.keys() - senders:
            self.listener(SiteTrained(site, ROUND))  # without a release
        most = max(needed[site] for site in senders)
        return frozenset(offers), SumPlan.new(ROUND, senders, t, most)

    def _open(self, plan: SumPlan, present: frozenset[int]) -> Opened:
        """Pass keys and shares on; nothing of the data has left a site when this returns."""
        asked = dict.fromkeys(plan.sites, plan.to_bytes())

        def announced(site: int, reply: bytes) -> bytes:
            Announced.from_bytes(reply, site, session)
            return reply

        session = plan.session
        keys = self._ask(Verb.KEYS, asked, announced)
        self._check_enough(plan, len(keys), "keys")
        known = read_keys(session, keys)

        def shares_of(site: int, reply: bytes) -> Mapping[int, bytes]:
            result = Parts.from_bytes(reply).parts
            held_by = keys.keys() & set(holders(session, site, known[site].draw))
            sizes = {i: TAGS_BYTES if i == site else DEALT_BYTES for i in held_by}
            if {i: len(part) for i, part in result.items()} != sizes:
                raise BadInput("expected shares and their tags for each site, got others")
            return result

        begun = Opened(plan, (), keys, {})
        shares = self._ask(Verb.SHARE, {i: begun.told(i) for i in keys}, shares_of)
        self._check_enough(plan, len(shares), "shares")
        lost = frozenset(plan.sites) - shares.keys()
        return Opened(plan, tuple(sorted(present - lost)), keys, shares)

    def _receive(self, opened: Opened) -> tuple[int, ...]:
        """Keep the masked vectors as they come; returns whose there are, once they are enough."""
        senders, size = sorted(opened.shares), masked_size(self.files.width, self.files.classes)
        waiting = [i for i in senders if not self._kept.masked(i).exists() and i in self.sites]

        def keep(site: int, reply: bytes) -> bytes:
            if reply:  # else a process that died at the site has spent what it costs
                release = MaskedRelease.from_bytes(reply, size)
                if (release.site, release.round) != (site, ROUND):
                    raise BadInput(f"expected a masked vector of site {site}, got another's")
                write_bytes(self._kept.masked(site), reply)
            self.listener(SiteTrained(site, ROUND))
            return reply

        asked = {site: opened.received(site) for site in waiting}
        answered = self._ask(Verb.ROUND, asked, keep)
        survivors = [i for i in senders if self._kept.masked(i).exists()]
        self._check_enough(opened.plan, len(survivors), "masked vectors")
        absent = set(senders).difference(survivors, answered)
        self._kept.close(survivors, absent)
        return tuple(survivors)

    def _unmask(self, opened: Opened, survivors: tuple[int, ...]) -> np.ndarray:
        session, dealt = opened.plan.session, opened.shares
        result = self._kept.answers(opened, survivors)
        waiting = [i for i in survivors if i in self.sites and i not in result]
        if not short_of_shares(session, result, dealt):
            waiting = []
        content = self._agreed(opened, survivors) if waiting else b""

        def keep(site: int, reply: bytes) -> UnmaskAnswer:
            answer = read_answer(session, reply, site, dealt, survivors)
            write_bytes(self._kept.answer(site), reply)
            return answer

        result |= self._ask(Verb.UNMASK, dict.fromkeys(waiting, content), keep)
        self._check_enough(opened.plan, len(result), "answers to the unmasking")
        size = masked_size(self.files.width, self.files.classes)
        masked = {
            i: MaskedRelease.from_bytes(read_bytes(self._kept.masked(i)), size).numbers
            for i in survivors
        }
        answers = {i: answer.to_bytes() for i, answer in result.items()}
        return total(session, opened.keys, dealt, masked, answers)

    def _agreed(self, opened: Opened, survivors: tuple[int, ...]) -> bytes:
        """The list of survivors, signed by those who are there, where sites sign."""
        content = Survivors(survivors).to_bytes()
        known = read_keys(opened.plan.session, opened.keys)
        if not any(known[i].signature for i in survivors):
            return content
        asked = dict.fromkeys((i for i in survivors if i in self.sites), content)
        agreed = self._ask(Verb.UNMASK, asked, lambda site, reply: reply)
        self._check_enough(opened.plan, len(agreed), "signatures of one list of survivors")
        return Survivors(survivors, agreed).to_bytes()

    def _ask(
        self, verb: Verb, messages: Mapping[int, bytes], take: Callable[[int, bytes], T]
    ) -> dict[int, T]:
        """What was taken of the sites' replies; a site that is missing, or sends what is no reply,
        is left out. SiteRefusal, once all have answered, for the first that refuses."""
        result, refused = dict[int, T](), dict[int, SiteRefusal]()
        for site, reply in self.engine.call(verb, messages):
            if reply.code in MISSING:
                self.listener(SiteAbsent(site, ROUND))
                continue
            if reply.code is not Code.DONE:
                refused[site] = SiteRefusal(site, reply.code)
                continue
            try:
                result[site] = take(site, reply.release)
            except BadInput as e:
                self.listener(SiteAbsent(site, ROUND, expected(e)))
        for site in sorted(refused):
            raise refused[site]
        return result

    def _check_enough(self, plan: SumPlan, count: int, what: str) -> None:
        least = plan.session.threshold
        if count < least:
            raise BadInput(
                f"expected {what} of at least {least} of {len(plan.sites)} sites for the secure "
                f"sum, got {count}; bring the others back (panas deploy check says why a site "
                "refuses) and go on with --resume: nothing was opened, charges stay"
            )

    def _traffic(self) -> tuple[int, int, dict[int, str]]:
        """Bytes up and down, without the answer, and the digests of the masked vectors."""
        opened = self._kept.opened()
        if opened is None:
            return 0, 0, {}
        survivors = self._kept.survivors() or ()
        masked = {i: read_bytes(self._kept.masked(i)) for i in survivors}
        answers = [p.stat().st_size for i in survivors if (p := self._kept.answer(i)).exists()]
        up = sum(map(len, opened.keys.values())) + sum(map(len, masked.values())) + sum(answers)
        up += sum(len(Parts(of).to_bytes()) for of in opened.shares.values())
        down = len(opened.plan.to_bytes()) * len(opened.plan.sites)
        down += sum(len(opened.told(i)) for i in opened.keys)
        down += sum(len(opened.received(i)) for i in opened.shares)
        down += len(Survivors(survivors).to_bytes()) * len(survivors)
        return up, down, {i: digest_of(m) for i, m in masked.items()}
