"""An engine of frames: what a hub asks crosses as a `Request`, and an `Answer` is checked first.

Whatever brings frames to sites is a `Carrier`: Unix sockets of this machine here, Flower elsewhere.
It may hand back anything, in any order, late or twice. Of each request one answer counts: it has
the run, site, verb and number of the request, a size that the verb allows, and the signature of the
site where keys are known. All others are refused and told of, without their content, and the engine
goes on waiting; a site that has not answered when the carrier ends is absent.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from dprbft.engines.frames import (
    DIGEST,
    MAX_FRAME,
    MAX_HEADER,
    MAX_SIGNATURE,
    Answer,
    Request,
    answer_cap,
    is_name,
    new_nonce,
    sha256,
)
from dprbft.engines.node.call import ask
from dprbft.messages import Code, Hello, Reply, Verb
from dprbft.secure_sum.identity import verify
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes

AROUND = MAX_HEADER + MAX_SIGNATURE + 4
"""Bytes of an answer around its message, at most."""
REMEMBERED = 10_000
"""Requests that an answer may come too late, or twice, to be told of as such."""
PUBLIC = ("public", "unlabelled")
"""Fields of a hello that name public files. A map does not cross: each site makes it by rule, and
its field holds the digest that must come out."""


class Carrier(Protocol):
    """What brings frames to sites, wherever they are, and back."""

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        """Bring each named site its frame; yields (name, answer) as they come.

        It raises nothing for a site that does not answer.

        Args:
            frames: what each site is sent, by its name.
            seconds: after which it ends at the latest; None: when all have answered, or cannot.
            cap: bytes of the largest answer; a larger one is kept out before it has come, where
                that can be, and is yielded as one of no bytes.
        """
        ...


@dataclass(frozen=True)
class UnixCarrier:
    """Straight to the nodes of this machine, by their sockets; `cap` bytes of an answer at most."""

    sockets: Mapping[str, Path]
    cap: int = MAX_FRAME

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        """As `Carrier.carry`; all sites at once.

        Args:
            frames: what each site is sent, by its name.
            seconds: to wait for each answer; None: as long as the node works.
            cap: bytes of the largest answer; of a larger one nothing is read.
        """
        answers = queue.SimpleQueue[tuple[str, bytes | None]]()

        def wait(name: str, frame: bytes) -> None:
            try:
                answers.put((name, ask(self.sockets[name], frame, seconds, cap=min(self.cap, cap))))
            except OSError:  # nobody is there, or took too long
                answers.put((name, None))
            except BadInput:  # too large to be an answer
                answers.put((name, b""))

        for name, frame in frames.items():
            threading.Thread(target=wait, args=(name, frame), daemon=True).start()
        for _ in frames:
            name, answer = answers.get()
            if answer is not None:
                yield name, answer


class Late(BadInput):
    """An answer that came after its deadline, or once more; it says nothing of a later request."""

    def __init__(self, verb: Verb) -> None:
        super().__init__("expected one answer in time to each request, got one late or twice")
        self.verb = verb  # of the request that it answers


@dataclass(frozen=True)
class Carried:
    """What a call has carried: bytes of all frames down and up, and each site's code."""

    verb: Verb
    down_bytes: int
    up_bytes: int
    codes: Mapping[str, Code]


@dataclass(frozen=True, kw_only=True)
class Framed:
    """An `Engine` over a carrier. BadInput if a name of the run or a site cannot cross.

    `seconds` is the time that sites have for an answer; None: as long as they work. `keys` are
    their public keys (PEM), None where the engine has none; a site without one, as of a federation
    that it has left, is absent. `caps` are bytes of the message of an answer, for verbs of which
    less is known than the run knows.
    """

    carrier: Carrier
    run: str
    names: Sequence[str]  # of the sites, by their numbers
    seconds: float | None = None
    keys: Mapping[str, bytes] | None = None
    caps: Mapping[Verb, int] = field(default_factory=dict)
    refused: Callable[[str, Verb, BadInput], None] = lambda site, verb, why: None
    carried: Callable[[Carried], None] = lambda call: None  # hears what a call has carried
    _past: dict[str, Verb] = field(default_factory=dict)  # what a nonce was of, the oldest first
    # digests of the public files that a site has joined with
    _has: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (self.run, *self.names):
            if not is_name(name):
                raise BadInput(
                    "expected names of a run and its sites of at most 64 letters, digits, dots, "
                    f"hyphens and underscores, got {name!r:.80}; rename it, or the directory"
                )

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """As `Engine.call`. A site that refuses a hello without files is asked once more, with
        them: why it did so it does not tell, and it may have lost them."""
        again = dict[int, bytes]()
        for request, reply in self._ask(verb, messages):
            if reply.code is Code.REFUSED and _is_brief(request):
                self._has.pop(request.site)
                again[request.number] = messages[request.number]
                continue
            if verb is Verb.HELLO and reply.code is Code.DONE and not _is_brief(request):
                self._has[request.site] = {n: sha256(c) for n, c in request.files.items()}
            yield request.number, reply
        if again:
            yield from self.call(verb, again)

    def _ask(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[Request, Reply]]:
        """Bring each site its request; yields it with the reply."""
        waiting = {self.names[i]: self._request(i, verb, c) for i, c in messages.items()}
        frames = {
            name: request.to_bytes()
            for name, request in waiting.items()
            if self.keys is None or name in self.keys
        }
        up, cap = 0, min(self._cap(verb) + AROUND, MAX_FRAME)
        codes = dict.fromkeys(frames, Code.ABSENT)
        try:
            for name, content in self.carrier.carry(frames, self.seconds, cap) if frames else ():
                up += len(content)
                try:
                    asked = waiting.get(name) if name in frames else None
                    answer = self._checked(asked, verb, content)
                except BadInput as e:
                    of = e.verb if isinstance(e, Late) else verb
                    self.refused(name if name in self.names else "", of, e)
                    continue
                self._pass(answer.nonce, verb)
                codes[name] = Code(answer.code)
                yield waiting.pop(name), Reply(codes[name], answer.content)
                if not frames.keys() & waiting.keys():
                    break
        finally:
            for request in waiting.values():
                self._pass(request.nonce, verb)
            self.carried(Carried(verb, sum(map(len, frames.values())), up, codes))
        for request in waiting.values():
            yield request, Reply(Code.ABSENT)

    def _cap(self, verb: Verb) -> int:
        """Bytes of the message of an answer, at most."""
        return min(self.caps.get(verb, MAX_FRAME), answer_cap(verb))

    def _pass(self, nonce: str, verb: Verb) -> None:
        """Take no other answer to this request."""
        self._past[nonce] = verb
        if len(self._past) > REMEMBERED:
            self._past.pop(next(iter(self._past)))

    def _request(self, number: int, verb: Verb, content: bytes) -> Request:
        """What a site is asked; the public files of a hello go along, those of a leave do not."""
        files = dict[str, bytes]()
        if verb in (Verb.HELLO, Verb.LEAVE):
            hello = Hello.from_bytes(content)
            paths = {name: path for name in PUBLIC if (path := getattr(hello, name))}
            public, unlabelled = (name if name in paths else "" for name in PUBLIC)
            digest = sha256(read_bytes(Path(hello.map))) if hello.map else ""
            hello = replace(hello, public=public, unlabelled=unlabelled, map=digest)
            content = hello.to_bytes()
            if verb is Verb.HELLO:
                files = self._files(self.names[number], paths)
        return Request(
            run=self.run,
            site=self.names[number],
            number=number,
            verb=verb,
            nonce=new_nonce(),
            content=content,
            files=files,
        )

    def _files(self, site: str, paths: Mapping[str, str]) -> dict[str, bytes]:
        """The public files of a hello, or their digests where the site has them by now."""
        files = {name: read_bytes(Path(path)) for name, path in paths.items()}
        digests = {name: sha256(content) for name, content in files.items()}
        if not files or self._has.get(site) != digests:
            return files
        return {name + DIGEST: digest.encode() for name, digest in digests.items()}

    def _checked(self, request: Request | None, verb: Verb, content: bytes) -> Answer:
        """The answer to a request; BadInput if these bytes are none."""
        if not content:
            raise BadInput("expected an answer that is not too large, got one that was not taken")
        cap = self._cap(verb)
        answer = Answer.from_bytes(content, min(cap + AROUND, MAX_FRAME))
        if answer.nonce in self._past:
            raise Late(self._past[answer.nonce])
        if request is None:
            raise BadInput("expected an answer of a site that was asked, got one of another")
        for what in ("run", "site", "verb", "nonce"):
            if getattr(answer, what) != getattr(request, what):
                raise BadInput(f"expected the {what} of the request in its answer, got another")
        if len(answer.content) > cap:
            raise BadInput(f"expected a message of at most {cap} bytes, got more")
        if self.keys is not None and not verify(
            self.keys[request.site], answer.signed_part(), answer.signature
        ):
            raise BadInput("expected the signature of the site under its answer, got none of it")
        if answer.code not in list(Code):
            raise BadInput("expected a code that is known, got another")
        return answer


def _is_brief(request: Request) -> bool:
    """Whether digests went along in the place of files."""
    return any(name.endswith(DIGEST) for name in request.files)
